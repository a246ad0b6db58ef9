package enforce

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
)

// A Status is what one of several requests of a call meets by itself. The zero Status is that of a request which no rule
// binds.
type Status struct {
	// Refused: a binding version that the request meets refuses. The call is refused when one of its requests is.
	Refused bool
	// Unlimited: versions bind, and none of their limits counts anything.
	Unlimited bool
	// HideHeaders as in a [Decision]: of the rule that speaks here, or any that refuses here.
	HideHeaders bool
	// Rule and what follows describe the limit that speaks, as in a [Decision] but chosen among those that the request meets.
	// Rule is "" where no limit was asked: none binds, or the store did not answer.
	Rule  string
	Limit string
	Rate  rules.Rate // without a window where the rule refuses without a limit
	Left  int64
	Wait  time.Duration
}

// DecideEach is [Engine.DecideAll], and sets a status for each request, in order: there must be as many.
func (e *Engine) DecideEach(ctx context.Context, reqs []*rules.Request, statuses []Status) Decision {
	clear(statuses)
	return e.decideAll(ctx, reqs, statuses)
}

// part says that a version may bind for a request of the call.
type part struct{ request, version int }

// each sets the statuses of a call's requests. Verdicts is nil where the limiter did not answer, or was not asked.
func (a *asked) each(statuses []Status, verdicts []Verdict, d *Decision) {
	rest := a.parts
	for i := range statuses {
		n := 0
		for n < len(rest) && rest[n].request == i {
			n++
		}
		a.status(&statuses[i], rest[:n], verdicts, d.Outcomes)
		rest = rest[n:]
	}
}

func (a *asked) status(s *Status, parts []part, verdicts []Verdict, outcomes []VersionOutcome) {
	for _, p := range parts {
		s.Refused = s.Refused || outcomes[p.version].Outcome.Refuses()
	}
	speaker, binds, counts := -1, false, false
	for _, p := range parts {
		v := &a.versions[p.version]
		if v.whatIf { // it is frozen
			continue
		}
		binds, counts = true, counts || v.from < v.to
		if s.Refused && !outcomes[p.version].Outcome.Refuses() {
			continue
		}
		s.HideHeaders = s.HideHeaders || s.Refused && v.version.Spec.Response.Headers == rules.HeadersNone
		for c := v.from; c < v.to && verdicts != nil; c++ {
			if speaker < 0 || a.louder(verdicts, c, speaker, !s.Refused) { // what fits waits for nothing
				speaker = c
			}
		}
	}
	s.Unlimited = binds && !counts
	if speaker >= 0 {
		a.tell(s, speaker, verdicts[speaker])
	}
}

// tell describes the limit of a charge.
func (a *asked) tell(s *Status, charge int, verdict Verdict) {
	v, c := a.versionOf(charge), &a.charges[charge]
	s.HideHeaders = s.HideHeaders || v.version.Spec.Response.Headers == rules.HeadersNone
	s.Rule, s.Limit, s.Left, s.Wait = v.rule.Name, a.of[charge].limit, verdict.Left, verdict.Wait
	if v.denied == "" {
		s.Rate = c.rate()
	}
}

// planOf returns the plan of a version for a request: where the request brings a rate along, with that one. A version that
// is nil has none.
func (p *program) planOf(r *rules.Rule, v *rules.Version, req *rules.Request) *versionPlan {
	if req.Given == nil || v == nil {
		return p.plans[v]
	}
	spec := v.Spec
	spec.Limits = make([]rules.Limit, len(v.Spec.Limits))
	for i, l := range v.Spec.Limits {
		spec.Limits[i] = rules.Limit{Name: l.Name, Algorithm: l.Algorithm, Rate: *req.Given}
	}
	plan := planVersion(r, &spec, p.domain.Shard)
	for i := range plan.limits {
		// A counter that also serves requests with the limit's own rates is read with what those may have spent.
		if l, rate := &v.Spec.Limits[i], &plan.limits[i].rate; l.Window() == req.Given.Window {
			*rate = rate.under(l.Ceiling())
		}
	}
	return plan
}

// sameCounters reports whether two plans of one version count in the same counters.
func (v *versionPlan) sameCounters(o *versionPlan) bool {
	return v == o || slices.EqualFunc(v.limits, o.limits, func(a, b limitPlan) bool { return bytes.Equal(a.prefix, b.prefix) })
}
