package ui

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// settingsPage is who the caller is, who else may do what, and whom alerts are sent to.
type settingsPage struct {
	Me      *adminpb.WhoAmIResponse
	Targets []string
	Tokens  []credential // those that count first; only an admin sees them
	Roles   []roleWords
}

// credential is a token, or a name in a certificate.
type credential struct {
	*adminpb.Credential

	State string // good, expired or revoked
	Mine  bool
}

// roleWords are what a role may do.
type roleWords struct {
	Role access.Role
	May  string
	Mine bool
}

var roles = []roleWords{
	{Role: access.Viewer, May: "looks at everything of its domains: rules, counts, keys as they are shown, sidecars, alerts and the audit trail"},
	{Role: access.Editor, May: "applies rule files: what they change is tried in shadow, where nobody is refused"},
	{Role: access.Operator, May: "does what takes effect: promotes, pauses, aborts, rolls back, freezes, deletes, overrides, exempts, and silences alerts"},
	{Role: access.Admin, May: "makes and revokes tokens, and says which history the fleet follows"},
	{Role: access.Sidecar, May: "is a sidecar: receives the rules of its domains and reports what it counted, and nothing else"},
}

func (u *UI) settings(ctx context.Context, r *request) (view, error) {
	page := &settingsPage{}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		page.Me, err = u.api.WhoAmI(running, &adminpb.WhoAmIRequest{})
		return err
	})
	group.Go(func() error {
		resp, err := u.api.ListTargets(running, &adminpb.ListTargetsRequest{})
		page.Targets = resp.GetTargets()
		return err
	})
	group.Go(func() error {
		if r.Who.May(access.Admin, "") != nil {
			return nil
		}
		resp, err := u.api.ListCredentials(running, &adminpb.ListCredentialsRequest{})
		page.credentials(resp.GetCredentials(), r.Who.Credential, time.Now())
		return err
	})
	if err := group.Wait(); err != nil {
		return view{}, err
	}
	for _, role := range roles {
		role.Mine = role.Role == r.Who.Role && !r.Who.Local
		page.Roles = append(page.Roles, role)
	}
	return view{Title: "Settings", Nav: "settings", Data: page}, nil
}

func (p *settingsPage) credentials(list []*adminpb.Credential, mine string, now time.Time) {
	var ended []credential
	for _, c := range list {
		one := credential{Credential: c, State: "good", Mine: c.GetId() == mine}
		switch {
		case c.GetRevoked() != nil:
			one.State = "revoked"
		case c.GetExpires() != nil && !now.Before(c.GetExpires().AsTime()):
			one.State = "expired"
		default:
			p.Tokens = append(p.Tokens, one)
			continue
		}
		ended = append(ended, one)
	}
	p.Tokens = append(p.Tokens, ended...)
}
