package enforce_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Where no other rule refuses, every version of a frozen rule says what it says to the same stream without a freeze, one
// for one, from the moment at which it is frozen; and nobody is refused. Except where one counter serves both sides of a
// cohort, of which the stable then sees one.
func frozenJudgement(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	r := g.rule("frozen")
	if r.Candidate != nil && r.Stable != nil {
		r.Candidate.Spec = g.edited(r.Stable.Spec)
	}
	frozen, free := newStage(open(), r), newStage(open(), r)
	overrides := g.overrides([]*rules.Rule{r})
	frozen.override(overrides...)
	free.override(overrides...)
	calls := g.calls(n)
	from := rapid.IntRange(0, len(calls)-1).Draw(t, "frozen at")
	for i, c := range calls {
		if i == from {
			frozen.freeze(rules.Freeze{Rule: pick(g, "freeze", "", "frozen"), Until: frozen.wall().Add(365 * 24 * time.Hour)})
		}
		got, want := frozen.decide(c), free.decide(c)
		if i >= from {
			wantNothingBinds(t, got)
		}
		for _, number := range []int64{1, 2} {
			if r.Percent > 0 && r.Candidate != nil && sharedByCohort(r, c.req) {
				continue
			}
			if got, want := refusedBy(got, number, "frozen"), refusedBy(want, number, "frozen"); got != want {
				t.Fatalf("call %d: v%d says %s, and %s without the freeze of call %d", i, number, got, want, from)
			}
		}
	}
}

func wantNothingBinds(t *rapid.T, d enforce.Decision) {
	if !d.Allowed || d.Rule != "" {
		t.Fatalf("allowed %v, %q speaks; want nothing to bind", d.Allowed, d.Rule)
	}
	for _, o := range d.Outcomes {
		if !o.WhatIf || o.Beside != tally.BesideNone || o.Outcome != tally.WouldAllow && o.Outcome != tally.WouldRefuse {
			t.Fatalf("%+v, want what-if, beside nothing", o)
		}
	}
}

// After a freeze, which ends by itself, nobody has more left than if it had never been: all that it let pass is charged,
// and whichever version binds then meets it.
func endOfFreeze(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	l := newLife(g, true)
	for g.oneIn(2, "changed before") {
		l.change()
	}
	frozen, free := newStage(open(), l.rule), newStage(open(), l.rule)
	window := l.rule.Stable.Spec.Limits[0].Rate.Window
	play := func(calls int, check func(enforce.Decision)) {
		for range calls {
			c := call{after: pick(g, "after", 0, 0, 1, window/7, window/2, window), req: request(pick(g, "key", "a", "a", "b"))}
			c.req.Hits = pick(g, "hits", int64(1), 1, 2, 3, 0)
			check(frozen.decide(c))
			free.decide(c)
		}
	}
	play(rapid.IntRange(0, n/3).Draw(t, "before"), func(enforce.Decision) {})
	frozen.freeze(rules.Freeze{Until: frozen.wall().Add(100 * 24 * time.Hour), IncludingClosed: true})
	play(rapid.IntRange(1, n/3).Draw(t, "during"), func(d enforce.Decision) { wantNothingBinds(t, d) })
	frozen.ahead += 100 * 24 * time.Hour
	after := *l
	after.change()
	frozen.swap(after.rule)
	free.swap(after.rule)
	for _, key := range []string{"a", "b"} {
		req := request(key)
		req.Hits = 0
		if is, was := frozen.again(call{req: req}), free.again(call{req: req}); is.Rule != "r" || is.Left > was.Left {
			t.Fatalf("%d left of %s for %s (%q binds), and %d without the freeze", is.Left, after.binding(req), key, is.Rule, was.Left)
		}
	}
}

// Of a limit of 3 a day two calls are made, then five during a freeze of 10 minutes, and one after it.
func TestFreezeRefusesNobodyAndChargesWhatItLetsPass(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("r", version(t, 1, "3/d"), nil))
		s.calls("k", 2)
		s.freeze(rules.Freeze{Until: s.wall().Add(10 * time.Minute)})
		said := ""
		for range 5 {
			d := s.call("k")
			if !d.Allowed || d.Rule != "" {
				t.Errorf("during the freeze: allowed %v, %q speaks; want nothing to bind", d.Allowed, d.Rule)
			}
			said += refusedBy(d, 1, "r")
		}
		if said != "arrrr" {
			t.Errorf("judged %s, want arrrr: 2 of 3 were spent before", said)
		}
		s.pass(10*time.Minute - time.Microsecond)
		if !s.call("k").Allowed {
			t.Error("refused a microsecond before the end of the freeze")
		}
		s.pass(time.Microsecond)
		s.wantRefused(t, "a tick of a second later, when the freeze has ended by itself", 8*time.Hour-time.Second)
	})
}

// The what-if counter of a freeze is its own: one left by a freeze before would not know what was admitted between.
func TestEachFreezeIsJudgedFromWhatWasAdmitted(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("r", version(t, 1, "4/d"), nil))
		freeze := func() string {
			s.freeze(rules.Freeze{Until: s.wall().Add(time.Minute)})
			said := refusedBy(s.call("k"), 1, "r")
			s.pass(time.Minute)
			return said
		}
		got := []string{freeze()}
		s.calls("k", 3)
		got = append(got, freeze())
		if diff := cmp.Diff([]string{"a", "r"}, got); diff != "" {
			t.Errorf("the first call, and the fifth of 4 a day (-want +got):\n%s", diff)
		}
	})
}

// A frozen candidate charges what it let pass to the stable's counters too, and the other way round.
func TestFreezeOfATrialChargesAllVersions(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		daily, hourly := version(t, 1, "10/d"), version(t, 2, "8/h")
		s := newStage(l, half(t, daily, hourly))
		s.freeze(rules.Freeze{Rule: "r", Until: s.wall().Add(time.Minute)})
		s.calls("in", 3)
		s.calls("out", 3)
		s.freeze()
		s.swap(rule("r", daily, nil))
		if d := s.call("in"); d.Left != 6 {
			t.Errorf("rolled back: %d left of 10, want 6 after the 3 of the cohort", d.Left)
		}
		s.swap(rule("r", hourly, nil))
		if d := s.call("out"); d.Left != 4 {
			t.Errorf("promoted: %d left of 8, want 4 after the 3 outside of the cohort", d.Left)
		}
	})
}

// Charged with the stable's numbers, the counter would hold no more than 3 of what the candidate must find again.
func TestFrozenCandidateChargesWithItsOwnNumbers(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, half(t, version(t, 1, "3/d"), version(t, 2, "100/d")))
		s.freeze(rules.Freeze{Until: s.wall().Add(time.Minute)})
		s.calls("in", 50)
		s.freeze()
		if d := s.call("in"); d.Left != 49 {
			t.Errorf("%d left of 100 after the freeze, want 49", d.Left)
		}
	})
}

func TestFreezeLeavesOtherRulesAndClosedOnesInForce(t *testing.T) {
	t.Parallel()
	closed := version(t, 1, "0/s")
	closed.Spec.Failure.Mode = rules.FailClosed
	for _, c := range []struct {
		name   string
		freeze rules.Freeze
		rules  []*rules.Rule
		want   string // the rule that refuses
	}{
		{"the domain", rules.Freeze{}, []*rules.Rule{rule("r", version(t, 1, "0/s"), nil)}, ""},
		{"the rule", rules.Freeze{Rule: "r"}, []*rules.Rule{rule("r", version(t, 1, "0/s"), nil)}, ""},
		{"another rule", rules.Freeze{Rule: "s"}, []*rules.Rule{rule("r", version(t, 1, "0/s"), nil)}, "r"},
		{"one of two", rules.Freeze{Rule: "r"}, []*rules.Rule{rule("r", version(t, 1, "0/s"), nil), rule("s", version(t, 1, "0/s"), nil)}, "s"},
		{"a closed one", rules.Freeze{}, []*rules.Rule{rule("r", closed, nil)}, "r"},
		{"a closed one, said so", rules.Freeze{IncludingClosed: true}, []*rules.Rule{rule("r", closed, nil)}, ""},
		{"a closed one beside an open candidate", rules.Freeze{}, []*rules.Rule{rule("r", closed, version(t, 2, "0/s"))}, "r"},
	} {
		s := newStage(memlimit.New(), c.rules...)
		c.freeze.Until = s.wall().Add(time.Minute)
		s.freeze(c.freeze)
		if d := s.call("k"); d.Rule != c.want || d.Allowed != (c.want == "") {
			t.Errorf("%s: allowed %v, %q speaks; want %q to refuse", c.name, d.Allowed, d.Rule, c.want)
		}
	}
}

// What waits for no counter, and what the store cannot answer, refuses nobody either.
func TestFrozenRuleIsAllowedWhereverItWouldRefuse(t *testing.T) {
	t.Parallel()
	closed, local, missing := version(t, 1, "3/d"), version(t, 1, "3/d"), version(t, 1, "3/d")
	closed.Spec.Failure.Mode = rules.FailClosed
	local.Spec.Failure = rules.Failure{Mode: rules.FailLocal, Local: rules.Rate{Window: time.Second}}
	missing.Spec.Key, missing.Spec.MissingKey = []rules.KeySource{source(t, "header:x-tenant")}, rules.MissingRefuse
	twice := request("k")
	twice.Header["X-Api-Key"] = []string{"k", "l"}
	for _, c := range []struct {
		name    string
		store   enforce.Limiter
		version *rules.Version
		req     *rules.Request
		want    tally.Outcome
	}{
		{"closed, without the store", broken{}, closed, request("k"), tally.Unknown},
		{"local, without the store", broken{}, local, request("k"), tally.Unknown},
		{"open, without the store", broken{}, version(t, 1, "3/d"), request("k"), tally.Unknown},
		{"a key that is missing", memlimit.New(), missing, request("k"), tally.WouldRefuse},
		{"a key that is there twice", memlimit.New(), version(t, 1, "3/d"), twice, tally.WouldRefuse},
		{"a cost that never fits", memlimit.New(), version(t, 1, "0/d"), request("k"), tally.WouldRefuse},
	} {
		counted := counts{}
		e := enforce.NewEngine(c.store, counted, slog.New(slog.DiscardHandler), enforce.WithLocal(memlimit.New()))
		freeze := rules.Freeze{Until: time.Now().Add(time.Hour), IncludingClosed: true}
		e.Swap(rules.NewIndex(rules.Domain{Name: "d", Freezes: []rules.Freeze{freeze}}, []*rules.Rule{rule("r", c.version, nil)}))
		if d := e.Decide(t.Context(), c.req); !d.Allowed {
			t.Errorf("%s: refused by %q, %s", c.name, d.Rule, d.Reason)
		}
		if diff := cmp.Diff(counts{"r v1 " + c.want.String(): 1}, counted); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// The descriptors of one call may be on both sides of the cohort; a frozen version still has one outcome for a key.
func TestFrozenVersionIsJudgedOnceForAKey(t *testing.T) {
	t.Parallel()
	byTenant := version(t, 2, "1/d")
	byTenant.Spec.Key = []rules.KeySource{source(t, "attr:tenant")}
	r := half(t, version(t, 1, "10/d"), byTenant)
	s := newStage(memlimit.New(), r)
	s.freeze(rules.Freeze{Until: s.wall().Add(time.Minute)})
	in, out := request("in"), request("out")
	in.Attr, out.Attr = map[string]string{"tenant": "t"}, map[string]string{"tenant": "t"}
	for i, want := range []tally.Outcome{tally.WouldAllow, tally.WouldRefuse} {
		d := s.engine.DecideAll(t.Context(), []*rules.Request{out, in})
		got := map[int64][]tally.Outcome{}
		for _, o := range d.Outcomes {
			got[o.Version.Number] = append(got[o.Version.Number], o.Outcome)
		}
		if diff := cmp.Diff(map[int64][]tally.Outcome{1: {tally.WouldAllow, tally.WouldAllow}, 2: {want}}, got); diff != "" {
			t.Errorf("call %d: outcomes by version (-want +got):\n%s", i+1, diff)
		}
	}
}

func TestBreakGlassFreezeSurvivesRevisionsAndEndsByItself(t *testing.T) {
	t.Parallel()
	none := version(t, 1, "0/s")
	s := newStage(memlimit.New(), rule("r", none, nil))
	until := s.wall().Add(time.Hour)
	must(t, s.engine.Freeze("d", rules.Freeze{Rule: "r", Until: until}))
	must(t, s.engine.Freeze("later", rules.Freeze{Until: until}))
	s.freeze(rules.Freeze{Rule: "r", Until: s.wall().Add(time.Minute)}) // a new revision
	want := []enforce.FreezeInForce{
		{Domain: "d", Freeze: rules.Freeze{Rule: "r", Until: s.wall().Add(time.Minute)}},
		{Domain: "d", Freeze: rules.Freeze{Rule: "r", Until: until}, Here: true},
		{Domain: "later", Freeze: rules.Freeze{Until: until}, Here: true},
	}
	if diff := cmp.Diff(want, s.engine.Freezes()); diff != "" {
		t.Errorf("freezes in force (-want +got):\n%s", diff)
	}
	s.pass(time.Hour - time.Microsecond)
	if d := s.call("k"); !d.Allowed {
		t.Error("refused before the end of the freeze that was made here")
	}
	s.pass(time.Microsecond)
	if d := s.call("k"); d.Allowed {
		t.Error("allowed after the end of all freezes")
	}
	if got := s.engine.Freezes(); len(got) > 0 {
		t.Errorf("in force after their end: %+v", got)
	}
}

func TestUnfreezeEndsOnlyWhatWasMadeHere(t *testing.T) {
	t.Parallel()
	s := newStage(memlimit.New(), rule("r", version(t, 1, "0/s"), nil))
	until := s.wall().Add(time.Minute)
	s.freeze(rules.Freeze{Rule: "r", Until: until})
	must(t, s.engine.Freeze("d", rules.Freeze{Until: until}))
	must(t, s.engine.Freeze("d", rules.Freeze{Until: until.Add(time.Minute)})) // in place of it
	if s.engine.Unfreeze("d", "r") {
		t.Error("ended the freeze of the rule, which came with the domain")
	}
	if !s.engine.Unfreeze("d", "") || s.engine.Unfreeze("d", "") {
		t.Error("the freeze of the domain did not end, or twice")
	}
	if !s.call("k").Allowed {
		t.Error("refused, want the freeze of the domain's own still in force")
	}
	s.pass(time.Minute)
	if s.call("k").Allowed {
		t.Error("allowed after the end of that")
	}
}

func TestFreezeHasBounds(t *testing.T) {
	t.Parallel()
	s := newStage(memlimit.New(), rule("r", version(t, 1, "0/s"), nil))
	for _, until := range []time.Time{{}, s.wall(), s.wall().Add(-time.Hour), s.wall().Add(rules.MaxFreeze + time.Microsecond)} {
		if err := s.engine.Freeze("d", rules.Freeze{Until: until}); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("until %v: %v, want ErrInvalid", until, err)
		}
	}
	if s.call("k").Allowed {
		t.Error("allowed by a freeze that was refused")
	}
	must(t, s.engine.Freeze("d", rules.Freeze{Until: s.wall().Add(rules.MaxFreeze)}))
}

// The clock may be set back by more than it was ahead when the rules came.
func TestFreezeIsInForceAgainWhenTheClockIsSetRight(t *testing.T) {
	t.Parallel()
	s := newStage(memlimit.New(), rule("r", version(t, 1, "0/s"), nil))
	until := s.wall().Add(time.Minute)
	s.ahead = time.Hour
	s.freeze(rules.Freeze{Until: until})
	if s.call("k").Allowed {
		t.Error("allowed after the end of the freeze")
	}
	s.ahead = 0
	if !s.call("k").Allowed {
		t.Error("refused, though by the clock as it is now the freeze has not ended")
	}
}

// Freezes, revisions and requests at once, under the race detector.
func TestFreezesMayChangeWhileRequestsAreDecided(t *testing.T) {
	t.Parallel()
	list := []*rules.Rule{rule("r", version(t, 1, "1000000/s"), nil)}
	e := enforce.NewEngine(memlimit.New(), nobody{}, slog.New(slog.DiscardHandler))
	e.Swap(rules.NewIndex(rules.Domain{Name: "d"}, list))
	var all sync.WaitGroup
	for _, act := range []func(){
		func() { e.Swap(rules.NewIndex(rules.Domain{Name: "d"}, list)) },
		func() {
			if err := e.Freeze("d", rules.Freeze{Until: time.Now().Add(time.Hour)}); err != nil {
				t.Error(err)
			}
		},
		func() { e.Unfreeze("d", "") },
		func() { e.Freezes() },
		func() { e.Decide(context.Background(), request("k")) },
	} {
		all.Go(func() {
			for range 200 {
				act()
			}
		})
	}
	all.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
