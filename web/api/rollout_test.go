package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
)

// judged is what was counted of every rule: its first version judged a thousand requests, and would have refused some.
type judged struct{ refused int64 }

func (j judged) Series(_ context.Context, q tally.Query) ([]tally.Point, error) {
	p := tally.Point{Domain: q.Domain, UID: q.UIDs[0], Version: 1, Start: q.From}
	p.Counts[tally.WhatIfCell(tally.WouldRefuse, tally.BesideNone, false)] = j.refused
	p.Counts[tally.WhatIfCell(tally.WouldAllow, tally.BesideNone, false)] = 1000 - j.refused
	return []tally.Point{p}, nil
}

func (judged) Sources(context.Context) ([]tally.Progress, error) { return nil, nil }

func (judged) Missing(_ context.Context, _, _ time.Time) ([]tally.Missing, error) { return nil, nil }

func setupJudged(t *testing.T, refused int64) *api.Server {
	t.Helper()
	m := rollouttest.New()
	s := api.NewServer(rollout.NewService(m, time.Now).WithTallies(judged{refused}), api.Options{Program: "controlplane test"})
	apply(t, s, file("1", "a", "x", "1/s"))
	return s
}

func TestPlanIsStartedAndShown(t *testing.T) {
	t.Parallel()
	s := setupJudged(t, 1)
	resp, err := s.Promote(anybody(t), &adminpb.PromoteRequest{
		Domain: "a", Rule: "x", Plan: "shadow 1h, +40% 15m", Gates: []string{"maxWouldRefuse 2%"}, OnTrip: "rollback",
	})
	if err != nil || !strings.Contains(resp.GetOutcome().GetSteps()[0].GetAfter(), "v1 in shadow, step 1 of 4, with no stable version; plan: shadow 1h, 40% 15m, 80% 15m, 100%; gates maxWouldRefuse 2%; on a tripped gate rollback") {
		t.Fatalf("promote: %v, %v", resp, err)
	}
	got, err := s.GetRollout(as(t, access.Viewer, "a"), &adminpb.GetRolloutRequest{Domain: "a", Rule: "x"})
	if err != nil {
		t.Fatal(err)
	}
	minute := func(n time.Duration) *durationpb.Duration { return durationpb.New(n * time.Minute) }
	want := &adminpb.Rollout{
		Standing: "running", Revision: 2, BoundBoth: 1000,
		Evidence: &adminpb.Evidence{Judged: 1000, Refusing: 1, Compared: 1000, NewlyRefused: 1},
		Versions: []*adminpb.VersionCounts{{Version: 1, Role: "candidate", Judged: 1000, WouldRefuse: 1}},
		Plan: &adminpb.PlanState{
			Steps:       []*adminpb.PlanStep{{Hold: minute(60)}, {Percent: 4000, Hold: minute(15)}, {Percent: 8000, Hold: minute(15)}, {Percent: 10000}},
			Gates:       []*adminpb.GateState{{Name: "maxWouldRefuse", Limit: 200, Verdict: "pass", Of: 1000}},
			MinRequests: 100, OnTrip: "rollback", By: "unknown", Begun: 2, Waits: []string{"there is no sidecar"},
		},
	}
	ignored := []cmp.Option{
		protocmp.Transform(), protocmp.IgnoreFields(&adminpb.Rollout{}, "rule", "since"), protocmp.IgnoreFields(&adminpb.GateState{}, "is"),
		protocmp.IgnoreFields(&adminpb.Evidence{}, "from", "to", "would_refuse", "delta"), protocmp.IgnoreFields(&adminpb.PlanState{}, "elapsed"),
	}
	if diff := cmp.Diff(want, got.GetRollout(), ignored...); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if i := got.GetRollout().GetEvidence().GetWouldRefuse(); i.GetEstimate() != 0.001 || i.GetLow() <= 0 || i.GetHigh() > 0.01 {
		t.Errorf("the interval of 1 in 1000 is %v", i)
	}
}

func TestPromoteSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	s := setupJudged(t, 100)
	for text, c := range map[string]struct {
		req  *adminpb.PromoteRequest
		kind error
	}{
		"exclude each other":                    {&adminpb.PromoteRequest{To: 1, Next: true}, rules.ErrInvalid},
		"next and plan exclude":                 {&adminpb.PromoteRequest{To: 1, Plan: "100%"}, rules.ErrInvalid},
		"on_trip is for a plan":                 {&adminpb.PromoteRequest{To: 1, OnTrip: "pause"}, rules.ErrInvalid},
		"a plan only goes up":                   {&adminpb.PromoteRequest{Plan: "2% 1m, 1%"}, rules.ErrInvalid},
		"too long":                              {&adminpb.PromoteRequest{Plan: strings.Repeat("1% 1m,", 1000)}, rules.ErrInvalid},
		"is none":                               {&adminpb.PromoteRequest{To: 1, Gates: []string{"x 1%"}}, rules.ErrInvalid},
		"no plan runs":                          {&adminpb.PromoteRequest{Next: true}, rules.ErrConflict},
		"wants a message":                       {&adminpb.PromoteRequest{To: 1, ForceGate: true}, rules.ErrInvalid},
		"maxWouldRefuse 2%: tripped, it is 10%": {&adminpb.PromoteRequest{To: 1, Gates: []string{"maxWouldRefuse 2%"}}, rules.ErrGuarded},
	} {
		c.req.Domain, c.req.Rule = "a", "x"
		if _, err := s.Promote(anybody(t), c.req); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %v with %q", c.req, err, c.kind, text)
		}
	}
	if _, err := s.Promote(anybody(t), &adminpb.PromoteRequest{
		Domain: "a", Rule: "x", To: 1, Gates: []string{"maxWouldRefuse 2%"}, ForceGate: true, Why: &adminpb.Why{Message: "meant"},
	}); err != nil {
		t.Errorf("by force: %v", err)
	}
}

// rollouts is the stream of a client that leaves after the second message.
type rollouts struct {
	grpc.ServerStream
	ctx   context.Context
	leave context.CancelFunc
	got   []*adminpb.Rollout
}

func (r *rollouts) Context() context.Context { return r.ctx }

func (r *rollouts) Send(m *adminpb.WatchRolloutResponse) error {
	if r.got = append(r.got, m.GetRollout()); len(r.got) == 2 {
		r.leave()
	}
	return nil
}

func TestRolloutIsWatched(t *testing.T) {
	t.Parallel()
	s := setupJudged(t, 1)
	ctx, leave := context.WithCancel(anybody(t))
	stream := &rollouts{ctx: ctx, leave: leave}
	if err := s.WatchRollout(&adminpb.WatchRolloutRequest{Domain: "a", Rule: "x"}, stream); !errors.Is(err, context.Canceled) || len(stream.got) != 2 {
		t.Errorf("%v after %d messages, want that it goes on until the client leaves", err, len(stream.got))
	}
	if err := s.WatchRollout(&adminpb.WatchRolloutRequest{Domain: "a", Rule: "none"}, &rollouts{ctx: anybody(t)}); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("of a rule that never was: %v", err)
	}
	if _, err := s.GetRollout(as(t, access.Viewer, "b"), &adminpb.GetRolloutRequest{Domain: "a", Rule: "x"}); !errors.Is(err, rules.ErrForbidden) {
		t.Errorf("of another's domain: %v", err)
	}
}
