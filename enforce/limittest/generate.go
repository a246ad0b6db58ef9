package limittest

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
)

const (
	// A sequence has from two to mostRequests requests: short ones meet more rule sets in the same time.
	mostRequests = 10
	// lifetimesEach is how many sequences there are to one whose lifetimes are looked at too: a look is a round trip.
	lifetimesEach = 8
)

// generated compares the limiter with the model over generated sequences.
func generated(ctx context.Context, l Limiter, sequences int) error {
	seed := [32]byte{}
	_, _ = rand.Read(seed[:])
	random := mathrand.New(mathrand.NewChaCha8(seed)) //nolint:gosec // test data, not a secret
	for s := range sequences {
		keeper, ok := l.(Keeper)
		if !ok || s%lifetimesEach != 0 {
			keeper = nil
		}
		if err := sequence(ctx, l, keeper, newGenerator(random)); err != nil {
			return fmt.Errorf("sequence %d of seed %x, %w", s, seed, err)
		}
	}
	return nil
}

func sequence(ctx context.Context, l Limiter, keeper Keeper, g *generator) error {
	model := map[enforce.Counter]enforce.State{}
	now := int64(Start)
	for n := range 2 + g.random.IntN(mostRequests-1) {
		now = g.next(now)
		charges := g.request()
		want := enforce.Settle(charges, now, func(c enforce.Counter) (enforce.State, bool) {
			st, ok := model[c]
			return st, ok
		})
		for _, w := range want.Writes {
			model[w.Counter] = w.State
		}
		g.mark(now, charges, want)
		before := time.Now()
		got, err := l.DecideAt(ctx, now, charges)
		if err != nil {
			return err
		}
		if !slices.Equal(want.Verdicts, got) {
			return fmt.Errorf("request %d, at %d µs, differs from the model (-want +got):\n%s\ncharges: %+v",
				n, now-Start, cmp.Diff(want.Verdicts, got), charges)
		}
		if keeper != nil {
			if err := checkLifetimes(ctx, keeper, now, before, want.Writes); err != nil {
				return fmt.Errorf("request %d, at %d µs: %w\ncharges: %+v", n, now-Start, err, charges)
			}
		}
	}
	return nil
}

// generator makes requests over a few rules, most with a stable and a candidate version that share some counters.
type generator struct {
	random *mathrand.Rand
	rules  []generatedRule
	// unsteady: every request has other numbers and may be on the other side of the cohort, and time may go back. Only
	// with short windows, so that the whole sequence fits in the hour for which limiters keep counters when instants are
	// given: what has been forgotten cannot be asked again. The other sequences run
	// long enough for counters to expire in memory; in Redis, lifetimes are compared instead.
	unsteady bool
	marks    []mark
}

// mark is an instant at which a verdict changes.
type mark struct{ at, tick, window int64 } // in microseconds

type generatedRule struct {
	window int64
	tick   time.Duration
	limits []generatedLimit
	// inCohort: the candidate binds. moved: the candidate has another window or key than the stable. shared: one counter
	// serves both sides of the cohort.
	inCohort, moved, shared bool
	only                    int // 1: there is no candidate, 2: there is no stable
}

type generatedLimit struct {
	actual, stable, candidate, other enforce.Counter
	numbers                          [2]enforce.Limit // of the stable and the candidate, unless they change
	sliding                          [2]bool
}

// windows in seconds, odd ones among them; 20,000 s is counted in whole seconds. The first shortWindows are short.
var windows = []int64{1, 7, 17, 60, 3600, 20_000}

const shortWindows = 4

func newGenerator(random *mathrand.Rand) *generator {
	g := &generator{random: random, unsteady: random.IntN(2) == 0}
	choice := windows
	if g.unsteady {
		choice = windows[:shortWindows]
	}
	for range 1 + random.IntN(3) {
		g.rules = append(g.rules, g.newRule(time.Duration(choice[random.IntN(len(choice))])*time.Second))
	}
	return g
}

func (g *generator) newRule(window time.Duration) generatedRule {
	tick := time.Microsecond
	switch {
	case window > 10_000*time.Second:
		tick = time.Second
	case window > 10*time.Second:
		tick = time.Millisecond
	}
	r := generatedRule{
		window: int64(window / tick), tick: tick,
		inCohort: g.oneIn(2), moved: g.oneIn(4), shared: g.oneIn(4), only: max(0, g.random.IntN(8)-5),
	}
	for range 1 + g.random.IntN(2) {
		l := generatedLimit{actual: NewCounter(), stable: NewCounter(), candidate: NewCounter(), other: NewCounter()}
		l.sliding[0] = g.oneIn(2)
		l.sliding[1] = l.sliding[0]
		if r.moved { // another algorithm is another counter
			l.sliding[1] = g.oneIn(2)
		}
		l.numbers = [2]enforce.Limit{g.params(r.window, l.sliding[0]), g.params(r.window, l.sliding[1])}
		r.limits = append(r.limits, l)
	}
	return r
}

func (g *generator) oneIn(n int) bool { return g.random.IntN(n) == 0 }

func (g *generator) params(window int64, sliding bool) enforce.Limit {
	l := enforce.Limit{Sliding: sliding, Amount: g.random.Int64N(12), Window: window}
	l.Burst = l.Amount
	if !sliding {
		l.Burst = 1 + g.random.Int64N(12)
	}
	l.Ceiling = l.Burst + g.random.Int64N(3)
	return l
}

// cost is from giving back to above what any limit holds.
func (g *generator) cost() int64 {
	cost := g.random.Int64N(16) - 2
	if cost > 4 && !g.oneIn(4) {
		cost = 1
	}
	return cost
}

// mark notes the instants at which the verdicts of a request change: where a wait ends, a counter is forgotten, and,
// looking back, where its state becomes stale.
func (g *generator) mark(now int64, charges []enforce.Charge, s enforce.Settlement) {
	g.marks = g.marks[:0]
	for i := range charges {
		c := &charges[i]
		tick := c.Tick.Microseconds()
		here := mark{at: now / tick * tick, tick: tick, window: c.Limit.Window * tick}
		if v := s.Verdicts[i]; v.Wait > 0 {
			g.marks = append(g.marks, mark{here.at + v.Wait.Microseconds(), tick, here.window})
		}
		for _, w := range s.Writes {
			if w.Counter == c.Decides || w.Counter == c.Actual {
				g.marks = append(g.marks,
					mark{here.at + w.Expiry*tick, tick, here.window}, mark{w.State.Time*tick - here.window, tick, here.window})
			}
		}
	}
}

// next moves time: mostly on, sometimes not at all, by one tick, far, back, or to a tick beside a mark.
func (g *generator) next(now int64) int64 {
	tick := g.rules[0].tick.Microseconds()
	window := g.rules[0].window * tick
	switch step := g.random.IntN(12); {
	case step == 0:
		return now
	case step == 1:
		return now + tick
	case step == 2:
		return now + g.random.Int64N(2*window)
	case step == 3 && g.unsteady:
		return now - tick
	case step == 4 && g.unsteady:
		return now - g.random.Int64N(2*window) // beyond one window the state is dropped as stale
	case step >= 5 && step < 9 && len(g.marks) > 0:
		m := g.marks[g.random.IntN(len(g.marks))]
		at := m.at + (g.random.Int64N(3)-1)*m.tick
		if at >= now && !g.unsteady || g.unsteady && at > now-2*m.window && at < now+2*m.window {
			return at
		}
	}
	return now + g.random.Int64N(window/4+1)
}

func (g *generator) request() []enforce.Charge {
	var charges []enforce.Charge
	for i := range g.rules {
		r := &g.rules[i]
		costs := [2]int64{g.cost(), g.cost()}
		if g.oneIn(2) {
			costs[1] = costs[0]
		}
		for j := range r.limits {
			l := &r.limits[j]
			inCohort := r.inCohort
			if g.unsteady { // as of another key, which may be on the other side of the cohort
				inCohort = g.oneIn(2)
				l.numbers = [2]enforce.Limit{g.params(r.window, l.sliding[0]), g.params(r.window, l.sliding[1])}
			}
			charges = append(charges, r.charges(i, l, inCohort, costs)...)
		}
	}
	return charges
}

// charges of one limit of the versions there are, as an engine makes them.
func (r *generatedRule) charges(rule int, l *generatedLimit, inCohort bool, costs [2]int64) []enforce.Charge {
	stable := enforce.Charge{
		Rule: rule, Version: 2 * rule, Cost: costs[0], Tick: r.tick, Decides: l.actual, Actual: l.actual, Limit: l.numbers[0],
	}
	candidate := enforce.Charge{
		Rule: rule, Version: 2*rule + 1, Cost: costs[1], Tick: r.tick, Decides: l.actual, Actual: l.actual, Limit: l.numbers[1],
	}
	if r.moved {
		candidate.Decides, candidate.Actual = l.other, l.other
	}
	if inCohort && r.only != 1 {
		stable.WhatIf, stable.Decides = true, l.stable
		if r.moved || r.shared {
			candidate.Decides = l.candidate
		}
	} else {
		candidate.WhatIf, candidate.Decides = true, l.candidate
	}
	if r.shared && !r.moved {
		stable.Keep = max(l.numbers[0].Ceiling, l.numbers[1].Ceiling)
		candidate.Keep = stable.Keep
	}
	switch r.only {
	case 1:
		stable.Owns = true
		return []enforce.Charge{stable}
	case 2:
		candidate.Owns = !candidate.WhatIf || !r.shared // with a stable that does not match, but has the same counter
		return []enforce.Charge{candidate}
	}
	stable.Owns = r.moved || stable.Decides == stable.Actual || candidate.Decides != candidate.Actual
	candidate.Owns = r.moved || !stable.Owns
	return []enforce.Charge{stable, candidate}
}
