package ui

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// never is the life of a token that does not end; usualLife is what is chosen first: a token that got somewhere it should
// not be ends some day.
const (
	never     = "never"
	usualLife = "90d"
)

func (u *UI) createTokenForm(_ context.Context, r *request) (form, error) {
	f := form{
		Title: "Make a token?", Verb: "Make the token",
		Says:    []string{"The token is shown once, as the answer to this form. The control plane keeps only a hash of it."},
		Command: command("token", "create", "--name", "NAME", "--role", "ROLE", "-d", "DOMAIN", "--expires", usualLife),
		Fields: []field{
			{Name: "name", Label: "Name", Kind: "text", Value: r.Query.Get("name"), Required: true, Hint: "who it is for; it stands in the audit trail"},
			{Name: "role", Label: "Role", Value: orElse(r.Query.Get("role"), string(access.Viewer)), Options: []option{
				{string(access.Viewer), "viewer: looks"},
				{string(access.Editor), "editor: applies to shadow"},
				{string(access.Operator), "operator: promotes, rolls back, freezes, overrides"},
				{string(access.Admin), "admin: makes tokens too"},
				{string(access.Sidecar), "sidecar: receives the rules of its domains, nothing else"},
			}},
			{Name: "domains", Label: "Domains", Kind: "text", Value: r.Query.Get("domains"), Hint: "with commas between; empty: all of them"},
			{Name: "expires", Label: "Good for", Value: orElse(r.Query.Get("expires"), usualLife), Options: []option{
				{"12h", "12 hours"}, {"7d", "7 days"}, {"30d", "30 days"}, {usualLife, "90 days"}, {"365d", "a year"}, {never, "ever: only where nothing can renew it"},
			}},
		},
	}
	return f, nil
}

func (u *UI) createToken(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	req := &adminpb.CreateCredentialRequest{Name: strings.TrimSpace(r.Query.Get("name")), Role: r.Query.Get("role"), Message: why.GetMessage()}
	req.Domains = strings.FieldsFunc(r.Query.Get("domains"), func(c rune) bool { return c == ',' || c == ' ' })
	if r.Query.Get("expires") != never {
		life, err := r.length("expires", 90*24*time.Hour)
		if err != nil {
			return done{}, err
		}
		req.Expires = timestamppb.New(time.Now().Add(life))
	}
	resp, err := u.api.CreateCredential(ctx, req)
	if err != nil {
		return done{}, err
	}
	c := resp.GetCredential()
	return done{shown: &shown{
		Title: "The token of " + c.GetName(), Secret: resp.GetToken(), Back: backFrom(r.Request),
		Says:  []string{"Copy it now: it is not shown again, and nobody can look it up."},
		Facts: credentialFacts(c),
	}}, nil
}

// credentialFacts are what is known of a token, or of a certificate's name.
func credentialFacts(c *adminpb.Credential) []fact {
	scope, life := "all domains", any("never expires")
	if len(c.GetDomains()) > 0 {
		scope = strings.Join(c.GetDomains(), ", ")
	}
	if c.GetExpires() != nil {
		life = when(c.GetExpires())
	}
	return []fact{{"ID", c.GetId()}, {"Role", c.GetRole()}, {"For", scope}, {"Until", life}}
}

func (u *UI) revokeTokenForm(ctx context.Context, r *request) (form, error) {
	id := r.Query.Get("id")
	if r.Who.May(access.Admin, "") != nil {
		return form{Title: "End a token?"}, nil // who may not is told so, and nothing else
	}
	list, err := u.api.ListCredentials(ctx, &adminpb.ListCredentialsRequest{})
	if err != nil {
		return form{}, err
	}
	for _, c := range list.GetCredentials() {
		if c.GetId() != id {
			continue
		}
		f := form{
			Title: fmt.Sprintf("End the %s of %s?", c.GetKind(), c.GetName()), Verb: "Revoke", Danger: true,
			Facts: credentialFacts(c), Fields: []field{hidden("id", id)},
			Says:    []string{"Whoever shows it is refused, and what is open with it ends within a minute. It cannot be brought back."},
			Command: command("token", "revoke", id, "-m", "MESSAGE"),
		}
		if id == r.Who.Credential {
			f.Warnings = []string{"You are signed in with this one: you will be signed out."}
		}
		return f, nil
	}
	return form{}, fmt.Errorf("%w: there is no token with the ID %q", rules.ErrNotFound, id)
}

func (u *UI) revokeToken(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	id := r.Query.Get("id")
	_, err := u.api.RevokeCredential(ctx, &adminpb.RevokeCredentialRequest{Id: id, Message: why.GetMessage()})
	return done{says: "The credential " + id + " is revoked."}, err
}

// errNoSignIn: there are no sessions that could end.
var errNoSignIn = fmt.Errorf("%w: nobody signs in here: the control plane was started without authentication", rules.ErrNotFound)

func (u *UI) signOutForm(_ context.Context, r *request) (form, error) {
	if u.door == nil {
		return form{}, errNoSignIn
	}
	return form{
		Title: "Sign out everywhere?", Verb: "Sign out everywhere", NoReason: true,
		Says: []string{"Every session that was opened with the token of " + r.Who.Name + " ends, this one too. The token stays good."},
	}, nil
}

func (u *UI) signOutEverywhere(ctx context.Context, r *request, _ *adminpb.Why) (done, error) {
	if u.door == nil {
		return done{}, errNoSignIn
	}
	return done{says: "All your sessions have ended."}, u.door.SignOutEverywhere(ctx, r.Who)
}
