package api_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
)

// exempting is a rule file with one rule and an exemption.
func exempting(domain, limit, exempt string) *adminpb.File {
	f := file("f", domain, "x", limit)
	f.Content = append(f.Content, []byte("exempt: [{name: health, match: {path: "+exempt+"}}]\nshard: header:x-tenant\n")...)
	return f
}

func settingsOf(t *testing.T, s *api.Server, domain string) *adminpb.Domain {
	t.Helper()
	resp, err := s.ListDomains(anybody(t), &adminpb.ListDomainsRequest{Domain: domain})
	if err != nil || len(resp.GetDomains()) != 1 {
		t.Fatalf("domains %v, %v", resp.GetDomains(), err)
	}
	return resp.GetDomains()[0]
}

func TestSettingsOfADomainTakeEffectAtOnceAndAreSaidLoudly(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	out := apply(t, s, exempting("a", "1/s", "/livez")).GetOutcomes()[0]
	if step := out.GetSteps()[0]; step.GetRule() != "a" || len(step.GetWarnings()) != 2 || !strings.Contains(step.GetAfter(), "exempt health") {
		t.Errorf("the step of the settings is %v", step)
	}
	d := settingsOf(t, s, "a")
	if len(d.GetExempt()) != 1 || d.GetExempt()[0].GetMatch() != `{"path":["/livez"]}` || d.GetShard() != "header:x-tenant" || d.GetSettingsRevision() != 1 {
		t.Errorf("the domain is %v", d)
	}
	// A file that does not name them leaves them; pruning does not.
	apply(t, s, file("f", "a", "x", "2/s"))
	if d := settingsOf(t, s, "a"); len(d.GetExempt()) != 1 || d.GetRevision() != 2 || d.GetSettingsRevision() != 1 {
		t.Errorf("after a file without settings: %v", d)
	}
	if _, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", "a", "y", "2/s")}, Prune: true}); err != nil {
		t.Fatal(err)
	}
	if d := settingsOf(t, s, "a"); len(d.GetExempt()) != 0 || d.GetShard() != "" {
		t.Errorf("after pruning: %v", d)
	}
	resp, err := s.ListRules(anybody(t), &adminpb.ListRulesRequest{Domain: "a"})
	if err != nil || len(resp.GetRules()) != 1 || resp.GetRules()[0].GetName() != "y" {
		t.Errorf("after pruning the rules are %v, %v", resp.GetRules(), err)
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	resp, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", "a", "x", "1/s")}, DryRun: true})
	if err != nil || len(resp.GetOutcomes()) != 1 || resp.GetOutcomes()[0].GetRevision() != 0 || len(resp.GetOutcomes()[0].GetSteps()) != 1 {
		t.Errorf("got %v, %v; want the step, and no revision", resp, err)
	}
	if list := trail(t, m); len(list) != 0 {
		t.Errorf("the trail is %+v", list)
	}
}

func TestDryRunOfAnyChangeSaysWhatItWouldDo(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, file("f", "a", "x", "1/s")) // revision 1
	promote(t, s, "a", "x", 10_000)         // revision 2
	apply(t, s, file("f", "a", "x", "2/s")) // revision 3
	before, dry := len(trail(t, m)), &adminpb.Why{DryRun: true}
	said := func(out *adminpb.Outcome, err error) *adminpb.Step {
		t.Helper()
		if err != nil || out.GetRevision() != 0 || len(out.GetSteps()) != 1 {
			t.Fatalf("got %v, %v; want one step, and no revision", out, err)
		}
		return out.GetSteps()[0]
	}
	promoted, err := s.Promote(anybody(t), &adminpb.PromoteRequest{Domain: "a", Rule: "x", To: 1000, Why: dry})
	if step := said(promoted.GetOutcome(), err); step.GetAfter() != "v2 at 10% beside stable v1" || step.GetStable() != 1 || step.GetCandidate() != 2 {
		t.Errorf("a promotion would lead to %v", step)
	}
	back, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "a", Rule: "x", Why: dry})
	if step := said(back.GetOutcome(), err); step.GetStable() != 1 || step.GetCandidate() != 0 {
		t.Errorf("a rollback would lead to %v", step)
	}
	frozen, err := s.Freeze(anybody(t), &adminpb.FreezeRequest{Domain: "a", For: durationpb.New(time.Minute), Why: dry})
	if step := said(frozen.GetOutcome(), err); !strings.HasPrefix(step.GetAfter(), "frozen until ") {
		t.Errorf("a freeze would lead to %v", step)
	}
	if _, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "a", Rule: "x", To: 2, Why: dry}); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("a rollback to what was never in force: %v", err)
	}
	if _, err := s.Promote(anybody(t), &adminpb.PromoteRequest{Domain: "a", Rule: "x", To: 1000, ForceGate: true, Why: dry}); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("by force without a message: %v", err)
	}
	if list := trail(t, m); len(list) != before {
		t.Errorf("the trail has %d records; it had %d", len(list), before)
	}
}

func TestStaleBaseIsAConflict(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "1/s"), file("g", "a", "y", "2/s")) // revision 1
	promote(t, s, "a", "x", 2500)                                       // revision 2
	promoted := func(rule string, base int64) error {
		_, err := s.Promote(anybody(t), &adminpb.PromoteRequest{Domain: "a", Rule: rule, To: 5000, Why: &adminpb.Why{ExpectRevision: base}})
		return err
	}
	if err := promoted("x", 1); !errors.Is(err, rules.ErrConflict) || !strings.Contains(err.Error(), "revision 2") {
		t.Errorf("based on revision 1: %v, want a conflict that names revision 2", err)
	}
	if err := promoted("x", 9); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("based on a revision that is not there: %v", err)
	}
	if err := promoted("y", 1); err != nil {
		t.Errorf("of a rule that was not touched since: %v", err)
	}
	if err := promoted("x", 2); err != nil {
		t.Errorf("based on what stands: %v", err)
	}
}

func TestDomainIsRolledBackInOneRevision(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, exempting("a", "10/s", "/livez")) // 1
	promote(t, s, "a", "x", 10_000)               // 2
	if _, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{exempting("a", "20/s", "/*"), file("g", "a", "y", "3/s")}, Enforce: true}); err != nil {
		t.Fatal(err) // 3
	}
	resp, err := s.RollbackDomain(anybody(t), &adminpb.RollbackDomainRequest{Domain: "a", ToRevision: 2})
	if err != nil || resp.GetOutcome().GetRevision() != 4 {
		t.Fatalf("got %v, %v", resp, err)
	}
	list, err := m.Rules(t.Context(), "a")
	if err != nil || list[0].State() != "v1 stable" || list[1].State() != "v1 in shadow with no stable version" {
		t.Errorf("the rules are %s and %s, %v", list[0].State(), list[1].State(), err)
	}
	if d := settingsOf(t, s, "a"); d.GetExempt()[0].GetMatch() != `{"path":["/livez"]}` || d.GetShard() == "" {
		t.Errorf("the settings are %v", d)
	}
	again, err := s.RollbackDomain(anybody(t), &adminpb.RollbackDomainRequest{Domain: "a", ToRevision: 2})
	if err != nil || again.GetOutcome().GetRevision() != 0 {
		t.Errorf("a second time: %v, %v; want no change", again, err)
	}
	for _, to := range []int64{5, -1, 0} {
		if _, err := s.RollbackDomain(anybody(t), &adminpb.RollbackDomainRequest{Domain: "a", ToRevision: to}); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("to revision %d: %v", to, err)
		}
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "1/s"))
	freeze := func(rule string, length time.Duration) error {
		_, err := s.Freeze(anybody(t), &adminpb.FreezeRequest{Domain: "a", Rule: rule, For: durationpb.New(length)})
		return err
	}
	for _, err := range []error{freeze("x", time.Hour), freeze("", 15*time.Minute)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := settingsOf(t, s, "a").GetFreezes(); len(got) != 2 || got[0].GetRule() != "" || got[1].GetRule() != "x" {
		t.Errorf("freezes %v", got)
	}
	resp, err := s.ListRules(anybody(t), &adminpb.ListRulesRequest{Domain: "a"})
	if err != nil || time.Until(resp.GetRules()[0].GetFrozenUntil().AsTime()) < 50*time.Minute {
		t.Errorf("the rule is %v, %v; want it frozen for an hour", resp.GetRules(), err)
	}
	for name, err := range map[string]error{"too long": freeze("", 25*time.Hour), "no time": freeze("", 0)} {
		if !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := freeze("none", time.Hour); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a rule that is not there: %v", err)
	}
	out, err := s.Unfreeze(anybody(t), &adminpb.UnfreezeRequest{Domain: "a"})
	if err != nil || out.GetOutcome().GetRevision() == 0 {
		t.Errorf("unfreeze: %v, %v", out, err)
	}
	if out, err := s.Unfreeze(anybody(t), &adminpb.UnfreezeRequest{Domain: "a"}); err != nil || out.GetOutcome().GetNote() == "" {
		t.Errorf("unfreeze again: %v, %v; want a note", out, err)
	}
	if got := settingsOf(t, s, "a").GetFreezes(); len(got) != 1 || got[0].GetRule() != "x" {
		t.Errorf("freezes %v", got)
	}
}

func TestFreezeOfAGuardingRuleMustBeMeant(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	f := file("f", "a", "x", "1/s, failure: closed")
	apply(t, s, f)
	req := &adminpb.FreezeRequest{Domain: "a", Rule: "x", For: durationpb.New(time.Minute)}
	if _, err := s.Freeze(anybody(t), req); !errors.Is(err, rules.ErrGuarded) {
		t.Errorf("got %v, want it questioned", err)
	}
	req.IncludingClosed = true
	if _, err := s.Freeze(anybody(t), req); err != nil {
		t.Error(err)
	}
}

// The database was restored from a backup, and nobody said so: its numbers would be given out twice, and sidecars that have
// the revisions which are gone would pass for up to date.
func TestHistoryThatTheFleetSawGoOnOtherwiseIsNotGoneOnWith(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, file("f", "a", "x", "1/s"))
	head, err := m.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node := rollout.Node{ID: "n", Domain: "a", Connected: true, Seen: time.Now(), Lineage: head.Lineage, Sent: 9, Acked: 9}
	save := func() {
		t.Helper()
		node.Seen = node.Seen.Add(time.Second)
		if err := m.SaveNodes(t.Context(), []rollout.Node{node}); err != nil {
			t.Fatal(err)
		}
	}
	save()
	req := &adminpb.PromoteRequest{Domain: "a", Rule: "x", To: 100}
	if _, err := s.Promote(anybody(t), req); !errors.Is(err, rules.ErrConflict) || !strings.Contains(err.Error(), "sidecar n has revision 9") {
		t.Errorf("got %v, want a conflict that names the sidecar", err)
	}
	for name, change := range map[string]func(){
		"of another history": func() { node.Lineage = "other" },
		"not connected":      func() { node.Lineage, node.Connected = head.Lineage, false },
	} {
		change()
		save()
		req.To++
		if _, err := s.Promote(anybody(t), req); err != nil {
			t.Errorf("a node ahead that is %s: %v", name, err)
		}
	}
}

func TestRecordsHoldASpecOnce(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, file("f", "a", "x", "17/s"))
	promote(t, s, "a", "x", 10_000)
	apply(t, s, file("f", "a", "x", "19/s"))
	if _, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "a", Rule: "x"}); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, r := range trail(t, m) {
		for _, rate := range []string{`"17/s"`, `"19/s"`} {
			count[rate] += strings.Count(string(r.Before)+string(r.After), rate)
		}
	}
	if count[`"17/s"`] != 1 || count[`"19/s"`] != 1 {
		t.Errorf("the records hold the specs %v times, want each once, in the record that brought it", count)
	}
}

func TestOverrideThatDoesNotHoldForANewSpecIsSaid(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "10/s"))
	if _, err := s.SetOverride(anybody(t), &adminpb.SetOverrideRequest{
		Domain: "a", Rule: "x", Key: []string{"192.0.2.77"}, Rate: "50/s", Until: timestamppb.New(time.Now().Add(time.Hour)),
	}); err != nil {
		t.Fatal(err)
	}
	for limit, said := range map[string]bool{"30/s": false, "900/min": true, "70/s, cost: 60": true} {
		resp, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", "a", "x", limit)}, Confirmed: true})
		if err != nil {
			t.Fatal(err)
		}
		step := resp.GetOutcomes()[0].GetSteps()[0]
		if got := strings.Contains(strings.Join(step.GetWarnings(), " "), "does not hold"); got != said {
			t.Errorf("%s beside an override of 50/s: warnings %q, want it said: %v", limit, step.GetWarnings(), said)
		}
	}
}

func TestOverrideHoldsNoKey(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, file("f", "a", "x", "10/s"))
	set := &adminpb.SetOverrideRequest{
		Domain: "a", Rule: "x", Key: []string{"192.0.2.77"}, Rate: "50/s", Until: timestamppb.New(time.Now().Add(time.Hour)),
		Why: &adminpb.Why{Message: "big customer"},
	}
	if _, err := s.SetOverride(anybody(t), set); err != nil {
		t.Fatal(err)
	}
	list := func(key ...string) int {
		resp, err := s.ListOverrides(anybody(t), &adminpb.ListOverridesRequest{Domain: "a", Rule: "x", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return len(resp.GetOverrides())
	}
	if list() != 1 || list("::ffff:192.0.2.77") != 1 || list("192.0.2.78") != 0 {
		t.Errorf("overrides: %d, %d of the key, %d of another", list(), list("::ffff:192.0.2.77"), list("192.0.2.78"))
	}
	for _, r := range trail(t, m) {
		if text := string(r.Before) + string(r.After) + r.Detail + r.Target; strings.Contains(text, "192.0.2.77") {
			t.Errorf("the audit trail holds the key: %s", text)
		}
	}
	for name, req := range map[string]*adminpb.SetOverrideRequest{
		"another window": {Domain: "a", Rule: "x", Key: []string{"192.0.2.77"}, Rate: "50/min", Until: set.GetUntil()},
		"no end":         {Domain: "a", Rule: "x", Key: []string{"192.0.2.77"}, Rate: "50/s"},
		"two values":     {Domain: "a", Rule: "x", Key: []string{"192.0.2.77", "b"}, Rate: "50/s", Until: set.GetUntil()},
		"no rate":        {Domain: "a", Rule: "x", Key: []string{"192.0.2.77"}, Until: set.GetUntil()},
	} {
		if _, err := s.SetOverride(anybody(t), req); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.DeleteOverride(anybody(t), &adminpb.DeleteOverrideRequest{Domain: "a", Rule: "x", Key: []string{"192.0.2.77"}}); err != nil || list() != 0 {
		t.Errorf("after deleting it: %d, %v", list(), err)
	}
}

func TestOverrideIsDeletedByTheHashThatListsShow(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "10/s"))
	if _, err := s.SetOverride(anybody(t), &adminpb.SetOverrideRequest{
		Domain: "a", Rule: "x", Key: []string{"192.0.2.77"}, Rate: "50/s", Until: timestamppb.New(time.Now().Add(time.Hour)),
	}); err != nil {
		t.Fatal(err)
	}
	list, err := s.ListOverrides(anybody(t), &adminpb.ListOverridesRequest{Domain: "a", Rule: "x"})
	if err != nil || len(list.GetOverrides()) != 1 {
		t.Fatal(list, err)
	}
	for _, id := range []string{"192.0.2.77", "1f2e"} {
		if _, err := s.DeleteOverride(anybody(t), &adminpb.DeleteOverrideRequest{Domain: "a", Rule: "x", Id: id}); !errors.Is(err, rules.ErrInvalid) || strings.Contains(err.Error(), id) {
			t.Errorf("what is no hash: %v", err)
		}
	}
	resp, err := s.DeleteOverride(anybody(t), &adminpb.DeleteOverrideRequest{Domain: "a", Rule: "x", Id: list.GetOverrides()[0].GetKey()})
	if err != nil || resp.GetOutcome().GetRevision() == 0 {
		t.Errorf("by its hash: %v, %v", resp, err)
	}
}

func TestHistoryHasDeletionRestoreAndFreeze(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "10/s"))
	promote(t, s, "a", "x", 10_000)
	if _, err := s.Delete(anybody(t), &adminpb.DeleteRequest{Domain: "a", Rule: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "a", Rule: "x"}); err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"x", ""} { // that of the domain is not the rule's
		if _, err := s.Freeze(anybody(t), &adminpb.FreezeRequest{Domain: "a", Rule: rule, For: durationpb.New(time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := s.History(anybody(t), &adminpb.HistoryRequest{Domain: "a", Rule: "x"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range resp.GetEntries() {
		got = append(got, e.GetAction()+": "+e.GetState())
	}
	want := []string{"freeze: v1 stable", "rollback: v1 stable", "delete: deleted", "promote: v1 stable", "apply: v1 in shadow with no stable version"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the history is %q, want %q", got, want)
	}
}

func TestAuditTrailCanBeVerifiedByWhoReadsIt(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "10/s"))
	promote(t, s, "a", "x", 10_000)
	if _, err := s.Promote(anybody(t), &adminpb.PromoteRequest{Domain: "a", Rule: "x", To: 1}); err == nil {
		t.Fatal("there is nothing to promote")
	}
	resp, err := s.ListAudit(anybody(t), &adminpb.ListAuditRequest{})
	if err != nil || len(resp.GetRecords()) != 3 {
		t.Fatalf("%v, %v", resp, err)
	}
	var chain rollout.Chain
	for i := len(resp.GetRecords()) - 1; i >= 0; i-- {
		r := resp.GetRecords()[i]
		if err := chain.Add(&rollout.Record{
			Number: r.GetNumber(), Revision: r.GetRevision(), Refused: r.GetRefused(), Domain: r.GetDomain(), Time: r.GetTime().AsTime(),
			Actor: rollout.Actor{Name: r.GetActor(), Verified: r.GetVerified()}, Action: rollout.Action(r.GetAction()), Target: r.GetTarget(),
			Message: r.GetMessage(), Detail: r.GetDetail(), Before: []byte(r.GetBefore()), After: []byte(r.GetAfter()), Seal: r.GetSeal(),
		}); err != nil {
			t.Error(err)
		}
	}
	if chain.Records != resp.GetHeadNumber() || chain.Seal != resp.GetHeadSeal() {
		t.Errorf("the chain ends with %d:%s, the head is %d:%s", chain.Records, chain.Seal, resp.GetHeadNumber(), resp.GetHeadSeal())
	}
}

func TestCredentialsAreShownOnceAndRevoked(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	made, err := s.CreateCredential(anybody(t), &adminpb.CreateCredentialRequest{Name: "ci", Role: "editor", Domains: []string{"a"}})
	if err != nil || made.GetToken() == "" {
		t.Fatalf("%v, %v", made, err)
	}
	stored, err := m.Credential(t.Context(), access.HashToken(made.GetToken()))
	if err != nil || stored.Role != access.Editor || stored.Name != "ci" {
		t.Errorf("stored is %+v, %v", stored, err)
	}
	if _, err := s.RevokeCredential(anybody(t), &adminpb.RevokeCredentialRequest{Id: made.GetCredential().GetId()}); err != nil {
		t.Error(err)
	}
	list, err := s.ListCredentials(anybody(t), &adminpb.ListCredentialsRequest{})
	if err != nil || len(list.GetCredentials()) != 1 || !list.GetCredentials()[0].GetRevoked().IsValid() {
		t.Errorf("%v, %v", list, err)
	}
	if list := trail(t, m); len(list) != 2 || strings.Contains(list[1].Detail, made.GetToken()) {
		t.Errorf("the trail is %+v", list)
	}
	for name, req := range map[string]*adminpb.CreateCredentialRequest{
		"no name": {Role: "viewer"}, "no role": {Name: "x"}, "scoped admin": {Name: "x", Role: "admin", Domains: []string{"a"}},
		"odd domain": {Name: "x", Role: "viewer", Domains: []string{"A/B"}}, "past": {Name: "x", Role: "viewer", Expires: timestamppb.New(time.Unix(1, 0))},
	} {
		if _, err := s.CreateCredential(anybody(t), req); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestListAuditFilters(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("1", "a", "x", "1/s"))
	promote(t, s, "a", "x", 1000)
	for _, c := range []struct {
		req  *adminpb.ListAuditRequest
		want int
	}{
		{&adminpb.ListAuditRequest{}, 2},
		{&adminpb.ListAuditRequest{Action: "promote"}, 1},
		{&adminpb.ListAuditRequest{Actor: "nobody of this name"}, 0},
		{&adminpb.ListAuditRequest{From: timestamppb.New(time.Now().Add(time.Hour))}, 0},
		{&adminpb.ListAuditRequest{To: timestamppb.New(time.Now().Add(time.Hour))}, 2},
	} {
		resp, err := s.ListAudit(anybody(t), c.req)
		if err != nil || len(resp.GetRecords()) != c.want {
			t.Errorf("%v: %d records, %v; want %d", c.req, len(resp.GetRecords()), err, c.want)
		}
	}
	if _, err := s.ListAudit(anybody(t), &adminpb.ListAuditRequest{To: &timestamppb.Timestamp{Nanos: -1}}); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("a time that is none: %v", err)
	}
}

func TestListOverridesSaysWhoMadeThem(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("1", "a", "x", "60/min"), file("2", "b", "y", "60/min"))
	until := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Second))
	for i, key := range []string{"10.0.0.1", "10.0.0.2"} {
		_, err := s.SetOverride(anybody(t), &adminpb.SetOverrideRequest{
			Domain: "a", Rule: "x", Key: []string{key}, Rate: "120/min", Until: until, Why: &adminpb.Why{Message: "for " + key},
		})
		if err != nil {
			t.Fatalf("override %d: %v", i, err)
		}
	}
	resp, err := s.ListOverrides(anybody(t), &adminpb.ListOverridesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, o := range resp.GetOverrides() {
		if o.GetRule() != "a/x" || o.GetActor() == "" || o.GetMade() == nil {
			t.Errorf("got %v, want one of a/x, with who made it when", o)
		}
		said = append(said, o.GetMessage())
	}
	slices.Sort(said)
	if diff := cmp.Diff([]string{"for 10.0.0.1", "for 10.0.0.2"}, said); diff != "" {
		t.Errorf("messages: -want +got\n%s", diff)
	}
	if _, err := s.ListOverrides(anybody(t), &adminpb.ListOverridesRequest{Key: []string{"10.0.0.1"}}); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("a key of no rule: %v", err)
	}
}
