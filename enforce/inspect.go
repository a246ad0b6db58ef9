package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
)

// Inquiry names one key of one rule.
type Inquiry struct {
	Domain, Rule string
	// Key are the values of the key of the stable version, of the candidate where there is none, in its order.
	Key []string
	// IP is where the cohort of a rule without a key is chosen by the client address; else it is not looked at.
	IP netip.Addr
	// Plan is the value of `limit.by`, such as the customer's plan; "": one that is not named in the rule.
	Plan string
}

// Inspection is where one key of a rule stands.
type Inspection struct {
	Rule     *rules.Rule
	Revision int64 // of the domain
	// InCohort says whether the candidate binds for the key; nil where it depends on the client address, which is not given.
	InCohort *bool
	Versions []InspectedVersion // the stable first
}

// Part says what a version does for a key.
type Part string

// The parts.
const (
	PartBinds  Part = "binds"
	PartWhatIf Part = "what-if"
	PartFrozen Part = "frozen" // what-if because of a freeze; else it would bind
	PartEither Part = "either" // binds or is what-if, by the client address
)

// InspectedVersion is where the key stands with one version of the rule.
type InspectedVersion struct {
	Version     *rules.Version
	Part        Part
	FrozenUntil time.Time
	// Unknown says why there are no limits: the version's key has values that were not given.
	Unknown string
	Limits  []InspectedLimit
}

// InspectedLimit is where the key stands with one limit. A limit that is unlimited counts nothing: its Rate says so, and
// the numbers are 0.
type InspectedLimit struct {
	Name     string
	Rate     rules.Rate // for this key: of its plan, or of an override
	Override time.Time  // until when an override holds; zero: there is none
	Spent    int64
	Left     int64
	// Wait is the time until a call of cost 1 fits: 0, or Never where no waiting helps. Reset is that until nothing of
	// what was spent counts any more.
	Wait, Reset time.Duration
}

// Inspect looks at the counters of one key, and changes none. What-if counters are shown as they are once met: one on
// which nothing stands begins as a copy of the actual one, so it is shown as that. The error is a [rules.ErrNotFound], a
// [rules.ErrInvalid] that names the parts of the key and no value, or a [rules.ErrUnavailable] where the store does not
// answer.
func (e *Engine) Inspect(ctx context.Context, q Inquiry) (*Inspection, error) {
	p := (*e.programs.Load())[q.Domain]
	if p == nil {
		return nil, fmt.Errorf("%w: domain %q is not in force here", rules.ErrNotFound, q.Domain)
	}
	all := p.index.Rules()
	at := slices.IndexFunc(all, func(r *rules.Rule) bool { return r.Name == q.Rule })
	if at < 0 {
		return nil, fmt.Errorf("%w: rule %q is not in force here", rules.ErrNotFound, q.Rule)
	}
	i := inspector{program: p, rule: all[at], names: newNamer(p.index.Domain.Secret), inquiry: &q}
	if err := i.prepare(); err != nil {
		return nil, err
	}
	if len(i.charges) > 0 {
		verdicts, err := e.limiter.Decide(context.WithoutCancel(ctx), i.charges)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: the store of counters does not answer", rules.ErrUnavailable), err)
		}
		i.read(verdicts)
	}
	return &i.found, nil
}

// inspector collects what is asked, and where its answers belong.
type inspector struct {
	program *program
	rule    *rules.Rule
	names   namer
	inquiry *Inquiry
	asked   asked // for its clock
	found   Inspection
	charges []Charge
	places  []place
}

// place is the limit that two charges are about: one of cost 1, and one of all that the limit can hold. Where tried is
// set, two more ask for the what-if counter.
type place struct {
	version, limit int
	from           int
	tried          bool
}

func (i *inspector) prepare() error {
	r := i.rule
	main := r.Stable
	if main == nil {
		main = r.Candidate
	}
	key, err := rules.KeyOfValues(&main.Spec, i.inquiry.Key)
	if err != nil {
		return err
	}
	i.found = Inspection{Rule: r, Revision: i.program.index.Domain.Revision, InCohort: i.cohort(key)}
	for _, v := range []*rules.Version{r.Stable, r.Candidate} {
		if v != nil {
			i.version(main, v)
		}
	}
	return nil
}

// cohort reports on which side the key is, as [rules.Rule.InCohort] does for its requests.
func (i *inspector) cohort(key rules.Key) *bool {
	r, is := i.rule, false
	switch {
	case r.Candidate == nil || r.Percent == 0:
	case r.Percent == rules.AllKeys:
		is = true
	case !key.Shared():
		is = rules.CohortPosition(r.UID, r.Salt, key.Encoded()) < r.Percent
	case !i.inquiry.IP.IsValid():
		return nil
	default:
		is = r.InCohort(&rules.Request{IP: i.inquiry.IP})
	}
	return &is
}

// version adds a version, and the charges that ask for its limits.
func (i *inspector) version(main, v *rules.Version) {
	out := InspectedVersion{Version: v, Part: i.part(v)}
	key, known := i.keyOf(main, v)
	if out.Part != PartWhatIf && len(i.program.domain.Freezes) > 0 {
		if f := i.program.domain.Frozen(i.rule.Name, &v.Spec, i.asked.at(i.program)); f != nil {
			out.Part, out.FrozenUntil = PartFrozen, f.Until
		}
	}
	if !known {
		out.Unknown = "its key has other values"
		i.found.Versions = append(i.found.Versions, out)
		return
	}
	a := askedVersion{rule: i.rule, version: v, plan: i.program.plans[v], whatIf: out.Part == PartWhatIf, key: key}
	for n := range a.plan.limits {
		a.numbers[n] = a.plan.limits[n].numbersOf(i.inquiry.Plan)
	}
	planned := a.numbers
	if len(a.plan.overrides) > 0 {
		i.asked.override(i.program, &a)
	}
	at := len(i.found.Versions)
	for n := range v.Spec.Limits {
		l := &v.Spec.Limits[n]
		limit := InspectedLimit{Name: l.Name, Rate: rules.Rate{Unlimited: true}}
		if m := slices.IndexFunc(a.plan.limits, func(p limitPlan) bool { return p.limit == l }); m >= 0 {
			if a.numbers[m] != planned[m] {
				limit.Override = a.overridden(m)
			}
			if a.numbers[m].Window > 0 {
				i.ask(&a, m, place{version: at, limit: len(out.Limits)})
				limit.Rate = i.charges[len(i.charges)-1].rate()
			}
		}
		out.Limits = append(out.Limits, limit)
	}
	i.found.Versions = append(i.found.Versions, out)
}

func (i *inspector) part(v *rules.Version) Part {
	switch in := i.found.InCohort; {
	case in == nil:
		return PartEither
	case *in == (v == i.rule.Candidate):
		return PartBinds
	}
	return PartWhatIf
}

// keyOf returns the version's key for the values, which are those of main.
func (i *inspector) keyOf(main, v *rules.Version) (rules.Key, bool) {
	values := make([]string, len(v.Spec.Key))
	for n, part := range v.Spec.Key {
		at := slices.IndexFunc(main.Spec.Key, func(k rules.KeySource) bool { return k.Source == part.Source })
		if at < 0 {
			return rules.Key{}, false
		}
		values[n] = i.inquiry.Key[at]
	}
	key, err := rules.KeyOfValues(&v.Spec, values)
	return key, err == nil
}

// overridden returns until when the limit's numbers are those of an override.
func (v *askedVersion) overridden(limit int) time.Time {
	i := slices.IndexFunc(v.plan.overrides, func(o overridePlan) bool { return o.limit == limit && o.numbers == v.numbers[limit] })
	return v.plan.overrides[i].until
}

// ask adds the charges for a limit. As what-if versions that own nothing, and decide by the counter that they name as the
// actual one, they make no limiter write.
func (i *inspector) ask(a *askedVersion, limit int, at place) {
	l := &a.plan.limits[limit]
	at.from = len(i.charges)
	tag, numbers := i.names.tag(a.plan, a.key, i.names.key(a.plan, a.key)), a.numbers[limit]
	add := func(id [16]byte) {
		for _, cost := range []int64{1, numbers.Burst} {
			counter := Counter{Tag: tag, ID: id}
			i.charges = append(i.charges, Charge{
				Version: len(i.charges), WhatIf: true, Cost: cost, Limit: numbers, Tick: l.tick, Decides: counter, Actual: counter,
			})
		}
	}
	add(i.names.counter(l, a.key, roleActual, 0))
	if role := a.counters(); role != roleActual {
		at.tried = true
		add(i.names.counter(l, a.key, role, i.rule.Epoch))
	}
	i.places = append(i.places, at)
}

// read puts the verdicts into their places.
func (i *inspector) read(verdicts []Verdict) {
	for _, at := range i.places {
		from := at.from
		if at.tried && verdicts[from+3].Wait != 0 { // something stands on the what-if counter
			from += 2
		}
		c, one, all := &i.charges[from], verdicts[from], verdicts[from+1]
		l := &i.found.Versions[at.version].Limits[at.limit]
		l.Left, l.Wait, l.Reset = one.Left, one.Wait, all.Wait
		if c.Limit.Amount > 0 {
			l.Spent = c.Limit.Burst - one.Left
		}
	}
}

// numbersOf returns the limit's numbers for a value of its By; without a window where it is unlimited.
func (l *limitPlan) numbersOf(plan string) Limit {
	rate, named := l.limit.Values[plan]
	switch {
	case !named && l.limit.Rate.Unlimited || rate.Unlimited:
		return Limit{}
	case named:
		return l.values[plan]
	}
	return l.rate
}
