package enforce

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// compose makes the decision out of the verdicts, one for each charge.
func (a *asked) compose(verdicts []Verdict) Decision {
	d := Decision{Allowed: true, ExpressionsFailed: a.failed}
	refusing := map[*rules.Rule]bool{} // stays empty, and costs nothing, on allowed requests
	for i := range a.versions {
		if v := &a.versions[i]; !v.whatIf && !fits(verdicts[v.from:v.to]) {
			refusing[v.rule] = true
		}
	}
	d.Allowed = len(refusing) == 0
	d.Outcomes = make([]VersionOutcome, len(a.versions))
	speaker := -1
	for i := range a.versions {
		v := &a.versions[i]
		ok := fits(verdicts[v.from:v.to])
		d.Outcomes[i] = a.outcome(i, decidedOutcome(v.whatIf, ok, d.Allowed), refusing)
		if !ok {
			d.Outcomes[i].Limit = a.refusing(v, verdicts)
		}
		if v.whatIf || !d.Allowed && ok {
			continue
		}
		d.HideHeaders = d.HideHeaders || !d.Allowed && v.version.Spec.Response.Headers == rules.HeadersNone
		for c := v.from; c < v.to; c++ {
			if verdicts[c].Fits != d.Allowed {
				continue
			}
			if !d.Allowed {
				a.violated(&d, c)
			}
			if speaker < 0 || a.louder(verdicts, c, speaker, d.Allowed) {
				speaker = c
			}
		}
	}
	a.besides(d.Outcomes)
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

func decidedOutcome(whatIf, ok, admitted bool) tally.Outcome {
	switch {
	case whatIf && ok:
		return tally.WouldAllow
	case whatIf:
		return tally.WouldRefuse
	case !ok:
		return tally.Refused
	case !admitted:
		return tally.RefusedByOther
	}
	return tally.Allowed
}

func (a *asked) outcome(version int, o tally.Outcome, refusing map[*rules.Rule]bool) VersionOutcome {
	v := &a.versions[version]
	others := len(refusing)
	if others > 0 && refusing[v.rule] {
		others--
	}
	return VersionOutcome{
		Rule: v.rule, Version: v.version, Request: v.request, Key: v.id, Values: v.key,
		WhatIf: v.whatIf, Outcome: o, Limit: tally.NoLimit, OtherRefused: others > 0,
	}
}

// besides notes beside each what-if outcome the binding one of the same rule and request.
func (a *asked) besides(outcomes []VersionOutcome) {
	for i := range outcomes {
		for j := range outcomes {
			if outcomes[i].WhatIf && !outcomes[j].WhatIf && a.versions[i].rule == a.versions[j].rule && a.versions[i].request == a.versions[j].request {
				outcomes[i].Beside = tally.BesideOf(outcomes[j].Outcome)
			}
		}
	}
}

// refusing returns the position in the spec of the limit that speaks among those by which a version refuses.
func (a *asked) refusing(v *askedVersion, verdicts []Verdict) int {
	if v.denied != "" {
		return tally.NoLimit
	}
	speaker := -1
	for c := v.from; c < v.to; c++ {
		if !verdicts[c].Fits && (speaker < 0 || a.louder(verdicts, c, speaker, false)) {
			speaker = c
		}
	}
	return v.position(speaker - v.from)
}

// louder reports whether charge c speaks before charge b. Among refusals the longer wait does, and one that no waiting
// ends before all others; among allowed charges the one with fewer left, then the longer wait until there is more. Ties
// go to the name.
func (a *asked) louder(verdicts []Verdict, c, b int, allowed bool) bool {
	x, y := verdicts[c], verdicts[b]
	switch {
	case allowed && x.Left != y.Left:
		return x.Left < y.Left
	case x.Wait != y.Wait:
		return y.Wait != Never && (x.Wait == Never || x.Wait > y.Wait)
	}
	return strings.Compare(a.fullName(c), a.fullName(b)) < 0
}

func (a *asked) fullName(charge int) string {
	return a.versionOf(charge).rule.Name + "/" + a.of[charge].limit
}

// violated notes that the charge's limit refuses.
func (a *asked) violated(d *Decision, charge int) {
	if v := a.versionOf(charge); v.denied == "" {
		d.violated(v.rule.Name, a.of[charge].limit)
	}
}

func (d *Decision) violated(rule, limit string) {
	if name := PolicyName(rule, limit); !slices.Contains(d.Violated, name) {
		d.Violated = append(d.Violated, name)
	}
}

func (a *asked) versionOf(charge int) *askedVersion { return &a.versions[a.of[charge].version] }

func (a *asked) speak(d *Decision, charge int, verdict Verdict) {
	v := a.versionOf(charge)
	response := v.version.Spec.Response
	c := &a.charges[charge]
	d.Rule, d.Version, d.Limit = v.rule.Name, v.version.Number, a.of[charge].limit
	d.Rate, d.Left, d.Wait = c.rate(), verdict.Left, verdict.Wait
	d.Headers, d.HideHeaders = response.Headers, d.HideHeaders || response.Headers == rules.HeadersNone
	if d.Allowed {
		return
	}
	d.Status, d.Title, d.Reason = response.StatusCode(), response.Title, ReasonOverLimit
	switch {
	case v.denied != "":
		d.Status, d.Title, d.Reason, d.Rate = http.StatusBadRequest, "", v.denied, rules.Rate{}
	case c.Cost > c.Limit.Burst && c.Limit.Amount > 0:
		d.Reason = ReasonCostExceedsLimit
	}
}

// rate returns the numbers of the charge's limit as a rule says them.
func (c *Charge) rate() rules.Rate {
	r := rules.Rate{Amount: c.Limit.Amount, Window: time.Duration(c.Limit.Window) * c.Tick, Burst: c.Limit.Burst}
	if r.Amount == 0 {
		r.Burst = 0
	}
	return r
}

// withoutStore makes the decision by the failure modes. It is refused if any binding version fails closed, or refuses by
// itself; else the versions that count locally are asked, all or none.
func (a *asked) withoutStore(ctx context.Context, local Limiter) Decision {
	d := Decision{Allowed: true, ExpressionsFailed: a.failed}
	var counted asked // the local charges, version by version as in a
	closed := func(v *askedVersion) bool {
		mode := v.version.Spec.Failure.Mode
		return v.denied == "" && (mode == rules.FailClosed || mode == rules.FailLocal && local == nil)
	}
	refusing := map[*rules.Rule]bool{}
	for i := range a.versions {
		v := &a.versions[i]
		switch {
		case v.whatIf:
			continue
		case v.denied != "":
			a.refuseAlone(&d, v, http.StatusBadRequest, v.denied, Never)
		case closed(v):
			a.refuseAlone(&d, v, http.StatusServiceUnavailable, ReasonStoreUnavailable, storeRetry)
			d.violated(v.rule.Name, "")
		case v.version.Spec.Failure.Mode == rules.FailLocal:
			a.countLocally(&counted, i)
			continue
		default:
			continue
		}
		refusing[v.rule] = true
	}
	refusedLocally := map[int]bool{}
	if d.Allowed && len(counted.charges) > 0 {
		a.askLocal(ctx, local, &counted, &d, refusing, refusedLocally)
	}
	d.Outcomes = make([]VersionOutcome, len(a.versions))
	for i := range a.versions {
		d.Outcomes[i] = a.outcome(i, a.failedOutcome(i, &d, closed, refusedLocally), refusing)
	}
	a.besides(d.Outcomes)
	return d
}

// refuseAlone makes a version speak that refuses without a counter; of several the one that waiting does not help, then
// the first by name.
func (a *asked) refuseAlone(d *Decision, v *askedVersion, status int, reason Reason, wait time.Duration) {
	d.HideHeaders = d.HideHeaders || v.version.Spec.Response.Headers == rules.HeadersNone
	if !d.Allowed && (d.Wait == Never && wait != Never || (d.Wait == Never) == (wait == Never) && d.Rule < v.rule.Name) {
		return
	}
	d.Allowed, d.Rule, d.Version, d.Status, d.Reason, d.Wait = false, v.rule.Name, v.version.Number, status, reason, wait
}

// countLocally adds the local charge of a version: the number of its failure mode, for the key of its first limit.
func (a *asked) countLocally(counted *asked, version int) {
	v := &a.versions[version]
	if v.from == v.to {
		return // unlimited
	}
	c := a.charges[v.from]
	rate := v.version.Spec.Failure.Local
	c.Tick = rules.Tick(rate.Window)
	c.Limit = NewLimit(&rules.Limit{Algorithm: rules.TokenBucket, Rate: rate}, rate)
	c.Decides, c.Owns = c.Actual, true
	counted.charges = append(counted.charges, c)
	counted.of = append(counted.of, chargeOf{version, "local"})
}

// askLocal asks the local limiter, and makes its refusal speak.
func (a *asked) askLocal(ctx context.Context, local Limiter, counted *asked, d *Decision, refusing map[*rules.Rule]bool, refused map[int]bool) {
	verdicts, err := local.Decide(ctx, counted.charges)
	if err != nil {
		return // it must not fail
	}
	counted.versions = a.versions
	speaker := -1
	for i := range counted.charges {
		if verdicts[i].Fits {
			continue
		}
		d.Allowed = false
		counted.violated(d, i)
		refused[counted.of[i].version] = true
		refusing[counted.versionOf(i).rule] = true
		if speaker < 0 || counted.louder(verdicts, i, speaker, false) {
			speaker = i
		}
	}
	if speaker >= 0 {
		counted.speak(d, speaker, verdicts[speaker])
	}
}

func (a *asked) failedOutcome(version int, d *Decision, closed func(*askedVersion) bool, refusedLocally map[int]bool) tally.Outcome {
	v := &a.versions[version]
	counts := v.version.Spec.Failure.Mode == rules.FailLocal && v.from < v.to
	switch {
	case v.whatIf:
		return tally.Unknown
	case v.denied != "":
		return tally.Refused
	case closed(v):
		return tally.FailedClosed
	case refusedLocally[version]:
		return tally.LocalRefused
	case !d.Allowed:
		return tally.RefusedByOther
	case counts:
		return tally.LocalAllowed
	}
	return tally.FailedOpen
}
