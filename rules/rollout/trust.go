package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// AddCredential stores a credential that access.NewToken or access.NewCertificate made, filled in with name, role, domains
// and expiry, and returns it as it is stored.
func (s *Service) AddCredential(ctx context.Context, c access.Credential, why Why) (access.Credential, error) {
	err := s.trust(ctx, ActionAddCredential, cmp.Or(c.Name, c.ID), why, func(r Record) error {
		c.Created = r.Time
		if err := s.checkCredential(&c); err != nil {
			return err
		}
		scope := "all domains"
		if c.Domains != nil {
			scope = strings.Join(c.Domains, ", ")
		}
		until := ""
		if !c.Expires.IsZero() {
			until = ", until " + c.Expires.Format(timeText)
		}
		r.Target, r.Detail = c.ID, fmt.Sprintf("%s %s for %s: role %s, %s%s", c.Kind, c.ID, c.Name, c.Role, scope, until)
		return s.store.AddCredential(ctx, c, r)
	})
	return c, err
}

// maxName bounds the name of a credential, in bytes.
const maxName = 256

func (s *Service) checkCredential(c *access.Credential) error {
	if _, err := access.ParseRole(string(c.Role)); err != nil {
		return err
	}
	switch {
	case c.Name == "" || len(c.Name) > maxName:
		return fmt.Errorf("%w: a credential needs a name of 1 to %d bytes: who is it for?", rules.ErrInvalid, maxName)
	case strings.ContainsFunc(c.Name, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(c.Name):
		return fmt.Errorf("%w: the name of a credential is shown in the audit trail: printable characters only", rules.ErrInvalid)
	case c.Role == access.Admin && c.Domains != nil:
		return fmt.Errorf("%w: an admin is for all domains; for some of them there are operators", rules.ErrInvalid)
	case c.Domains != nil && len(c.Domains) == 0:
		return fmt.Errorf("%w: a credential for no domain is of no use", rules.ErrInvalid)
	case !c.Expires.IsZero() && !s.now().Before(c.Expires):
		return fmt.Errorf("%w: it would expire at %s, which is past", rules.ErrInvalid, c.Expires.Format(timeText))
	}
	for _, d := range c.Domains {
		if problem := rules.CheckName(d); problem != "" {
			return fmt.Errorf("%w: domain: %s", rules.ErrInvalid, problem)
		}
	}
	return nil
}

// RevokeCredential ends a credential; what is open with it ends within a minute.
func (s *Service) RevokeCredential(ctx context.Context, id string, why Why) error {
	return s.trust(ctx, ActionRevokeCredential, id, why, func(r Record) error {
		r.Detail = "credential " + id + " revoked"
		return s.store.RevokeCredential(ctx, id, r.Time, r)
	})
}

// Credentials returns all credentials; no secret is among what is known of them.
func (s *Service) Credentials(ctx context.Context) ([]access.Credential, error) {
	return s.store.Credentials(ctx)
}

// RenewLineage gives the history another identity after a restore: the fleet holds revisions of the old one that the
// database does not have. Sidecars follow it once [Service.ReplaceLineage] has said so.
func (s *Service) RenewLineage(ctx context.Context, why Why) (lineage string, err error) {
	err = s.trust(ctx, ActionRenewLineage, "the history", why, func(r Record) error {
		r.Detail = "the history has another identity from here on"
		lineage, err = s.store.RenewLineage(ctx, r)
		return err
	})
	return lineage, err
}

// ReplaceLineage lets sidecars that hold the other history follow this one: all they have is replaced.
func (s *Service) ReplaceLineage(ctx context.Context, lineage string, why Why) error {
	return s.trust(ctx, ActionReplaceLineage, lineage, why, func(r Record) error {
		head, err := s.store.Head(ctx)
		switch {
		case err != nil:
			return err
		case lineage == "" || len(lineage) > maxName:
			return fmt.Errorf("%w: name the history that the sidecars hold", rules.ErrInvalid)
		case lineage == head.Lineage:
			return fmt.Errorf("%w: %s is this history itself: sidecars follow it anyway", rules.ErrInvalid, lineage)
		}
		nodes, err := s.store.Nodes(ctx, "")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Lineage == lineage }) {
			return fmt.Errorf("%w: no sidecar is known to hold the history %s", rules.ErrNotFound, lineage)
		}
		r.Detail = fmt.Sprintf("sidecars with the history %s follow this one, %s", lineage, head.Lineage)
		return s.store.ReplaceLineage(ctx, lineage, r)
	})
}

// trust runs what only an admin may do, and makes no revision.
func (s *Service) trust(ctx context.Context, action Action, target string, why Why, do func(Record) error) error {
	err := why.Who.May(access.Admin, "")
	if err == nil {
		err = do(s.note(action, target, why))
	}
	if err != nil {
		return s.Refused(ctx, "", action, target, why, fmt.Errorf("%s %s: %w", action, target, err))
	}
	return nil
}

// BreakGlass records a freeze that was made at a node. A report may come more than once.
func (s *Service) BreakGlass(ctx context.Context, node string, b BreakGlass) error {
	target := b.Domain
	if b.Freeze.Rule != "" {
		target += "/" + b.Freeze.Rule
	}
	r := s.note(ActionBreakGlass, target, Why{Who: access.Identity{Name: cmp.Or(b.Actor, "unknown")}})
	what := "freeze ended"
	if b.Freeze.Until.After(b.At) {
		what = freezeWords(&b.Freeze)
	}
	r.Domain, r.Detail = b.Domain, fmt.Sprintf("%s on sidecar %s alone, at %s by its clock: %s", target, node, b.At.UTC().Format(timeText), what)
	return s.store.Note(ctx, r, "break-glass "+node+" "+b.ID)
}

// BrokenGlass are the freezes made at the node itself that have not ended, in words.
func (n *Node) BrokenGlass(now time.Time) []string {
	var list []string
	ended := map[[2]string]bool{} // by domain and rule: a newer report says more
	for i := range n.BreakGlass { // the newest first
		b := &n.BreakGlass[i]
		of := [2]string{b.Domain, b.Freeze.Rule}
		if !ended[of] && b.Domain == n.Domain && now.Before(b.Freeze.Until) && b.Freeze.Until.After(b.At) {
			list = append(list, fmt.Sprintf("%s, by %s", freezeWords(&b.Freeze), b.Actor))
		}
		ended[of] = true
	}
	return list
}
