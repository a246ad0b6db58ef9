package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func setup(t *testing.T) (*api.Server, *rollouttest.Memory) {
	t.Helper()
	s, c := setupCounts(t)
	return s, c.ledger
}

// anybody is the context of a call where nobody is asked who they are.
func anybody(t *testing.T) context.Context {
	t.Helper()
	return access.With(t.Context(), access.Local(""))
}

// as is the context of a call by somebody with a role, for some domains or for all.
func as(t *testing.T, role access.Role, domains ...string) context.Context {
	t.Helper()
	return access.With(t.Context(), access.Identity{Name: "somebody", Role: role, Domains: domains, Verified: true})
}

// trail is the audit trail, newest first.
func trail(t *testing.T, m *rollouttest.Memory) []rollout.Record {
	t.Helper()
	list, err := m.Audit(t.Context(), rollout.AuditQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// file is a rule file with one rule in a domain.
func file(name, domain, rule, limit string) *adminpb.File {
	return &adminpb.File{Name: name, Content: []byte("apiVersion: headgate/v1\nkind: RuleSet\ndomain: " + domain +
		"\nrules:\n  - {name: " + rule + ", key: [ip], limit: " + limit + "}\n")}
}

func apply(t *testing.T, s *api.Server, files ...*adminpb.File) *adminpb.ApplyResponse {
	t.Helper()
	resp, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: files})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return resp
}

func promote(t *testing.T, s *api.Server, domain, rule string, to uint32) *adminpb.Outcome {
	t.Helper()
	resp, err := s.Promote(anybody(t), &adminpb.PromoteRequest{Domain: domain, Rule: rule, To: to})
	if err != nil {
		t.Fatalf("promote: %v", err)
	}
	return resp.GetOutcome()
}

func TestApplyMakesOneOutcomeForEachDomain(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	got := apply(t, s, file("1", "b", "x", "1/s"), file("2", "a", "x", "1/s"), file("3", "b", "y", "9/s"))
	want := &adminpb.ApplyResponse{Outcomes: []*adminpb.Outcome{
		{Domain: "b", Revision: 1, Steps: []*adminpb.Step{
			{Rule: "b/x", After: "v1 in shadow with no stable version", Candidate: 1}, {Rule: "b/y", After: "v1 in shadow with no stable version", Candidate: 1},
		}},
		{Domain: "a", Revision: 2, Steps: []*adminpb.Step{{Rule: "a/x", After: "v1 in shadow with no stable version", Candidate: 1}}},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	got = apply(t, s, file("2", "a", "x", "1/s"))
	want = &adminpb.ApplyResponse{Outcomes: []*adminpb.Outcome{{Domain: "a", Note: "every rule already says this"}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("again: -want +got\n%s", diff)
	}
}

// One wrong digit and every customer gets 429: a limit that changes ten times or more is questioned, and said out loud.
func TestApplyQuestionsATenfoldChange(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("1", "a", "x", "600/min"))
	promote(t, s, "a", "x", 10_000)
	for limit, questioned := range map[string]bool{"60/min": true, "61/min": false, "6000/min": true} {
		req := &adminpb.ApplyRequest{Files: []*adminpb.File{file("1", "a", "x", limit)}, DryRun: true}
		for range 2 { // first only asked what would be done
			resp, err := s.Apply(anybody(t), req)
			if err != nil {
				t.Fatal(err)
			}
			step := resp.GetOutcomes()[0].GetSteps()[0]
			if got := len(step.GetWarnings()) > 0; got != questioned {
				t.Errorf("600/min to %s: warnings %q, want some: %v", limit, step.GetWarnings(), questioned)
			}
			req.DryRun, req.Confirmed = false, true
		}
		promote(t, s, "a", "x", 10_000)
		if _, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "a", Rule: "x", To: 1}); err != nil {
			t.Fatal(err)
		}
		req.Confirmed, req.Again = false, true
		if _, err := s.Apply(anybody(t), req); errors.Is(err, rules.ErrGuarded) != questioned {
			t.Errorf("600/min to %s: %v, want it questioned: %v", limit, err, questioned)
		}
		if _, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "a", Rule: "x", To: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

// Two rules equal in everything but their names are one rule that counts twice, also when they come one after the other.
func TestC17CopyOfAStandingRuleIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("1", "a", "x", "600/min"))
	_, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{file("2", "a", "y", "600/min")}})
	if !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), "a/y would say the same as a/x") {
		t.Errorf("got %v, want a refusal that names both", err)
	}
	apply(t, s, file("2", "a", "y", "500/min"))
}

// envoyproxy/ratelimit#653: a misspelt key was told only to a log.
func TestC16RefusedAttemptsAreInTheAuditTrail(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, file("1", "a", "x", "1/s"))
	promote(t, s, "a", "x", 100)
	for target, attempt := range map[string]func() error{
		"bad.yaml": func() error {
			_, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{
				{Name: "bad.yaml", Content: []byte("apiVersion: headgate/v1\nkind: RuleSet\ndomain: a\nrules: [{name: x, key: [], unlimied: true}]\n")},
			}})
			return err
		},
		"a": func() error {
			_, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{file("1", "a", "x", "9/s")}})
			return err
		},
		"a/none": func() error {
			_, err := s.Promote(anybody(t), &adminpb.PromoteRequest{Domain: "a", Rule: "none", To: 1})
			return err
		},
	} {
		err := attempt()
		if err == nil {
			t.Errorf("%s: not refused", target)
			continue
		}
		if r := trail(t, m)[0]; r.Revision != 0 || r.Target != target || r.Refused != err.Error() {
			t.Errorf("%s: the trail ends with %+v, want the refusal %q", target, r, err)
		}
	}
}

func TestApplyValidatesEveryFileBeforeItChangesAnything(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	_, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{
		file("good.yaml", "a", "x", "1/s"), file("bad.yaml", "b", "x", "1/m"), {Name: "worse.yaml", Content: []byte("[")},
	}})
	var invalid *rules.ValidationError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 2 || invalid.Problems[0].File != "bad.yaml" || invalid.Problems[1].File != "worse.yaml" {
		t.Errorf("got %v, want the problems of bad.yaml and worse.yaml", err)
	}
	if len(trail(t, m)) != 1 {
		t.Errorf("the trail is %+v, want the refusal alone", trail(t, m))
	}
}

func TestApplyFindsConflictsOfEveryDomainBeforeItChangesAnything(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, file("f", "b", "x", "1/s"))
	promote(t, s, "b", "x", 2500)
	_, err := s.Apply(anybody(t), &adminpb.ApplyRequest{Files: []*adminpb.File{file("1", "a", "x", "1/s"), file("2", "b", "x", "9/s")}})
	var conflict *rules.ConflictError
	if !errors.As(err, &conflict) || conflict.Rule != "b/x" {
		t.Errorf("got %v, want a conflict of b/x", err)
	}
	if last := trail(t, m)[0]; last.Revision != 0 {
		t.Errorf("revision %d was made beside a conflict", last.Revision)
	}
}

func TestApplyRefusesWhatIsNoRequest(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	for name, req := range map[string]*adminpb.ApplyRequest{
		"no file":        {},
		"too many files": {Files: make([]*adminpb.File, 1001)},
		"long message":   {Files: []*adminpb.File{file("f", "a", "x", "1/s")}, Why: &adminpb.Why{Message: strings.Repeat("x", 5000)}},
		"NUL in message": {Files: []*adminpb.File{file("f", "a", "x", "1/s")}, Why: &adminpb.Why{Message: "\x00"}},
	} {
		if _, err := s.Apply(anybody(t), req); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

func TestPromoteAndRollbackSayWhatBecameOfTheRule(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "1/s"))
	want := &adminpb.Outcome{Domain: "a", Revision: 2, Steps: []*adminpb.Step{{
		Rule: "a/x", Before: "v1 in shadow with no stable version", Candidate: 1, After: "v1 at 25% with no stable version",
	}}}
	if diff := cmp.Diff(want, promote(t, s, "a", "x", 2500), protocmp.Transform()); diff != "" {
		t.Errorf("promote: -want +got\n%s", diff)
	}
	resp, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "a", Rule: "x"})
	if err != nil {
		t.Fatal(err)
	}
	want = &adminpb.Outcome{Domain: "a", Revision: 3, Steps: []*adminpb.Step{{
		Rule: "a/x", Before: "v1 at 25% with no stable version", Candidate: 1, After: "v1 in shadow with no stable version",
	}}}
	if diff := cmp.Diff(want, resp.GetOutcome(), protocmp.Transform()); diff != "" {
		t.Errorf("rollback: -want +got\n%s", diff)
	}

	if _, err := s.Promote(anybody(t), &adminpb.PromoteRequest{Domain: "a", Rule: "y", To: 1}); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("promote of no rule: got %v, want ErrNotFound", err)
	}
	if _, err := s.Promote(anybody(t), &adminpb.PromoteRequest{Domain: "a", Rule: "x", To: 10_001}); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("promote to 100.01%%: got %v, want ErrInvalid", err)
	}
	if _, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "A/B", Rule: "x"}); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("rollback in A/B: got %v, want ErrInvalid", err)
	}
}

func TestListRulesReturnsVersionsWithTheirSpecs(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	apply(t, s, file("f", "a", "x", "1/s"), file("g", "b", "x", "1/s"))
	promote(t, s, "a", "x", 10_000)
	apply(t, s, file("f", "a", "x", "5/s"))
	promote(t, s, "a", "x", 2500)
	resp, err := s.ListRules(anybody(t), &adminpb.ListRulesRequest{Domain: "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := []*adminpb.Rule{{
		Domain: "a", Name: "x", Revision: 5, Stage: "partial", Percent: 2500, State: "v2 at 25% beside stable v1",
		Stable:    &adminpb.Version{Number: 1, Spec: `{"key":["ip"],"limits":[{"algorithm":"token-bucket","rate":"1/s"}]}`},
		Candidate: &adminpb.Version{Number: 2, Spec: `{"key":["ip"],"limits":[{"algorithm":"token-bucket","rate":"5/s"}]}`},
	}}
	if diff := cmp.Diff(want, resp.GetRules(), protocmp.Transform(), protocmp.IgnoreFields(&adminpb.Rule{}, "uid")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestActorIsWhatTheClientSaysAndUnverified(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, want string }{
		{adminpb.EscapeActor("dana@example.com"), "dana@example.com"},
		{adminpb.EscapeActor("Renée Müller"), "Renée Müller"},
		{adminpb.EscapeActor(`CORP\dana`), `CORP\dana`},
		{"100%", "100%"},
		{adminpb.EscapeActor("a\nroot"), "aroot"},
		{"%20", "unknown"},
		{"", "unknown"},
		{strings.Repeat("x", 300), strings.Repeat("x", 256)},
	} {
		s, m := setup(t)
		ctx := metadata.NewIncomingContext(anybody(t), metadata.Pairs(adminpb.ActorKey, c.value))
		if _, err := s.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", "a", "x", "1/s")}, Why: &adminpb.Why{Message: "why"}}); err != nil {
			t.Fatal(err)
		}
		if got, want := trail(t, m)[0].Actor, (rollout.Actor{Name: c.want}); got != want {
			t.Errorf("metadata %q: actor %+v, want %+v", c.value, got, want)
		}
		if trail(t, m)[0].Message != "why" {
			t.Errorf("the message is %q", trail(t, m)[0].Message)
		}
	}
}

func TestActorOfWhomTheClientSaysNothingIsWhomTheDoorTakesItFor(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	ctx := access.With(t.Context(), access.Local("ann"))
	if _, err := s.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{file("f", "a", "x", "1/s")}}); err != nil {
		t.Fatal(err)
	}
	if got, want := trail(t, m)[0].Actor, (rollout.Actor{Name: "ann"}); got != want {
		t.Errorf("the actor is %+v, want %+v", got, want)
	}
}

// awaiting is the server's side of an Await stream.
type awaiting struct {
	grpc.ServerStream
	ctx  context.Context
	sent chan *adminpb.AwaitResponse
}

func (a awaiting) Context() context.Context { return a.ctx }

func (a awaiting) Send(resp *adminpb.AwaitResponse) error {
	a.sent <- resp
	return nil
}

func TestAwaitStreamsEveryChangeUntilAllHaveAcked(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	revision := apply(t, s, file("f", "a", "x", "1/s")).GetOutcomes()[0].GetRevision()
	save := func(id string, acked int64) {
		t.Helper()
		n := rollout.Node{ID: id, Domain: "a", Connected: true, Seen: time.Now(), Sent: revision, Acked: acked}
		if err := m.SaveNodes(anybody(t), []rollout.Node{n}); err != nil {
			t.Fatal(err)
		}
	}
	save("n1", revision)
	save("n2", 0)
	stream := awaiting{ctx: anybody(t), sent: make(chan *adminpb.AwaitResponse)}
	done := make(chan error, 1)
	go func() { done <- s.Await(&adminpb.AwaitRequest{Domain: "a", Revision: revision}, stream) }()

	first := <-stream.sent
	if first.GetMissing() != 1 || len(first.GetNodes()) != 2 || first.GetNodes()[1].GetState() != "pending" || first.GetNodes()[1].GetWanted() != revision {
		t.Errorf("at first: %v", first)
	}
	save("n2", revision)
	if last := <-stream.sent; last.GetMissing() != 0 {
		t.Errorf("at last: %v", last)
	}
	if err := <-done; err != nil {
		t.Errorf("got %v at the end", err)
	}
}

func TestAwaitEndsWithItsClientAndRefusesNonsense(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	apply(t, s, file("f", "a", "x", "1/s"))
	if err := m.SaveNodes(anybody(t), []rollout.Node{{ID: "n", Domain: "a", Connected: true, Seen: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(anybody(t))
	stream := awaiting{ctx: ctx, sent: make(chan *adminpb.AwaitResponse, 1)}
	done := make(chan error, 1)
	go func() { done <- s.Await(&adminpb.AwaitRequest{Domain: "a", Revision: 1}, stream) }()
	<-stream.sent
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	stream.ctx = anybody(t)
	for _, req := range []*adminpb.AwaitRequest{{Domain: "a"}, {Domain: "", Revision: 1}, {Domain: "a", Revision: -1}, {Domain: "a", Revision: 9}} {
		if err := s.Await(req, stream); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%v: got %v, want ErrInvalid", req, err)
		}
	}
}

func TestListNodesSaysWhereEachStands(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	revision := apply(t, s, file("f", "a", "x", "1/s")).GetOutcomes()[0].GetRevision()
	now := time.Now().UTC().Truncate(time.Microsecond)
	if err := m.SaveNodes(anybody(t), []rollout.Node{
		{ID: "n1", Domain: "a", Program: "sidecar 1.0", Connected: true, Seen: now, Sent: revision, Nacked: revision, NackReason: "HG0107"},
		{ID: "n2", Domain: "b", Connected: true, Seen: now},
	}); err != nil {
		t.Fatal(err)
	}
	resp, err := s.ListNodes(anybody(t), &adminpb.ListNodesRequest{Domain: "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := []*adminpb.Node{{Id: "n1", Domain: "a", Program: "sidecar 1.0", State: "nacked", Wanted: revision, Sent: revision, Nacked: revision, NackReason: "HG0107"}}
	if diff := cmp.Diff(want, resp.GetNodes(), protocmp.Transform(), protocmp.IgnoreFields(&adminpb.Node{}, "seen")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := resp.GetNodes()[0].GetSeen().AsTime(); !got.Equal(now) {
		t.Errorf("seen %v, want %v", got, now)
	}
}
