package enforce

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// asked is one request's charges and the versions they belong to.
type asked struct {
	rules    []*rules.Rule
	versions []askedVersion
	charges  []Charge
	of       []chargeOf // for each charge
	parts    []part     // for each request in order, the versions that may bind; kept only where each gets a status
	failed   int        // versions that apply only because their expression could not be evaluated
	now      time.Time
}

// at returns the time by which freezes and overrides end. Only where there are any is the clock read, once a call.
func (a *asked) at(p *program) time.Time {
	if a.now.IsZero() {
		a.now = p.clock()
	}
	return a.now
}

// chargeOf is what a charge is of.
type chargeOf struct {
	version int // in asked.versions
	limit   string
}

type askedVersion struct {
	rule    *rules.Rule
	version *rules.Version
	plan    *versionPlan
	whatIf  bool
	decides role  // by which counters it decides
	frozen  int64 // above 0: it is what-if because of a freeze, and else would bind; names its counters
	key     rules.Key
	id      tally.KeyID    // of the key
	request *rules.Request // which the key is of
	denied  Reason         // refuses without asking a counter
	spend   int64
	numbers [rules.MaxLimits]Limit // of each limit of the plan; without a window it is unlimited
	from    int                    // its charges are charges[from:to]
	to      int
}

// ask makes the charges of all versions that match. Exempt descriptors meet no rule; when all of them are exempt, it
// returns the name of an exemption.
func (p *program) ask(reqs []*rules.Request, each bool) (a asked, exempt string) {
	var buffer [16]rules.Hit
	met := false
	if each {
		a.parts = make([]part, 0, len(reqs))
	}
	for i, req := range reqs {
		if name, is := p.index.Exempt(req); is {
			exempt = name
			continue
		}
		met = true
		for _, hit := range p.index.Lookup(req, buffer[:0]) {
			a.failed += hit.Failed
			if hit.Binding != nil {
				version, applies := a.meet(p, req, hit.Rule, hit.Binding, false, a.frozen(p, hit.Rule, hit.Binding))
				if each && applies {
					a.parts = append(a.parts, part{i, version})
				}
			}
			if hit.WhatIf != nil {
				a.meet(p, req, hit.Rule, hit.WhatIf, true, 0)
			}
		}
	}
	if !met {
		return asked{}, exempt
	}
	n := newNamer(p.index.Domain.Secret)
	for i := range a.versions {
		a.charge(p, &n, i)
	}
	a.own()
	return a, ""
}

// frozen returns the name of the freeze that keeps a version from binding: its end, in microseconds, so that every
// sidecar has the same. 0 for none.
func (a *asked) frozen(p *program, rule *rules.Rule, binding *rules.Version) int64 {
	if len(p.domain.Freezes) == 0 {
		return 0
	}
	f := p.domain.Frozen(rule.Name, &binding.Spec, a.at(p))
	if f == nil {
		return 0
	}
	return f.Until.UnixMicro()
}

// meet notes a version that matches, with what it is to be asked. Met again with the same key, it is asked once, with the
// larger cost and the stricter numbers: so the order of descriptors changes nothing, and none of them avoids a limit. It
// returns where the version is noted, or that the rule does not apply.
func (a *asked) meet(
	p *program, req *rules.Request, rule *rules.Rule, version *rules.Version, whatIf bool, frozen int64,
) (at int, applies bool) {
	plan := p.planOf(rule, version, req)
	whatIf = whatIf || frozen > 0
	v := askedVersion{
		rule: rule, version: version, plan: plan, whatIf: whatIf, frozen: frozen, key: rules.KeyOf(plan.spec, req), request: req,
	}
	missing := rules.MissingShared
	if v.key.Missing() {
		missing = plan.spec.Missing(req)
	}
	switch {
	case missing == rules.MissingSkip:
		return 0, false
	case v.key.Repeated():
		v.denied = ReasonMalformed
	case missing == rules.MissingRefuse:
		v.denied = ReasonMissingKey
	}
	v.spend = saturated(plan.spec.CostOf(req), req.Hits)
	for i := range plan.limits {
		v.numbers[i] = plan.limits[i].numbers(plan.spec, req)
	}
	if len(plan.overrides) > 0 {
		a.override(p, &v)
	}
	for i := range a.versions {
		was := &a.versions[i]
		if was.version != version || was.whatIf != whatIf || !bytes.Equal(was.key.Encoded(), v.key.Encoded()) || !was.plan.sameCounters(plan) {
			continue
		}
		was.spend, was.denied, was.frozen = max(was.spend, v.spend), cmp.Or(was.denied, v.denied), max(was.frozen, v.frozen)
		for n := range was.numbers {
			was.numbers[n] = stricter(was.numbers[n], v.numbers[n])
		}
		return i, true
	}
	a.versions = append(a.versions, v)
	return len(a.versions) - 1, true
}

// override replaces the numbers of limits that have others for the version's key.
func (a *asked) override(p *program, v *askedVersion) {
	now := a.at(p)
	// It is hashed only where an override is in force.
	var key rules.OverrideKey
	for _, o := range slices.Backward(v.plan.overrides) { // the first one has the last word
		if !now.Before(o.until) {
			continue
		}
		if key == (rules.OverrideKey{}) {
			key = rules.NewOverrideKey(p.domain.Secret, v.rule.UID, v.plan.spec, v.key)
		}
		if o.key == key {
			v.numbers[o.limit] = o.numbers
		}
	}
}

// stricter is what fits both of two rates of one limit.
func stricter(a, b Limit) Limit {
	switch {
	case a.Window == 0:
		return b
	case b.Window != 0:
		a.Amount, a.Burst, a.Ceiling = min(a.Amount, b.Amount), min(a.Burst, b.Burst), max(a.Ceiling, b.Ceiling)
	}
	return a
}

func (a *asked) ruleNumber(r *rules.Rule) int {
	if i := slices.Index(a.rules, r); i >= 0 {
		return i
	}
	a.rules = append(a.rules, r)
	return len(a.rules) - 1
}

// versionNumber is the same for all keys of a version.
func (a *asked) versionNumber(v *rules.Version) int {
	for i := range a.versions {
		if a.versions[i].version == v {
			return i
		}
	}
	return len(a.versions)
}

// charge asks each limit of a version.
func (a *asked) charge(p *program, n *namer, version int) {
	v := &a.versions[version]
	v.from = len(a.charges)
	v.id = n.key(v.plan, v.key)
	rule, number, tag := a.ruleNumber(v.rule), a.versionNumber(v.version), n.tag(v.plan, v.key, v.id)
	if v.denied != "" {
		a.charges = append(a.charges, denied(rule, number, v.whatIf, tag))
		a.of = append(a.of, chargeOf{version: version})
		v.to = len(a.charges)
		return
	}
	// A counter of the version that binds, or would if it were not frozen, is not to be touched by one that is only judged,
	// where the former does not charge it itself for this request.
	var other *versionPlan
	if v.whatIf && v.frozen == 0 {
		other = p.planOf(v.rule, v.rule.Other(v.version), v.request)
	}
	v.decides = v.counters()
	for i := range v.plan.limits {
		l := &v.plan.limits[i]
		if v.numbers[i].Window == 0 {
			continue
		}
		c := Charge{
			Rule: rule, Version: number, WhatIf: v.whatIf, Cost: v.spend, Limit: v.numbers[i], Tick: l.tick,
			Actual: Counter{Tag: tag, ID: n.counter(l, v.key, roleActual, 0)},
		}
		c.Owns = !other.has(l) || a.charged(c.Actual)
		c.Decides = c.Actual
		switch {
		case v.decides != roleActual:
			c.Decides.ID = n.counter(l, v.key, v.decides, v.rule.Epoch)
		case v.frozen > 0:
			c.Decides.ID = n.counter(l, v.key, roleFrozen, v.frozen)
		}
		a.charges = append(a.charges, c)
		a.of = append(a.of, chargeOf{version, l.limit.Name})
	}
	v.to = len(a.charges)
}

// position returns which limit of the spec the version's n-th charge is of.
func (v *askedVersion) position(n int) int {
	for i := range v.plan.limits {
		switch {
		case v.numbers[i].Window == 0: // unlimited: there is no charge
		case n == 0:
			return v.plan.limits[i].position
		default:
			n--
		}
	}
	return tally.NoLimit
}

// charged reports whether a charge was made for the counter. What binds, or is frozen, is asked first.
func (a *asked) charged(actual Counter) bool {
	return slices.ContainsFunc(a.charges, func(c Charge) bool { return c.Actual == actual })
}

// has reports whether the version has a limit with the same counters.
func (v *versionPlan) has(l *limitPlan) bool {
	return v != nil && slices.ContainsFunc(v.limits, func(o limitPlan) bool { return bytes.Equal(o.prefix, l.prefix) })
}

// numbers returns the limit's numbers for a request; without a window where it is unlimited.
func (l *limitPlan) numbers(spec *rules.Spec, req *rules.Request) Limit {
	if l.limit.By == nil {
		return l.rate
	}
	value, rate := l.limit.Choose(spec, req)
	switch numbers, ok := l.values[value]; {
	case rate.Unlimited:
		return Limit{}
	case ok:
		return numbers
	}
	return l.rate
}

// saturated multiplies a cost with hits. Beyond 2^52 it stops: more than any limit can hold, and exact in Lua.
func saturated(cost, hits int64) int64 {
	const most = 1 << 52
	if cost == 0 || hits == 0 {
		return 0
	}
	if cost > most/max(hits, -hits) || hits == math.MinInt64 {
		if hits < 0 {
			return -most
		}
		return most
	}
	return cost * hits
}

// counters says by which counters the version decides. A frozen one that would decide by the actual counter has what-if
// counters that are the freeze's own, so that each freeze, and each that is extended, begins with a copy of what was
// admitted until then.
func (v *askedVersion) counters() role {
	isCandidate, tried := v.version == v.rule.Candidate, v.whatIf && v.frozen == 0
	switch {
	case tried && isCandidate:
		return roleCandidate
	case tried:
		return roleStable
	case isCandidate && sharedByCohort(v.rule, v.key):
		// One actual counter serves callers on both sides of the cohort, so it cannot tell what the candidate would have
		// admitted: its what-if counter decides for the cohort.
		return roleCandidate
	}
	return roleActual
}

// sharedByCohort reports whether the candidate's actual counter is used on both sides of the cohort: with no key, with a
// missing value, or with another key than the stable's, by which the cohort is chosen.
func sharedByCohort(r *rules.Rule, key rules.Key) bool {
	return key.Shared() || r.Stable != nil && !rules.SameKey(r.Stable.Spec.Key, r.Candidate.Spec.Key)
}

// own leaves, for each actual counter, one owner among the charges that may own it: the one that decides by it, or would
// if it were not frozen, else the stable's, else the first.
func (a *asked) own() {
	rank := func(charge int) int {
		v := a.versionOf(charge)
		switch {
		case v.decides == roleActual:
			return 2
		case v.version == v.rule.Stable:
			return 1
		}
		return 0
	}
	for i := range a.charges {
		c := &a.charges[i]
		v := a.versionOf(i)
		bothSides := v.key.Shared() && v.rule.Percent > 0 // of a cohort are served by this counter
		for j := range a.charges {
			other := &a.charges[j]
			if j == i || other.Actual != c.Actual {
				continue
			}
			if other.Owns && (rank(j) > rank(i) || rank(j) == rank(i) && j < i) {
				c.Owns = false
			}
			if bothSides {
				c.Keep = max(c.Keep, other.Limit.Ceiling)
			}
		}
	}
}
