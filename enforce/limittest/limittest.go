// Package limittest is the suite that every limiter passes: worked timelines, and generated sequences of requests whose
// verdicts must equal those of [enforce.Settle] over a plain map, number for number. Where a limiter tells how long it
// keeps its counters ([Keeper]), their lifetimes must be those of Settle as well.
//
// Each part returns an error, so that a test can also demand the opposite: that the suite fails a limiter into which a
// fault was put ([Check]).
package limittest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
)

// Limiter is a limiter that also takes the instant, in microseconds. It then keeps counters an hour longer than they
// need, since such instants may go back and pass at another pace than real time.
type Limiter interface {
	enforce.Limiter
	DecideAt(ctx context.Context, micros int64, charges []enforce.Charge) ([]enforce.Verdict, error)
}

// Keeper is a limiter that tells how long, from an instant on, it still keeps its counters; below 0 for one that it does
// not have. A limiter with a clock of its own for this leaves the instant aside.
type Keeper interface {
	Lifetimes(ctx context.Context, micros int64, counters []enforce.Counter) ([]time.Duration, error)
}

// A part of the suite.
type part struct {
	name string
	run  func(context.Context, Limiter) error // the error says how the limiter breaks the law
}

// worked are the parts with numbers written out.
var worked = []part{
	{"all or none", allOrNone}, {"what-if", whatIf}, {"changed number", changedNumber}, {"own clock", ownClock}, {"rounding", rounding},
}

// parts and sequences are how many sequences a run generates: 10,000, in parts on a clock of their own.
const (
	parts     = 4
	sequences = 2_500
)

// Run puts the limiters that open returns through the suite, one for each part, since each part has its own virtual
// clock. Counters have random names, so they may share a store.
func Run(t *testing.T, open func(*testing.T) Limiter) {
	suite := slices.Clone(worked)
	for n := range parts {
		suite = append(suite, generatedPart(fmt.Sprintf("generated %d", n+1), sequences))
	}
	for _, p := range suite {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if err := p.run(t.Context(), open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check puts one limiter through the suite, with the given number of generated sequences. It returns the error of the
// part that fails first, with its name.
func Check(ctx context.Context, l Limiter, sequences int) error {
	for _, p := range append(slices.Clone(worked), generatedPart("generated", sequences)) {
		if err := p.run(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func generatedPart(name string, sequences int) part {
	return part{name, func(ctx context.Context, l Limiter) error { return generated(ctx, l, sequences) }}
}

// Start is an ordinary instant: a multiple of every window used here.
const Start = 1_800_000_000_000_000

// PerMinute returns the numbers and the tick of a token bucket `amount/min burst burst`.
func PerMinute(amount, burst int64) (enforce.Limit, time.Duration) {
	return enforce.Limit{Amount: amount, Burst: burst, Ceiling: burst, Window: 60_000}, time.Millisecond
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

// A refused call takes nothing from another limit (CASES C03 b): five calls against 10 and 3 leave 7 of the 10.
func allOrNone(ctx context.Context, l Limiter) error {
	group, route := NewCounter(), NewCounter()
	var got []int64
	for range 5 {
		v, err := l.DecideAt(ctx, Start, []enforce.Charge{Binding(0, group, 10, 10), Binding(1, route, 3, 3)})
		if err != nil {
			return err
		}
		got = append(got, v[0].Left)
	}
	return differ("left of the group's limit", []int64{9, 8, 7, 7, 7}, got)
}

// A what-if charge refuses nobody, and an enforced one is spent all the same (CASES C23).
func whatIf(ctx context.Context, l Limiter) error {
	binding, actual, trial := NewCounter(), NewCounter(), NewCounter()
	shadow := Binding(1, actual, 1, 1)
	shadow.WhatIf, shadow.Decides = true, trial
	var got []string
	for range 5 {
		v, err := l.DecideAt(ctx, Start, []enforce.Charge{Binding(0, binding, 3, 3), shadow})
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprint(v[0].Fits, v[1].Fits))
	}
	want := []string{"true true", "true false", "true false", "false false", "false false"}
	return differ("enforced and shadow verdicts", want, got)
}

// A changed number works at once on what was spent (the kind of CASES C18).
func changedNumber(ctx context.Context, l Limiter) error {
	c := NewCounter()
	call := func(amount int64) (enforce.Verdict, error) {
		v, err := l.DecideAt(ctx, Start, []enforce.Charge{Binding(0, c, amount, amount)})
		if err != nil {
			return enforce.Verdict{}, err
		}
		return v[0], nil
	}
	for range 10 {
		if _, err := call(100); err != nil {
			return err
		}
	}
	var got []string
	for _, amount := range []int64{2, 1500, 100} {
		v, err := call(amount)
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprint(v.Fits, v.Left))
	}
	return differ("2, 1500 and 100 with 10 spent", []string{"false 0", "true 1489", "true 88"}, got)
}

// Without an instant a limiter goes by a clock of its own, which shows Unix time: to it windows are aligned, and by it
// counters last beyond a restart. A charge of nothing needs no lifetime, and is stored for the shortest one.
func ownClock(ctx context.Context, l Limiter) error {
	look := Binding(0, NewCounter(), 5, 5)
	look.Cost = 0
	v, err := l.Decide(ctx, []enforce.Charge{look})
	if err != nil {
		return fmt.Errorf("look without spending: %w", err)
	}
	if err := differ("look without spending", []enforce.Verdict{{Fits: true, Left: 5}}, v); err != nil {
		return err
	}
	daily := Binding(0, NewCounter(), 1, 1)
	daily.Limit.Window, daily.Tick = 24*60*60, time.Second
	if _, err := l.Decide(ctx, []enforce.Charge{daily}); err != nil {
		return err
	}
	v, err = l.DecideAt(ctx, time.Now().Add(12*time.Hour).UnixMicro(), []enforce.Charge{daily})
	if err != nil {
		return err
	}
	// The clocks of this process and of a store may be a little apart.
	if off := (v[0].Wait - 12*time.Hour).Abs(); v[0].Fits || off > time.Minute {
		return fmt.Errorf("12 hours after the only call of a day: got %+v, want a wait of 12 hours", v[0])
	}
	return nil
}

func differ(what string, want, got any) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s (-want +got):\n%s", what, diff)
	}
	return nil
}
