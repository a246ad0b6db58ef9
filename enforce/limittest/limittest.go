// Package limittest is the suite that every limiter passes: worked timelines, and generated sequences of requests whose
// verdicts must equal those of [enforce.Settle] over a plain map, number for number.
package limittest

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/tokenbucket"
)

// Limiter is a limiter that takes the instant, in microseconds.
type Limiter interface {
	DecideAt(ctx context.Context, micros int64, charges []enforce.Charge) ([]enforce.Verdict, error)
}

// Run puts the limiters that open returns through the suite, one for each part, since each part has its own virtual
// clock. Counters have random names, so they may share a store.
func Run(t *testing.T, open func(*testing.T) Limiter) {
	parts := map[string]func(*testing.T, Limiter){
		"all or none": allOrNone, "what-if": whatIf, "changed number": changedNumber, "generated": generated,
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t, open(t))
		})
	}
}

// Start is an ordinary instant: a multiple of every window used here.
const Start = 1_800_000_000_000_000

// PerMinute returns the numbers and the tick of a token bucket `amount/min burst burst`.
func PerMinute(amount, burst int64) (tokenbucket.Params, time.Duration) {
	return tokenbucket.Params{Amount: amount, Burst: burst, Ceiling: burst, Window: 60_000}, time.Millisecond
}

// NewCounter returns a counter with a random name.
func NewCounter() (c enforce.Counter) {
	_, _ = rand.Read(c.Tag[:])
	_, _ = rand.Read(c.ID[:])
	return c
}

// Binding returns a charge of cost 1 that decides by its actual counter.
func Binding(rule int, counter enforce.Counter, amount, burst int64) enforce.Charge {
	p, tick := PerMinute(amount, burst)
	return enforce.Charge{Rule: rule, Version: rule, Cost: 1, Limit: p, Tick: tick, Decides: counter, Actual: counter, Owns: true}
}

func decide(t *testing.T, l Limiter, at int64, charges ...enforce.Charge) []enforce.Verdict {
	t.Helper()
	v, err := l.DecideAt(t.Context(), at, charges)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A refused call takes nothing from another limit (CASES C03 b): five calls against 10 and 3 leave 7 of the 10.
func allOrNone(t *testing.T, l Limiter) {
	group, route := NewCounter(), NewCounter()
	var got []int64
	for range 5 {
		v := decide(t, l, Start, Binding(0, group, 10, 10), Binding(1, route, 3, 3))
		got = append(got, v[0].Left)
	}
	if diff := cmp.Diff([]int64{9, 8, 7, 7, 7}, got); diff != "" {
		t.Errorf("left of the group's limit (-want +got):\n%s", diff)
	}
}

// A what-if charge refuses nobody, and an enforced one is spent all the same (CASES C23).
func whatIf(t *testing.T, l Limiter) {
	binding, actual, trial := NewCounter(), NewCounter(), NewCounter()
	shadow := Binding(1, actual, 1, 1)
	shadow.WhatIf, shadow.Decides = true, trial
	var got []string
	for range 5 {
		v := decide(t, l, Start, Binding(0, binding, 3, 3), shadow)
		got = append(got, fmt.Sprint(v[0].Fits, v[1].Fits))
	}
	want := []string{"true true", "true false", "true false", "false false", "false false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("enforced and shadow verdicts (-want +got):\n%s", diff)
	}
}

// A changed number works at once on what was spent (the kind of CASES C18).
func changedNumber(t *testing.T, l Limiter) {
	c := NewCounter()
	for range 10 {
		decide(t, l, Start, Binding(0, c, 100, 100))
	}
	if v := decide(t, l, Start, Binding(0, c, 2, 2))[0]; v.Fits || v.Left != 0 {
		t.Errorf("limit 2 with 10 spent: got %+v, want a refusal with nothing left", v)
	}
	if v := decide(t, l, Start, Binding(0, c, 1500, 1500))[0]; !v.Fits || v.Left != 1489 {
		t.Errorf("limit 1500 with 10 spent: got %+v, want 1489 left", v)
	}
	if v := decide(t, l, Start, Binding(0, c, 100, 100))[0]; !v.Fits || v.Left != 88 {
		t.Errorf("back to 100: got %+v, want 88 left", v)
	}
}

// sequences and requests are how many are generated in a run.
const (
	sequences = 400
	requests  = 25
)

func generated(t *testing.T, l Limiter) {
	seed := [32]byte{}
	_, _ = rand.Read(seed[:])
	random := mathrand.New(mathrand.NewChaCha8(seed)) //nolint:gosec // test data, not a secret
	for s := range sequences {
		g := newGenerator(random)
		model := map[enforce.Counter]enforce.State{}
		now := int64(Start)
		for n := range requests {
			now = g.next(now)
			charges := g.request()
			want := enforce.Settle(charges, now, func(c enforce.Counter) (enforce.State, bool) {
				st, ok := model[c]
				return st, ok
			})
			for _, w := range want.Writes {
				model[w.Counter] = w.State
			}
			got := decide(t, l, now, charges...)
			if diff := cmp.Diff(want.Verdicts, got); diff != "" {
				t.Fatalf("sequence %d, request %d, at %d (seed %x) differs from the model (-want +got):\n%s\ncharges: %+v",
					s, n, now-Start, seed, diff, charges)
			}
		}
	}
}

// generator makes requests over a few rules, each with a stable and a candidate version that share some counters.
type generator struct {
	random *mathrand.Rand
	rules  []generatedRule
	// unsteady: every request has other numbers and may be on the other side of the cohort, and time may go back. Only
	// with short windows, so that the whole sequence fits in the hour for which limiters keep counters when instants are
	// given: what has been forgotten cannot be asked again. The other sequences run long enough for counters to expire.
	unsteady bool
}

type generatedRule struct {
	window int64
	tick   time.Duration
	limits []generatedLimit
	// inCohort: the candidate binds. moved: the candidate has another window or key than the stable.
	inCohort, moved bool
}

type generatedLimit struct {
	actual, stable, candidate, other enforce.Counter
	numbers                          [2]tokenbucket.Params // of the stable and the candidate, unless they change
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
		window := time.Duration(choice[random.IntN(len(choice))]) * time.Second
		tick := time.Microsecond
		switch {
		case window > 10_000*time.Second:
			tick = time.Second
		case window > 10*time.Second:
			tick = time.Millisecond
		}
		r := generatedRule{window: int64(window / tick), tick: tick}
		r.inCohort, r.moved = random.IntN(2) == 0, random.IntN(4) == 0
		for range 1 + random.IntN(2) {
			l := generatedLimit{actual: NewCounter(), stable: NewCounter(), candidate: NewCounter(), other: NewCounter()}
			l.numbers = [2]tokenbucket.Params{g.params(r.window), g.params(r.window)}
			r.limits = append(r.limits, l)
		}
		g.rules = append(g.rules, r)
	}
	return g
}

// next moves time: mostly on, sometimes not at all, by one tick, far, or back.
func (g *generator) next(now int64) int64 {
	tick := g.rules[0].tick.Microseconds()
	window := g.rules[0].window * tick
	switch step := g.random.IntN(8); {
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
	}
	return now + g.random.Int64N(window/4+1)
}

func (g *generator) request() []enforce.Charge {
	var charges []enforce.Charge
	version := 0
	for i := range g.rules {
		r := &g.rules[i]
		inCohort, moved := r.inCohort, r.moved
		if g.unsteady {
			inCohort = g.random.IntN(2) == 0
		}
		cost := g.random.Int64N(4)
		for _, l := range r.limits {
			actual := l.actual
			if moved { // the candidate has another window or key
				actual = l.other
			}
			numbers := l.numbers
			if g.unsteady {
				numbers = [2]tokenbucket.Params{g.params(r.window), g.params(r.window)}
			}
			stable := enforce.Charge{
				Rule: i, Version: version, Cost: cost, Tick: r.tick, Decides: l.actual, Actual: l.actual, Limit: numbers[0],
			}
			candidate := enforce.Charge{
				Rule: i, Version: version + 1, Cost: cost, Tick: r.tick, Decides: actual, Actual: actual, Limit: numbers[1],
			}
			if inCohort {
				stable.WhatIf, stable.Decides = true, l.stable
				if moved {
					candidate.Decides = l.candidate
				}
			} else {
				candidate.WhatIf, candidate.Decides = true, l.candidate
			}
			stable.Owns = !inCohort || moved
			candidate.Owns = inCohort && !moved || moved
			charges = append(charges, stable, candidate)
		}
		version += 2
	}
	return charges
}

func (g *generator) params(window int64) tokenbucket.Params {
	burst := 1 + g.random.Int64N(12)
	return tokenbucket.Params{Amount: g.random.Int64N(12), Burst: burst, Ceiling: burst + g.random.Int64N(3), Window: window}
}
