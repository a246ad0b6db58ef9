package enforce

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate/rules"
)

// compose makes the decision out of the verdicts.
func (a *asked) compose(verdicts []Verdict) Decision {
	d := Decision{Allowed: true}
	refusals := 0
	for i := range a.versions {
		v := &a.versions[i]
		if !v.whatIf && !fits(verdicts[v.from:v.to]) {
			refusals++
		}
	}
	d.Allowed = refusals == 0
	d.Outcomes = make([]VersionOutcome, len(a.versions))
	speaker := -1
	for i := range a.versions {
		v := &a.versions[i]
		ok := fits(verdicts[v.from:v.to])
		d.Outcomes[i] = v.outcome(decidedOutcome(v.whatIf, ok, d.Allowed))
		if v.whatIf {
			continue
		}
		for c := v.from; c < v.to; c++ {
			if verdicts[c].Fits == d.Allowed && (speaker < 0 || a.louder(verdicts, c, speaker, d.Allowed)) {
				speaker = c
			}
		}
	}
	if speaker >= 0 {
		a.speak(&d, speaker, verdicts[speaker])
	}
	return d
}

func fits(verdicts []Verdict) bool {
	for i := range verdicts {
		if !verdicts[i].Fits {
			return false
		}
	}
	return true
}

func decidedOutcome(whatIf, ok, admitted bool) Outcome {
	switch {
	case whatIf && ok:
		return OutcomeWouldAllow
	case whatIf:
		return OutcomeWouldRefuse
	case !ok:
		return OutcomeRefused
	case !admitted:
		return OutcomeRefusedByOther
	}
	return OutcomeAllowed
}

// louder reports whether charge c speaks before charge b. Among refusals the longer wait does, and one that no waiting
// ends before all others; among allowed charges the one with fewer left. Ties go to the name.
func (a *asked) louder(verdicts []Verdict, c, b int, allowed bool) bool {
	x, y := verdicts[c], verdicts[b]
	switch {
	case allowed && x.Left != y.Left:
		return x.Left < y.Left
	case !allowed && x.Wait != y.Wait:
		return y.Wait != Never && (x.Wait == Never || x.Wait > y.Wait)
	}
	return strings.Compare(a.fullName(c), a.fullName(b)) < 0
}

func (a *asked) fullName(charge int) string {
	return a.versionOf(charge).rule.Name + "/" + a.limits[charge]
}

func (a *asked) versionOf(charge int) *askedVersion { return &a.versions[a.charges[charge].Version] }

func (a *asked) speak(d *Decision, charge int, verdict Verdict) {
	d.Rule, d.Limit, d.Left = a.versionOf(charge).rule.Name, a.limits[charge], verdict.Left
	if d.Allowed {
		return
	}
	d.Status, d.Wait, d.Reason = http.StatusTooManyRequests, verdict.Wait, ReasonOverLimit
	if c := &a.charges[charge]; c.Cost > c.Limit.Burst && c.Limit.Amount > 0 {
		d.Reason = ReasonCostExceedsLimit
	}
}

// withoutStore makes the decision by the failure modes: refused if any binding version fails closed.
func (a *asked) withoutStore() Decision {
	d := Decision{Allowed: true, Outcomes: make([]VersionOutcome, len(a.versions))}
	for i := range a.versions {
		v := &a.versions[i]
		if v.whatIf || v.version.Spec.Failure != rules.FailClosed {
			continue
		}
		if d.Allowed || v.rule.Name < d.Rule {
			d.Rule = v.rule.Name
		}
		d.Allowed, d.Status, d.Reason, d.Wait = false, http.StatusServiceUnavailable, ReasonStoreUnavailable, storeRetry
	}
	for i := range a.versions {
		v := &a.versions[i]
		switch {
		case v.whatIf:
			d.Outcomes[i] = v.outcome(OutcomeUnknown)
		case v.version.Spec.Failure == rules.FailClosed:
			d.Outcomes[i] = v.outcome(OutcomeFailedClosed)
		case !d.Allowed:
			d.Outcomes[i] = v.outcome(OutcomeRefusedByOther)
		default:
			d.Outcomes[i] = v.outcome(OutcomeFailedOpen)
		}
	}
	return d
}

func (v *askedVersion) outcome(o Outcome) VersionOutcome {
	return VersionOutcome{Rule: v.rule, Version: v.version.Number, Outcome: o}
}
