package api_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
)

// Each call by each role, for the right domain and for another one.
func TestRoles(t *testing.T) {
	t.Parallel()
	until, anyone := timestamppb.New(time.Now().Add(time.Hour)), anybody(t)
	calls := map[string]struct {
		needs access.Role
		call  func(context.Context, *api.Server, string) error
	}{
		"apply": {access.Editor, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", domain, "new", "7/s")}})
			return err
		}},
		"apply settings": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{exempting(domain, "10/s", "/livez")}})
			return err
		}},
		"apply at once": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", domain, "new", "7/s")}, Enforce: true})
			return err
		}},
		"prune": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", domain, "new", "7/s")}, Prune: true})
			return err
		}},
		"replace what binds": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", domain, "x", "7/s")}, Replace: true})
			return err
		}},
		"promote": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Promote(ctx, &adminpb.PromoteRequest{Domain: domain, Rule: "x", To: 1})
			return err
		}},
		"pause": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Pause(ctx, &adminpb.PauseRequest{Domain: domain, Rule: "x"})
			return err
		}},
		"rollback": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Rollback(ctx, &adminpb.RollbackRequest{Domain: domain, Rule: "x"})
			return err
		}},
		"rollback domain": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.RollbackDomain(ctx, &adminpb.RollbackDomainRequest{Domain: domain, ToRevision: 2})
			return err
		}},
		"delete": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Delete(ctx, &adminpb.DeleteRequest{Domain: domain, Rule: "x"})
			return err
		}},
		"freeze": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Freeze(ctx, &adminpb.FreezeRequest{Domain: domain, For: durationpb.New(time.Minute)})
			return err
		}},
		"unfreeze": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Unfreeze(ctx, &adminpb.UnfreezeRequest{Domain: domain})
			return err
		}},
		"override": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.SetOverride(ctx, &adminpb.SetOverrideRequest{Domain: domain, Rule: "x", Key: []string{"192.0.2.1"}, Rate: "20/s", Until: until})
			return err
		}},
		"silence": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Silence(ctx, &adminpb.SilenceRequest{Domain: domain, Rule: "x", For: durationpb.New(time.Hour)})
			return err
		}},
		"unsilence": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			if _, err := s.Silence(anyone, &adminpb.SilenceRequest{Domain: domain, Rule: "x", For: durationpb.New(time.Hour)}); err != nil {
				return err
			}
			_, err := s.Unsilence(ctx, &adminpb.UnsilenceRequest{Domain: domain, Rule: "x"})
			return err
		}},
		"list alerts": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.ListAlerts(ctx, &adminpb.ListAlertsRequest{Domain: domain})
			return err
		}},
		"delete override": {access.Operator, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.DeleteOverride(ctx, &adminpb.DeleteOverrideRequest{Domain: domain, Rule: "x", Key: []string{"192.0.2.1"}})
			return err
		}},
		"list rules": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.ListRules(ctx, &adminpb.ListRulesRequest{Domain: domain})
			return err
		}},
		"list domains": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.ListDomains(ctx, &adminpb.ListDomainsRequest{Domain: domain})
			return err
		}},
		"list overrides": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.ListOverrides(ctx, &adminpb.ListOverridesRequest{Domain: domain, Rule: "x"})
			return err
		}},
		"history": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.History(ctx, &adminpb.HistoryRequest{Domain: domain, Rule: "x"})
			return err
		}},
		"list audit": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.ListAudit(ctx, &adminpb.ListAuditRequest{Domain: domain})
			return err
		}},
		"list nodes": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.ListNodes(ctx, &adminpb.ListNodesRequest{Domain: domain})
			return err
		}},
		"stats": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Stats(ctx, &adminpb.StatsRequest{Domain: domain})
			return err
		}},
		"top": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Top(ctx, &adminpb.TopRequest{Domain: domain, Rule: "x"})
			return err
		}},
		"lookup": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Lookup(ctx, &adminpb.LookupRequest{Domain: domain, Key: []string{"192.0.2.1"}})
			return err
		}},
		"lookup by reference": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			_, err := s.Lookup(ctx, &adminpb.LookupRequest{Domain: domain, Reference: "ABC"})
			return err
		}},
		"await": {access.Viewer, func(ctx context.Context, s *api.Server, domain string) error {
			return s.Await(&adminpb.AwaitRequest{Domain: domain, Revision: 1}, awaiting{ctx: ctx, sent: make(chan *adminpb.AwaitResponse, 9)})
		}},
	}
	for name, c := range calls {
		for _, role := range append(access.Roles(), "") {
			allowed := map[access.Role][]access.Role{
				access.Viewer: {access.Viewer, access.Editor, access.Operator, access.Admin}, access.Editor: {access.Editor, access.Operator, access.Admin},
				access.Operator: {access.Operator, access.Admin},
			}[c.needs]
			for domain, right := range map[string]bool{"a": true, "b": false} {
				s, _ := setup(t)
				apply(t, s, file("f", domain, "x", "10/s"))
				promote(t, s, domain, "x", 2500)
				may := false
				for _, r := range allowed {
					may = may || r == role && right
				}
				if err := c.call(as(t, role, "a"), s, domain); errors.Is(err, rules.ErrForbidden) == may || may && err != nil {
					t.Errorf("%s by %q in domain %s: %v, want it allowed: %v", name, role, domain, err, may)
				}
			}
		}
	}
}

func TestOnlyAnAdminMayChangeWhoIsTrusted(t *testing.T) {
	t.Parallel()
	for _, role := range append(access.Roles(), "") {
		s, _ := setup(t)
		ctx := access.With(t.Context(), access.Identity{Name: "somebody", Role: role})
		calls := map[string]error{}
		_, calls["create credential"] = s.CreateCredential(ctx, &adminpb.CreateCredentialRequest{Name: "x", Role: "viewer"})
		_, calls["list credentials"] = s.ListCredentials(ctx, &adminpb.ListCredentialsRequest{})
		_, calls["revoke credential"] = s.RevokeCredential(ctx, &adminpb.RevokeCredentialRequest{Id: "none"})
		_, calls["replace lineage"] = s.ReplaceLineage(ctx, &adminpb.ReplaceLineageRequest{Lineage: "old"})
		for name, err := range calls {
			if errors.Is(err, rules.ErrForbidden) == (role == access.Admin) {
				t.Errorf("%s by %q: %v", name, role, err)
			}
		}
	}
}

func TestForbiddenAttemptIsRecorded(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, file("f", "a", "x", "10/s"))
	if _, err := s.Promote(as(t, access.Viewer), &adminpb.PromoteRequest{Domain: "a", Rule: "x", To: 1}); !errors.Is(err, rules.ErrForbidden) {
		t.Fatal(err)
	}
	if r := trail(t, m)[0]; r.Refused == "" || r.Actor != (rollout.Actor{Name: "somebody", Verified: true}) || r.Target != "a/x" {
		t.Errorf("the trail ends with %+v", r)
	}
}

func TestScopedViewerSeesItsDomains(t *testing.T) {
	t.Parallel()
	s, _ := setupCounts(t)
	apply(t, s, file("f", "a", "x", "10/s"), file("g", "b", "x", "10/s"), file("h", "c", "x", "10/s"))
	resp, err := s.ListRules(as(t, access.Viewer, "a", "c"), &adminpb.ListRulesRequest{})
	if err != nil || len(resp.GetRules()) != 2 || resp.GetRules()[1].GetDomain() != "c" {
		t.Errorf("got %v, %v", resp.GetRules(), err)
	}
	overview, err := s.Overview(as(t, access.Viewer, "c", "a"), &adminpb.OverviewRequest{})
	if err != nil || len(overview.GetDomains()) != 2 || overview.GetDomains()[1].GetDomain() != "c" {
		t.Errorf("got %v, %v", overview.GetDomains(), err)
	}
	if _, err := s.Overview(as(t, access.Sidecar, "a"), &adminpb.OverviewRequest{}); !errors.Is(err, rules.ErrForbidden) {
		t.Errorf("the overview of a sidecar: %v", err)
	}
	if _, err := s.ListAudit(as(t, access.Viewer, "a"), &adminpb.ListAuditRequest{}); !errors.Is(err, rules.ErrForbidden) {
		t.Errorf("the trail of all domains: %v", err)
	}
}
