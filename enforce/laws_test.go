package enforce_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A law holds for every rule set and every stream of at most so many calls, on every limiter.
type law func(t *rapid.T, open func() limittest.Limiter, calls int)

var laws = map[string]law{
	"a refused request changes no binding counter":      allOrNone,
	"what-if versions change nothing":                   noInfluence,
	"the shadow predicts the candidate":                 prediction,
	"the shadow's tally is that of the candidate":       foresight,
	"waits are exact":                                   exactWaits,
	"one outcome for each version and key":              oneOutcome,
	"no span admits more than the algorithm allows":     spans,
	"a change hands out at most the difference":         noFreshBudget,
	"a cohort keeps its callers":                        cohortsStay,
	"callers of both sides of a cohort share one limit": sharedSpans,
	"a frozen version is judged as if it were not":      frozenJudgement,
	"the end of a freeze is no fresh budget":            endOfFreeze,
	"an override hands out at most the difference":      overrideBudget,
	"each request has the status of its own":            eachStatus,
	"a given rate takes the place of the rule's":        givenRates,
}

// rounds of a hundred rule sets each.
const rounds = 4

func TestLaws(t *testing.T) {
	t.Parallel()
	for name, law := range laws {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range rounds {
				rapid.Check(t, func(t *rapid.T) { law(t, func() limittest.Limiter { return memlimit.New() }, 60) })
			}
		})
	}
}

func TestLawsOverRedis(t *testing.T) {
	t.Parallel()
	l := openRedis(t)
	for name, law := range laws {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { law(t, func() limittest.Limiter { return l }, 12) })
		})
	}
}

func openRedis(t *testing.T) limittest.Limiter {
	l := redislimit.New(redislimit.Options{Addr: harness.RedisAddr(t), Budget: 10 * time.Second})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func allOrNone(t *rapid.T, open func() limittest.Limiter, n int) {
	l := &looks{Limiter: open()}
	g := generator{t}
	s := newStage(l, g.rules()...)
	s.override(g.overrides(s.rules)...)
	for i, c := range g.calls(n) {
		l.before, l.after = nil, nil
		d := s.decide(c)
		if d.Allowed {
			continue
		}
		if diff := cmp.Diff(l.before, l.after); diff != "" {
			t.Fatalf("call %d is refused and changes actual counters (-before +after):\n%s", i, diff)
		}
	}
}

// The same stream twice: with all versions, and with only those that bind for each request, as stable ones. Where a
// candidate decides by its what-if counter (one counter for both sides of the cohort) it stays as it is. Of a frozen rule
// no version binds.
func noInfluence(t *rapid.T, open func() limittest.Limiter, n int) {
	with, without := &looks{Limiter: open()}, &looks{Limiter: open()}
	g := generator{t}
	list := g.rules()
	a, b := newStage(with, list...), newStage(without)
	a.override(g.overrides(list)...)
	b.override(a.overrides...)
	var frozen string
	if g.oneIn(2, "freeze") {
		frozen = list[0].Name
		a.freeze(rules.Freeze{Rule: frozen, Until: time.Unix(1<<40, 0)})
	}
	for i, c := range g.calls(n) {
		var binding []*rules.Rule
		for _, r := range list {
			if r = onlyBinding(r, c.req); r != nil && r.Name != frozen {
				binding = append(binding, r)
			}
		}
		b.swap(binding...)
		with.before, with.after, without.before, without.after = nil, nil, nil, nil
		got, want := withoutWhatIf(a.decide(c)), withoutWhatIf(b.decide(c))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("call %d is answered otherwise (-without what-if versions +with):\n%s", i, diff)
		}
		if diff := cmp.Diff([][]enforce.Verdict{without.before, without.after}, [][]enforce.Verdict{with.before, with.after}); diff != "" {
			t.Fatalf("call %d meets or leaves other counters (-without what-if versions +with):\n%s", i, diff)
		}
	}
}

func onlyBinding(r *rules.Rule, req *rules.Request) *rules.Rule {
	if r.Candidate == nil || r.Percent > 0 && sharedByCohort(r, req) {
		return r
	}
	only := *r
	only.Candidate, only.Percent = nil, 0
	if r.InCohort(req) {
		only.Stable = r.Candidate
	}
	if only.Stable == nil {
		return nil
	}
	return &only
}

// sharedByCohort reports whether callers inside and outside of the cohort meet in one counter of the candidate.
func sharedByCohort(r *rules.Rule, req *rules.Request) bool {
	return rules.KeyOf(&r.Candidate.Spec, req).Shared() || r.Stable != nil && !rules.SameKey(r.Stable.Spec.Key, r.Candidate.Spec.Key)
}

// Where no other rule refuses, what a candidate says beside the stable, at any percentage, is what it says when it is
// enforced instead, one for one; from the start, or from the moment at which it was proposed. The same holds for a stable
// beside which a candidate binds, as long as each caller has a counter of its own. Both match the same requests: others,
// which only one of them charges to a counter that they share, are in the copy with which the trial starts.
func prediction(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	tried := g.rule("tried")
	if tried.Candidate == nil {
		tried.Candidate = &rules.Version{Number: 2, Spec: g.edited(tried.Stable.Spec)}
	}
	same := tried.Stable != nil && rules.SameKey(tried.Stable.Spec.Key, tried.Candidate.Spec.Key)
	if same {
		tried.Candidate.Spec.Match, tried.Candidate.Spec.MissingKey = tried.Stable.Spec.Match, tried.Stable.Spec.MissingKey
	}
	promoted, unchanged := *tried, *tried
	promoted.Stable, promoted.Candidate, promoted.Percent = tried.Candidate, nil, 0
	unchanged.Candidate, unchanged.Percent = nil, 0
	calls := g.calls(n)
	proposed := 0
	if same {
		proposed = rapid.IntRange(0, len(calls)-1).Draw(t, "proposed at")
	}
	other := g.generous()
	beside, enforced, alone := newStage(open(), &unchanged, other), newStage(open(), &unchanged, other), newStage(open(), &unchanged, other)
	overrides := g.overrides([]*rules.Rule{tried})
	for _, s := range []*stage{beside, enforced, alone} {
		s.override(overrides...)
	}
	for i, c := range calls {
		if i == proposed {
			beside.swap(tried, other)
			enforced.swap(&promoted, other)
		}
		if len(c.req.Header["X-Api-Key"]) > 1 {
			delete(c.req.Header, "X-Api-Key") // the other rule would refuse it
		}
		d := beside.decide(c)
		if got, want := refusedBy(d, 2, "tried"), refusedBy(enforced.decide(c), 2, "tried"); got != want {
			t.Fatalf("call %d: the candidate says %s, and %s when it is enforced", i, got, want)
		}
		want := refusedBy(alone.decide(c), 1, "tried")
		if got := refusedBy(d, 1, "tried"); got != want && (tried.Percent == 0 || !sharedByCohort(tried, c.req)) {
			t.Fatalf("call %d: the stable says %s, and %s alone", i, got, want)
		}
	}
}

// generous draws a rule that refuses nothing.
func (g generator) generous() *rules.Rule {
	r := rule("generous", &rules.Version{Number: 1, Spec: g.spec()}, nil)
	r.Stable.Spec.MissingKey = rules.MissingSkip
	for i := range r.Stable.Spec.Limits {
		l := &r.Stable.Spec.Limits[i]
		l.Rate.Amount, l.Rate.Burst, l.By, l.Values = 10_000, 10_000, nil, nil
	}
	return r
}

// With no other traffic a refused request passes after its wait, and not a tick earlier.
func exactWaits(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	s := newStage(open(), g.rules()...)
	s.override(g.overrides(s.rules)...)
	for i, c := range g.calls(n) {
		d := s.decide(c)
		if d.Allowed || d.Wait == enforce.Never {
			continue
		}
		tick := speaking(d).Microseconds()
		passes := s.now + d.Wait.Microseconds()
		s.now = s.now/tick*tick + d.Wait.Microseconds() - 1 // the end of the tick before
		if early := s.again(c); early.Allowed {
			t.Fatalf("call %d passes a tick earlier than after %v", i, d.Wait)
		}
		s.now = passes
		if late := s.again(c); !late.Allowed {
			t.Fatalf("call %d does not pass after %v: %+v", i, d.Wait, late)
		}
	}
}

// speaking returns the tick of the limit that speaks in a refusal.
func speaking(d enforce.Decision) time.Duration {
	for _, o := range d.Outcomes {
		if o.Rule.Name != d.Rule || o.Outcome != tally.Refused {
			continue
		}
		for _, l := range o.Version.Spec.Limits {
			if l.Name == d.Limit {
				return rules.Tick(l.Window())
			}
		}
	}
	return time.Microsecond
}

// For each matching rule and key, where a version binds, there is one binding outcome, and one for each what-if version;
// also where one call is described several times. The outcomes agree with the answer.
func oneOutcome(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	list := g.rules()
	s := newStage(open(), list...)
	index := rules.NewIndex(s.domain, list)
	calls := g.calls(n)
	for len(calls) > 0 {
		size := min(len(calls), rapid.IntRange(1, 3).Draw(t, "descriptors"))
		var reqs []*rules.Request
		for _, c := range calls[:size] {
			s.pass(c.after)
			reqs = append(reqs, c.req)
		}
		calls = calls[size:]
		d := s.engine.DecideAll(t.Context(), reqs)
		if diff := cmp.Diff(versionsOf(index, reqs), versionsIn(d)); diff != "" {
			t.Fatalf("versions with an outcome (-want +got):\n%s", diff)
		}
		checkOutcomes(t, d)
	}
}

// versionsOf names the versions that apply to the requests, each once for a key.
func versionsOf(x *rules.Index, reqs []*rules.Request) []string {
	var names []string
	for _, req := range reqs {
		for _, hit := range x.Lookup(req, nil) {
			for whatIf, v := range map[bool]*rules.Version{false: hit.Binding, true: hit.WhatIf} {
				if v == nil {
					continue
				}
				key := rules.KeyOf(&v.Spec, req)
				if key.Missing() && v.Spec.Missing(req) == rules.MissingSkip {
					continue
				}
				names = append(names, fmt.Sprintf("%s v%d, what-if %v, %x", hit.Rule.Name, v.Number, whatIf, key.Encoded()))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func versionsIn(d enforce.Decision) []string {
	var names []string
	for _, o := range d.Outcomes {
		key := rules.KeyOf(&o.Version.Spec, o.Request)
		names = append(names, fmt.Sprintf("%s v%d, what-if %v, %x", o.Rule.Name, o.Version.Number, o.WhatIf, key.Encoded()))
	}
	slices.Sort(names)
	return names
}

func checkOutcomes(t *rapid.T, d enforce.Decision) {
	refusing := map[string]bool{}
	for _, o := range d.Outcomes {
		switch o.Outcome {
		case tally.Refused:
			refusing[o.Rule.Name] = true
			fallthrough
		case tally.Allowed, tally.RefusedByOther:
			if o.WhatIf || o.Outcome == tally.Allowed && !d.Allowed || o.Outcome == tally.RefusedByOther && d.Allowed {
				t.Fatalf("%+v in %+v", o, d)
			}
		case tally.WouldAllow, tally.WouldRefuse:
			if !o.WhatIf {
				t.Fatalf("%+v binds", o)
			}
		default:
			t.Fatalf("outcome %q of a store that answers", o.Outcome)
		}
	}
	if d.Allowed != (len(refusing) == 0) || !d.Allowed && !refusing[d.Rule] {
		t.Fatalf("allowed %v by %q, refused by %v", d.Allowed, d.Rule, refusing)
	}
	for _, o := range d.Outcomes {
		others := len(refusing)
		if refusing[o.Rule.Name] {
			others--
		}
		if o.OtherRefused != (others > 0) || o.Beside != tally.BesideNone && !o.WhatIf {
			t.Fatalf("%+v, while %d other rules refuse", o, others)
		}
	}
}
