package enforce_test

import (
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// However overrides of a key begin, end by themselves and follow one another, its caller has at most the difference of
// the numbers more, and the same where they are the same; and nobody else notices.
func overrideBudget(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	l := newLife(g, true)
	normal := l.rule.Stable.Spec.Limits[0]
	s, without := newStage(open(), l.rule), newStage(open(), l.rule)
	look := func() enforce.Decision {
		req := request("a")
		req.Hits = 0
		return s.again(call{req: req})
	}
	rate, until := normal.Rate, s.wall()
	for range n {
		for range rapid.IntRange(1, 3).Draw(t, "calls") {
			c := call{after: pick(g, "after", 0, 0, 1, normal.Rate.Window/7, normal.Rate.Window), req: request(pick(g, "key", "a", "a", "b"))}
			c.req.Hits = pick(g, "hits", int64(1), 1, 2)
			got, want := s.decide(c), without.decide(c)
			if c.req.Header["X-Api-Key"][0] == "b" && (got.Allowed != want.Allowed || got.Left != want.Left) {
				t.Fatalf("%d left for another key, and %d without the overrides", got.Left, want.Left)
			}
		}
		if !s.wall().Before(until) {
			rate = normal.Rate
		}
		was, before := rate, look()
		switch pick(g, "change", "begin", "end", "expire") {
		case "begin":
			rate, until = g.rate(normal.Algorithm, normal.Rate.Window), s.wall().Add(365*24*time.Hour)
			s.override(named{"r", []string{"a"}, rules.Override{Rate: rate, Until: until}})
		case "end":
			rate = normal.Rate
			s.override()
		case "expire": // without a push
			rate, s.ahead = normal.Rate, s.ahead+365*24*time.Hour
		}
		after := look()
		if after.Left > before.Left+max(0, rate.Burst-was.Burst) && was.Amount > 0 || rate == was && after.Left != before.Left {
			t.Fatalf("%d of %s left, and %d of %s after the change", before.Left, was, after.Left, rate)
		}
		longest := max(2*rate.Window, time.Duration(rate.Burst)*rate.Window)
		if after.Left == 0 && rate.Amount > 0 && was.Amount > 0 && s.again(call{req: request("a")}).Wait > longest {
			t.Fatalf("from %s to %s: a wait of more than %v", was, rate, longest)
		}
	}
}

// overridden is a stage with one rule, and an override of the key "k".
func overridden(l limittest.Limiter, r *rules.Rule, limit string, rate rules.Rate, ends time.Duration) *stage {
	s := newStage(l, r)
	s.override(named{r.Name, []string{"k"}, rules.Override{Limit: limit, Rate: rate, Until: s.wall().Add(ends)}})
	return s
}

// 3 a day are spent, 10 a day are granted for an hour, of which 4 more are spent.
func TestOverrideBeginsAndEndsWithWhatWasSpent(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		r := rule("r", version(t, 1, "3/d"), nil)
		s := newStage(l, r)
		s.calls("k", 3)
		s.override(named{"r", []string{"k"}, rules.Override{Rate: rate(t, "10/d"), Until: s.wall().Add(time.Hour)}})
		s.wantLeft(t, "10 a day, 3 spent", 6)
		s.calls("k", 3)
		if n := s.calls("other", 4); n != 3 {
			t.Errorf("%d of another key's calls admitted, want 3", n)
		}
		s.ahead = time.Hour - time.Microsecond
		s.wantLeft(t, "a moment before its end", 2)
		s.ahead = time.Hour
		s.wantRefused(t, "after its end, by itself", 8*time.Hour) // of the 8 as many count as 3 a day can hold
		s.override(named{"r", []string{"k"}, rules.Override{Rate: rate(t, "10/d"), Until: s.wall().Add(time.Hour)}})
		s.wantLeft(t, "begun again: refused calls left no trace", 1)
	})
}

func TestLowerOverrideLocksNobodyOutForLong(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("r", version(t, 1, "5000/min"), nil))
		s.calls("k", 1000)
		s.override(named{"r", []string{"k"}, rules.Override{Rate: rate(t, "1/min"), Until: s.wall().Add(time.Hour)}})
		s.wantRefused(t, "1 a minute, 1000 spent", time.Minute)
		s.pass(time.Minute)
		s.wantLeft(t, "a minute later", 0)
	})
}

func TestOverrideOfZeroRefusesAndForgetsNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("r", version(t, 1, "3/d"), nil))
		s.calls("k", 2)
		s.override(named{"r", []string{"k"}, rules.Override{Rate: rate(t, "0/s"), Until: s.wall().Add(time.Minute)}})
		if n := s.calls("k", 2); n != 0 {
			t.Errorf("%d admitted, want none", n)
		}
		s.ahead = time.Minute
		s.wantLeft(t, "after its end", 0)
	})
}

// A counter read as one that holds nothing would be forgotten when a freeze lets pass what is charged to it.
func TestOverrideOfZeroChargesWhatAFreezeLetsPass(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("r", version(t, 1, "3/d"), nil))
		s.calls("k", 1)
		s.freeze(rules.Freeze{Until: s.wall().Add(time.Minute)})
		s.override(named{"r", []string{"k"}, rules.Override{Rate: rate(t, "0/s"), Until: s.wall().Add(time.Minute)}})
		s.calls("k", 1)
		s.ahead = time.Minute
		s.wantLeft(t, "after the end of both", 0)
	})
}

func TestUnlimitedOverrideLeavesTheCounterAlone(t *testing.T) {
	t.Parallel()
	s := overridden(memlimit.New(), rule("r", version(t, 1, "3/d"), nil), "", rules.Rate{Unlimited: true}, time.Hour)
	if n := s.calls("k", 10); n != 10 {
		t.Errorf("%d of 10 admitted", n)
	}
	s.ahead = time.Hour
	s.wantLeft(t, "after its end", 2)
}

func TestOverrideIsOfTheLimitWithItsNameAndWindow(t *testing.T) {
	t.Parallel()
	several := version(t, 1, "second=1/s", "day=3/d")
	for _, c := range []struct {
		name        string
		limit, rate string
		want        int // admitted of 10 at once
	}{
		{"the other limit stays", "day", "5/d", 1},
		{"no such limit", "hour", "5/s", 1},
		{"another window", "second", "5/min", 1},
		{"the limit", "second", "5/s", 3},
	} {
		s := overridden(memlimit.New(), rule("r", several, nil), c.limit, rate(t, c.rate), time.Hour)
		if n := s.calls("k", 10); n != c.want {
			t.Errorf("%s: %d admitted, want %d", c.name, n, c.want)
		}
	}
}

// A version that came after the override may count in a sliding window, which has no burst.
func TestOverrideOfABucketHoldsForASlidingWindowWithItsAmount(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := overridden(l, rule("r", sliding(t, 1, "3/d"), nil), "", rate(t, "5/d burst 9"), time.Hour)
		if n := s.calls("k", 10); n != 5 {
			t.Errorf("%d admitted, want 5", n)
		}
	})
}

func TestOverrideReplacesWhateverThePlanSays(t *testing.T) {
	t.Parallel()
	v := byPlan(t, 1, "2/d", map[string]string{"pro": "9/d", "blocked": "0/d", "internal": "unlimited"})
	s := overridden(memlimit.New(), rule("r", v, nil), "", rate(t, "4/d"), time.Hour)
	for i, plan := range []string{"pro", "blocked", "internal", ""} {
		if d := s.callAs(plan); !d.Allowed || d.Left != 3-int64(i) {
			t.Errorf("as %q: allowed %v, %d left; want %d of 4", plan, d.Allowed, d.Left, 3-i)
		}
	}
	if s.callAs("internal").Allowed {
		t.Error("a fifth call of 4 is allowed")
	}
}

// What is judged has the override too, so that its would-be refusals are what the promotion does.
func TestOverrideHoldsForTheCandidateAsWell(t *testing.T) {
	t.Parallel()
	s := overridden(memlimit.New(), rule("r", version(t, 1, "9/d"), version(t, 2, "1/d")), "", rate(t, "3/d"), time.Hour)
	if got := s.would(4); got != "aaar" {
		t.Errorf("the candidate says %s, want aaar", got)
	}
}

// Only the first of two overrides of one limit and key that are in force counts.
func TestFirstOfTwoOverridesInForceCounts(t *testing.T) {
	t.Parallel()
	s := newStage(memlimit.New(), rule("r", version(t, 1, "3/d"), nil))
	first := named{"r", []string{"k"}, rules.Override{Rate: rate(t, "5/d"), Until: s.wall().Add(time.Hour)}}
	second := named{"r", []string{"k"}, rules.Override{Rate: rate(t, "9/d"), Until: s.wall().Add(2 * time.Hour)}}
	s.override(first, second)
	s.wantLeft(t, "the first", 4)
	s.ahead = time.Hour
	s.wantLeft(t, "the second, after the end of the first", 7)
}

// A rule without overrides must not pay for those that have some: no clock is read for it and nothing allocated.
func TestRulesWithoutFreezesAndOverridesReadNoClock(t *testing.T) {
	t.Parallel()
	plain, with := rule("plain", version(t, 1, "1000/s"), nil), rule("with", version(t, 1, "1000/s"), nil)
	with.Stable.Spec.Match.Method = []string{"POST"}
	with.Overrides = []rules.Override{{Rate: rate(t, "5/s"), Until: time.Now().Add(time.Hour)}}
	reads := 0
	e := enforce.NewEngine(memlimit.New(), nobody{}, slog.New(slog.DiscardHandler), enforce.WithClock(func() time.Time { reads++; return time.Now() }))
	e.Swap(rules.NewIndex(rules.Domain{Name: "d"}, []*rules.Rule{plain, with}))
	reads = 0
	e.Decide(t.Context(), request("k"))
	if reads != 0 {
		t.Errorf("the clock was read %d times for a rule without overrides", reads)
	}
	post := request("k")
	post.Method = "POST"
	e.Decide(t.Context(), post)
	if reads != 1 {
		t.Errorf("the clock was read %d times for a rule with overrides, want once a request", reads)
	}
}
