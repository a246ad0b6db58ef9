// Package spike tells when a rule version refuses far more than it used to.
//
// The picture to hold: every thirty seconds a [Detector] is given what a version refused of the last five minutes. It
// fires when three tests agree four times in a row: there is enough to judge (volume), the ratio is surely well above the
// usual one (size), and it stays so (hold). What is usual is a [Baseline] of discounted counts, of what the version refused
// and of what it would have refused while it was only judged: so a version that is promoted is compared with what its own
// shadow measured.
//
// A Detector is a plain value that can be stored; nothing here reads a clock.
package spike

import (
	"math"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// The tests, as numbers.
const (
	Window = 5 * time.Minute  // what is judged
	Every  = 30 * time.Second // how often
	Lag    = 10 * time.Minute // what is younger is no part of the baseline: it may be the spike itself

	minDecisions = 50
	minRefusals  = 10
	surely       = 3.09 // normal quantile: one in a thousand
	times        = 3.0  // the baseline
	points       = 0.02 // above it
	floor        = 0.005
	hold         = 4 // evaluations in a row

	halfLife   = 6 * time.Hour
	clearBelow = 1.5 // times the baseline
	clearFor   = 5 * time.Minute
	frozenFor  = 6 * time.Hour // at most, while it fires
)

// Count is what was refused (or would have been) of how many.
type Count struct {
	Refused int64 `json:"refused"`
	Of      int64 `json:"of"`
}

// Baseline is the usual ratio: counts that lose half their weight every six hours. The zero Baseline knows nothing.
type Baseline struct {
	Refused float64   `json:"refused"`
	Of      float64   `json:"of"`
	At      time.Time `json:"at"`
}

// Add makes a count part of the baseline.
func (b *Baseline) Add(at time.Time, c Count) {
	if !b.At.IsZero() && at.After(b.At) {
		left := math.Exp2(-float64(at.Sub(b.At)) / float64(halfLife))
		b.Refused, b.Of = b.Refused*left, b.Of*left
	}
	b.Refused, b.Of, b.At = b.Refused+float64(c.Refused), b.Of+float64(c.Of), at
}

// Ratio is the usual ratio, at least half a percent. That is also what is expected of a version nobody knows anything of:
// its first refusals count.
func (b *Baseline) Ratio() float64 {
	if b.Of == 0 {
		return floor
	}
	return max(floor, (b.Refused+0.5)/(b.Of+1))
}

// Detector watches one version of a rule for refusals, or for would-be refusals. The zero Detector is ready.
type Detector struct {
	Baseline Baseline `json:"baseline"`
	// Streak is how many evaluations in a row the tests held.
	Streak int `json:"streak,omitempty"`
	// Since is when it began to fire; zero: it does not.
	Since time.Time `json:"since"`
	// Calm is since when it has been back to about the baseline while it fires.
	Calm time.Time `json:"calm"`
	// Thawed: the baseline goes on while it fires, since that was acknowledged or takes too long.
	Thawed bool `json:"thawed,omitempty"`
}

// Evidence is why it fires, or does not.
type Evidence struct {
	Count    Count   `json:"count"`
	Bound    float64 `json:"bound"` // what the ratio is at least, but for one chance in a thousand
	Baseline float64 `json:"baseline"`
	Limit    float64 `json:"limit"` // what the bound has to be above
}

// Change is what an evaluation did.
type Change int

// The changes.
const (
	Same Change = iota
	Fired
	Resolved
)

// Evaluate judges the last five minutes. Settled is what has become older than [Lag] since the evaluation before, of what
// the version refused and of what it would have refused; it is part of the baseline from now on, unless it fires.
func (d *Detector) Evaluate(now time.Time, recent, settled Count) (Change, Evidence) {
	if d.Since.IsZero() || d.Thawed || now.Sub(d.Since) >= frozenFor {
		d.Baseline.Add(now, settled)
	}
	usual := d.Baseline.Ratio()
	e := Evidence{
		Count: recent, Bound: tally.Ratio(recent.Refused, recent.Of, surely).Low,
		Baseline: usual, Limit: max(times*usual, usual+points),
	}
	if d.Since.IsZero() {
		return d.quiet(now, &e), e
	}
	return d.firing(now, &e), e
}

func (d *Detector) quiet(now time.Time, e *Evidence) Change {
	if !enough(e.Count) || e.Bound <= e.Limit {
		d.Streak = 0
		return Same
	}
	if d.Streak++; d.Streak < hold {
		return Same
	}
	d.Since, d.Calm, d.Thawed = now, time.Time{}, false
	return Fired
}

func (d *Detector) firing(now time.Time, e *Evidence) Change {
	switch {
	case e.Bound >= clearBelow*e.Baseline:
		d.Calm = time.Time{}
	case d.Calm.IsZero():
		d.Calm = now
	}
	if d.Calm.IsZero() || now.Sub(d.Calm) < clearFor {
		return Same
	}
	d.Reset()
	return Resolved
}

// Acknowledge lets the baseline go on while it fires: what is measured now is the new usual.
func (d *Detector) Acknowledge() { d.Thawed = !d.Since.IsZero() }

// Reset lets it fire no longer, since what it watched is gone. What is usual stays known.
func (d *Detector) Reset() { *d = Detector{Baseline: d.Baseline} }

// enough is the volume test: many decisions, or few of which at least every second one is refused.
func enough(c Count) bool {
	return c.Refused >= minRefusals && (c.Of >= minDecisions || 2*c.Refused >= c.Of)
}
