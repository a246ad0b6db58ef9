package enforce

import (
	"bytes"
	"math"
	"slices"

	"github.com/headgate/headgate/rules"
)

// asked is one request's charges and the versions they belong to.
type asked struct {
	rules    []*rules.Rule
	versions []askedVersion
	charges  []Charge
	limits   []string // the limit of each charge
	failed   int      // versions that apply only because their expression could not be evaluated
}

type askedVersion struct {
	rule    *rules.Rule
	version *rules.Version
	whatIf  bool
	key     rules.Key
	request *rules.Request // which the key is of
	denied  Reason         // refuses without asking a counter
	// other is, for a what-if version, the one that would bind: a counter it has is not to be touched by a version that is
	// only judged, where it does not charge it itself for this request.
	other *versionPlan
	from  int // its charges are charges[from:to]
	to    int
}

// ask makes the charges of all versions that match; or names the exemption that the requests meet.
func (p *program) ask(reqs []*rules.Request) (a asked, exempt string) {
	n := newNamer(p.index.Domain.Secret)
	var buffer [16]rules.Hit
	for _, req := range reqs {
		if name, is := p.index.Exempt(req); is {
			return asked{}, name
		}
		for _, hit := range p.index.Lookup(req, buffer[:0]) {
			a.failed += hit.Failed
			if hit.Binding != nil {
				p.askVersion(&a, &n, req, hit, false)
			}
			if hit.WhatIf != nil {
				p.askVersion(&a, &n, req, hit, true)
			}
		}
	}
	a.own()
	return a, ""
}

func (a *asked) ruleNumber(r *rules.Rule) int {
	if i := slices.Index(a.rules, r); i >= 0 {
		return i
	}
	a.rules = append(a.rules, r)
	return len(a.rules) - 1
}

func (p *program) askVersion(a *asked, n *namer, req *rules.Request, hit rules.Hit, whatIf bool) {
	version := hit.Binding
	if whatIf {
		version = hit.WhatIf
	}
	plan := p.plans[version]
	v := askedVersion{
		rule: hit.Rule, version: version, whatIf: whatIf, key: rules.KeyOf(plan.spec, req), request: req, from: len(a.charges),
	}
	if whatIf {
		v.other = p.plans[hit.Rule.Other(version)]
	}
	missing := rules.MissingShared
	if v.key.Missing() {
		missing = plan.spec.Missing(req)
	}
	if missing == rules.MissingSkip {
		return // the rule does not apply
	}
	spend := saturated(plan.spec.CostOf(req), req.Hits)
	if a.raise(&v, spend) {
		return
	}
	rule, tag := a.ruleNumber(hit.Rule), n.tag(plan, v.key)
	switch {
	case v.key.Repeated():
		v.denied = ReasonMalformed
	case missing == rules.MissingRefuse:
		v.denied = ReasonMissingKey
	}
	if v.denied != "" {
		a.charges = append(a.charges, denied(rule, len(a.versions), whatIf, tag))
		a.limits = append(a.limits, "")
	} else {
		a.charge(n, &v, plan, rule, tag, spend)
	}
	v.to = len(a.charges)
	a.versions = append(a.versions, v)
}

// charge asks each limit of the version.
func (a *asked) charge(n *namer, v *askedVersion, plan *versionPlan, rule int, tag [16]byte, spend int64) {
	what := v.counters()
	for i := range plan.limits {
		l := &plan.limits[i]
		numbers, limited := l.numbers(plan.spec, v.request)
		if !limited {
			continue
		}
		c := Charge{
			Rule: rule, Version: len(a.versions), WhatIf: v.whatIf, Cost: spend, Limit: numbers, Tick: l.tick,
			Actual: Counter{Tag: tag, ID: n.counter(l, v.key, roleActual, 0)},
		}
		c.Owns = !v.other.has(l) || a.charged(c.Actual)
		c.Decides = c.Actual
		if what != roleActual {
			c.Decides.ID = n.counter(l, v.key, what, v.rule.Epoch)
		}
		a.charges = append(a.charges, c)
		a.limits = append(a.limits, l.limit.Name)
	}
}

// charged reports whether a charge was made for the counter. What binds is asked first.
func (a *asked) charged(actual Counter) bool {
	return slices.ContainsFunc(a.charges, func(c Charge) bool { return c.Actual == actual })
}

// has reports whether the version has a limit with the same counters.
func (v *versionPlan) has(l *limitPlan) bool {
	return v != nil && slices.ContainsFunc(v.limits, func(o limitPlan) bool { return bytes.Equal(o.prefix, l.prefix) })
}

// numbers returns the limit's numbers for a request; false when it is unlimited.
func (l *limitPlan) numbers(spec *rules.Spec, req *rules.Request) (Limit, bool) {
	if l.limit.By == nil {
		return l.rate, true
	}
	value, rate := l.limit.Choose(spec, req)
	switch numbers, ok := l.values[value]; {
	case rate.Unlimited:
		return Limit{}, false
	case ok:
		return numbers, true
	}
	return l.rate, true
}

// raise makes a version that was asked for the same key before charge the larger cost, and reports whether there is one.
func (a *asked) raise(v *askedVersion, spend int64) bool {
	for i := range a.versions {
		was := &a.versions[i]
		if was.version != v.version || was.whatIf != v.whatIf || !bytes.Equal(was.key.Encoded(), v.key.Encoded()) {
			continue
		}
		for c := was.from; c < was.to; c++ {
			a.charges[c].Cost = max(a.charges[c].Cost, spend)
		}
		return true
	}
	return false
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

// counters says by which counters the version decides.
func (v *askedVersion) counters() role {
	isCandidate := v.version == v.rule.Candidate
	switch {
	case v.whatIf && isCandidate:
		return roleCandidate
	case v.whatIf:
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

// own leaves, for each actual counter, one owner among the charges that may own it: the binding one that decides by it,
// else the stable's, else the first.
func (a *asked) own() {
	rank := func(c *Charge) int {
		v := &a.versions[c.Version]
		switch {
		case c.Decides == c.Actual:
			return 2
		case v.version == v.rule.Stable:
			return 1
		}
		return 0
	}
	for i := range a.charges {
		c := &a.charges[i]
		v := &a.versions[c.Version]
		bothSides := v.key.Shared() && v.rule.Percent > 0 // of a cohort are served by this counter
		for j := range a.charges {
			other := &a.charges[j]
			if j == i || other.Actual != c.Actual {
				continue
			}
			if other.Owns && (rank(other) > rank(c) || rank(other) == rank(c) && j < i) {
				c.Owns = false
			}
			if bothSides {
				c.Keep = max(c.Keep, other.Limit.Ceiling)
			}
		}
	}
}
