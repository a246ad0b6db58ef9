package enforce_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// The prediction law, in tallies. A candidate is tried beside its stable, at any percentage, and the same stream again with the candidate enforced,
// from the counters as they were when the trial began. Until another rule refuses in one of the two, the candidate refuses
// the same keys of the same calls, and the windows add up to the same numbers. From then on the figure is an estimate: what
// another rule refuses as well is marked, nothing else is, and it is not among what the candidate would refuse alone.
func foresight(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	tried := g.tried()
	promoted, unchanged := *tried, *tried
	promoted.Stable, promoted.Candidate, promoted.Percent = tried.Candidate, nil, 0
	unchanged.Candidate, unchanged.Percent = nil, 0
	others := []*rules.Rule{g.generous()}
	if g.oneIn(2, "another may refuse") {
		others = append(others, g.rule("other"))
	}
	beside, enforced := newStage(open()), newStage(open())
	overrides := g.overrides(append(others[1:], tried))
	for _, s := range []*stage{beside, enforced} {
		s.counts = meter.New(prometheus.NewRegistry())
		s.swap(append(others, &unchanged)...)
		s.override(overrides...)
	}
	calls := g.calls(n)
	proposed := 0
	if tried.Stable != nil && rules.SameKey(tried.Stable.Spec.Key, tried.Candidate.Spec.Key) {
		proposed = rapid.IntRange(0, len(calls)-1).Draw(t, "proposed at")
	}
	var want tally.Counts
	exact, refused := true, int64(0)
	for i := 0; len(calls) > 0; i++ {
		size := 1
		if tried.Percent == 0 { // else one call may be on both sides of the cohort: where the stable refuses it, the candidate takes nothing either
			size = min(len(calls), pick(g, "descriptors", 1, 1, 2, 3))
		}
		var reqs []*rules.Request
		for _, c := range calls[:size] {
			beside.pass(c.after)
			enforced.pass(c.after)
			reqs = append(reqs, c.req)
		}
		calls = calls[size:]
		if proposed >= 0 && i >= proposed {
			proposed = -1
			beside.swap(append(others, tried)...)
			enforced.swap(append(others, &promoted)...)
			beside.counted(0)
			enforced.counted(0)
		}
		said, done := beside.engine.DecideAll(t.Context(), reqs), enforced.engine.DecideAll(t.Context(), reqs)
		if proposed >= 0 {
			continue
		}
		checkOutcomes(t, said)
		if diff := cmp.Diff(refusedKeys(&done), refusedKeys(&said)); diff != "" && exact {
			t.Fatalf("call %d: the keys that the candidate refuses (-enforced +tried):\n%s", i, diff)
		}
		countCandidate(&want, &said)
		exact = exact && !anotherRefuses(&said) && !anotherRefuses(&done)
		if exact {
			refused += int64(len(refusedKeys(&done)))
		}
	}
	got := beside.counted(2)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the windows of the trial (-want +got):\n%s", diff)
	}
	if !exact || proposed >= 0 {
		return
	}
	all, alone := got.WouldRefuse()
	after := enforced.counted(2)
	if all != alone || alone+got.Refusals() != refused || after.Refusals() != refused {
		t.Fatalf("%d would-be refusals, %d of them alone, and %d refusals; %d when it is enforced, want %d", all, alone, got.Refusals(), after.Refusals(), refused)
	}
}

// TestC23TalliesTellWhatAnotherRuleShares is case C23 in the windows.
func TestC23TalliesTellWhatAnotherRuleShares(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		for name, order := range map[string][]string{"in this order": {"enforced", "tried"}, "swapped": {"z", "tried"}} {
			s := newStage(l)
			s.counts = meter.New(prometheus.NewRegistry())
			s.swap(rule(order[0], version(t, 1, "3/d"), nil), rule(order[1], nil, version(t, 1, "1/d")))
			var answers strings.Builder
			for range 5 {
				if s.call("k").Allowed {
					answers.WriteByte('A')
				} else {
					answers.WriteByte('R')
				}
			}
			counts := s.counted(1)
			all, alone := counts.WouldRefuse()
			if answers.String() != "AAARR" || all != 4 || alone != 2 || counts.Judged() != 5 || counts.Matched() != 5 {
				t.Errorf("%s: %s, %d would-be refusals, %d of them alone; want AAARR, 4 and 2: %v", name, answers.String(), all, alone, counts)
			}
		}
	})
}

// Where another rule refused, the figure is an estimate also when the candidate would have allowed what that one refused:
// enforced, it refuses a call earlier, which leaves the other rule room for calls that the candidate then counts.
func TestFigureIsAnEstimateAlsoWithoutASharedRefusal(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		stable, candidate := rule("tried", version(t, 1, "99/d"), nil), version(t, 2, "2/d")
		candidate.Spec.Cost = []rules.Cost{{Match: rules.Match{Method: []string{"POST"}}, Cost: 3}}
		promoted := rule("tried", candidate, nil)
		other := rule("other", version(t, 1, "2/d"), nil)
		refusals := func(list ...*rules.Rule) (n, shared, others int) {
			s := newStage(l, list...)
			for _, method := range []string{"POST", "GET", "GET", "GET"} {
				req := request("k")
				req.Method = method
				d := s.engine.Decide(t.Context(), req)
				keys := len(refusedKeys(&d))
				n += keys
				if anotherRefuses(&d) {
					others++
					shared += keys
				}
			}
			return n, shared, others
		}
		n, shared, others := refusals(rule("tried", stable.Stable, candidate), other)
		if enforced, _, _ := refusals(promoted, other); n != 1 || shared != 0 || others != 2 || enforced != 2 {
			t.Errorf("%d would-be refusals, %d shared, %d calls refused by the other rule; %d when enforced; want 1, 0, 2 and 2", n, shared, others, enforced)
		}
	})
}

// tried draws a rule with a candidate. Where the versions have one key they match the same requests: others, which only one
// of them charges to a counter that they share, are in the copy with which the trial starts.
func (g generator) tried() *rules.Rule {
	r := g.rule("tried")
	if r.Candidate == nil {
		r.Candidate = &rules.Version{Number: 2, Spec: g.edited(r.Stable.Spec)}
	}
	if r.Stable != nil && rules.SameKey(r.Stable.Spec.Key, r.Candidate.Spec.Key) {
		r.Candidate.Spec.Match, r.Candidate.Spec.MissingKey = r.Stable.Spec.Match, r.Stable.Spec.MissingKey
	}
	return r
}

// ofCandidate are the outcomes of the candidate that is tried, or was.
func ofCandidate(d *enforce.Decision) (list []enforce.VersionOutcome) {
	for _, o := range d.Outcomes {
		if o.Rule.Name == "tried" && o.Version.Number == 2 {
			list = append(list, o)
		}
	}
	return list
}

// refusedKeys are those that the candidate refuses, or would.
func refusedKeys(d *enforce.Decision) (keys []string) {
	for _, o := range ofCandidate(d) {
		if o.Outcome.Affects() {
			keys = append(keys, fmt.Sprintf("%x", o.Values.Encoded()))
		}
	}
	slices.Sort(keys)
	return keys
}

// anotherRefuses reports whether a rule refuses beside the one that is tried.
func anotherRefuses(d *enforce.Decision) bool {
	return slices.ContainsFunc(d.Outcomes, func(o enforce.VersionOutcome) bool { return o.Rule.Name != "tried" && o.Outcome.Refuses() })
}

// countCandidate counts the outcomes of the candidate by what the whole decision says.
func countCandidate(counts *tally.Counts, d *enforce.Decision) {
	for _, o := range ofCandidate(d) {
		if o.WhatIf {
			counts[tally.WhatIfCell(o.Outcome, o.Beside, anotherRefuses(d))]++
		} else {
			counts[tally.BindingCell(o.Outcome, o.Limit)]++
		}
	}
}

// counted closes the open window, and returns what it has of a version of the rule that is tried.
func (s *stage) counted(version int64) (sum tally.Counts) {
	for _, v := range s.counts.Close(time.Now(), false).Versions {
		if v.UID == rule("tried", nil, nil).UID && v.Version == version {
			sum.Add(&v.Counts)
		}
	}
	return sum
}
