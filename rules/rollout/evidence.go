package rollout

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Tallies is what the nodes counted, as far as a promotion looks at it.
type Tallies interface {
	Series(ctx context.Context, q tally.Query) ([]tally.Point, error)
	Sources(ctx context.Context) ([]tally.Progress, error)
	Missing(ctx context.Context, from, to time.Time) ([]tally.Missing, error)
}

// Evidence is what a candidate would do to callers, and does, as counted in a span of time. What the candidate only judges
// and what it decides, where it binds, are taken together: both are what it makes of a request.
type Evidence struct {
	From, To time.Time
	// Judged are the requests that the candidate judged or decided, each once per key. Refusing are those of them that it
	// refused or would have, and of what it only judged no other rule did. Shared are those that another rule refused, whatever
	// the candidate said.
	Judged, Refusing, Shared int64
	// Compared are those that the stable judged or decided as well. It allowed the NewlyRefused and refused the NoLongerRefused.
	// Where there is no stable, nothing was refused before.
	Compared, NewlyRefused, NoLongerRefused int64
}

// newEvidence puts together what was counted of the candidate and of the stable, nil where there is none.
func newEvidence(from, to time.Time, candidate, stable *tally.Counts) Evidence {
	_, alone := candidate.WouldRefuse()
	shared, inCohort := candidate.Shared()
	if stable != nil { // it knows as well of those in the cohort that the candidate refused
		known, _ := stable.Shared()
		inCohort = max(inCohort, known)
	}
	e := Evidence{From: from, To: to, Shared: shared + inCohort, Refusing: alone + candidate.Of(tally.Refused)}
	e.Judged = candidate.Judged() + decided(candidate)
	if stable == nil {
		e.Compared, e.NewlyRefused = e.Judged, e.Refusing
		return e
	}
	// In the cohort the stable is what is only judged, beside the candidate: there the two change places.
	newly, noLonger := candidate.Turned()
	back, forth := stable.Turned()
	e.NewlyRefused, e.NoLongerRefused = newly+forth, noLonger+back
	e.Compared = candidate.Judged() + stable.Judged()
	return e
}

// decided are the requests of which the version's own verdict was known. What failed says nothing about a limit.
func decided(c *tally.Counts) int64 {
	return c.Of(tally.Allowed) + c.Of(tally.Refused) + c.Of(tally.RefusedByOther)
}

// Estimate reports that other rules refused as well, so that what would be is not known one for one. Where none did it is,
// but for one case: when the candidate lets more pass, other rules meet calls that they never saw, and may refuse those.
func (e *Evidence) Estimate() bool { return e.Shared > 0 }

// WouldRefuse is the share of requests that the candidate refuses, or would, with its 95 % interval.
func (e *Evidence) WouldRefuse() tally.Interval { return tally.Ratio(e.Refusing, e.Judged, tally.Z95) }

// Delta is by how much more the candidate refuses than the stable.
func (e *Evidence) Delta() tally.Interval {
	return tally.Difference(e.NewlyRefused, e.NoLongerRefused, e.Compared, tally.Z95)
}

// Words say what there is: "would refuse 0.4 % (95 %: 0.36 to 0.44 %) of 88113 requests, …".
func (e *Evidence) Words() string {
	if e.Judged == 0 {
		return "no evidence: no request was judged since " + e.From.Format(timeText)
	}
	text := fmt.Sprintf("would refuse %s of %d requests; newly refused %d, no longer refused %d",
		intervalText(e.WouldRefuse()), e.Judged, e.NewlyRefused, e.NoLongerRefused)
	if e.Estimate() {
		text += fmt.Sprintf("; an estimate: other rules refused %d of the requests", e.Shared)
	}
	return text
}

func intervalText(i tally.Interval) string {
	percent := func(f float64) float64 { return math.Round(1e6*f) / 1e4 }
	return fmt.Sprintf("%.3g%% (95%%: %.3g%% to %.3g%%)", percent(i.Estimate), percent(i.Low), percent(i.High))
}

// Verdict is what a gate says.
type Verdict string

// The verdicts. A gate passes only when the whole 95 % interval is within its bound, and trips only when all of it is
// beyond.
const (
	GatePasses    Verdict = "pass"
	GateTripped   Verdict = "tripped"
	GateUndecided Verdict = "undecided"
)

// GateVerdict is a gate with what it says, and why.
type GateVerdict struct {
	Name    string
	Limit   rules.Percent
	Verdict Verdict
	Is      tally.Interval
	Of      int64 // how many requests that is of
	// Estimate is that of the evidence.
	Estimate bool
}

// Words say it: "maxWouldRefuse 2%: tripped, it is 5% (95%: 4% to 6%) of 2000 requests".
func (g *GateVerdict) Words() string {
	text := fmt.Sprintf("%s %s: %s, it is %s of %d requests", g.Name, g.Limit, g.Verdict, intervalText(g.Is), g.Of)
	if g.Estimate {
		text += ", by estimate"
	}
	return text
}

// judgeGates holds the evidence to the gates.
func judgeGates(gates *rules.Gates, e *Evidence) []GateVerdict {
	var list []GateVerdict
	add := func(name string, limit *rules.Percent, is tally.Interval, of int64) {
		if limit == nil {
			return
		}
		v, bound := GateUndecided, float64(*limit)/float64(rules.AllKeys)
		switch {
		case of < gates.Minimum():
		case is.High <= bound:
			v = GatePasses
		case is.Low > bound:
			v = GateTripped
		}
		list = append(list, GateVerdict{name, *limit, v, is, of, e.Estimate()})
	}
	add(rules.GateWouldRefuse, gates.MaxWouldRefuse, e.WouldRefuse(), e.Judged)
	add(rules.GateDelta, gates.MaxDelta, e.Delta(), e.Compared)
	return list
}

// tripped returns the first gate that tripped; nil when none did.
func tripped(list []GateVerdict) *GateVerdict {
	for i := range list {
		if list[i].Verdict == GateTripped {
			return &list[i]
		}
	}
	return nil
}
