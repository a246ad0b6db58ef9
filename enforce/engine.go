package enforce

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/rules"
)

// Engine decides requests by the rules in force.
type Engine struct {
	limiter  Limiter
	recorder Recorder
	log      *slog.Logger

	mu       sync.Mutex // serialises Swap
	programs atomic.Pointer[map[string]*program]
}

// program is one revision of a domain made ready for requests. It is immutable.
type program struct {
	index *rules.Index
	plans map[*rules.Version]*versionPlan
}

// NewEngine returns an engine with no rules: it allows every request until Swap is called.
func NewEngine(limiter Limiter, recorder Recorder, log *slog.Logger) *Engine {
	e := &Engine{limiter: limiter, recorder: recorder, log: log.With("component", "engine")}
	e.programs.Store(&map[string]*program{})
	return e
}

// Swap puts a domain's index in force, whole: every request sees the old one or the new one.
func (e *Engine) Swap(index *rules.Index) {
	p := &program{index: index, plans: map[*rules.Version]*versionPlan{}}
	for _, r := range index.Rules() {
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if v != nil {
				p.plans[v] = planVersion(r.UID, v.Spec)
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	programs := maps.Clone(*e.programs.Load())
	programs[index.Domain.Name] = p
	e.programs.Store(&programs)
}

// Decide answers one request. It waits for nothing but the limiter, and always answers: where the limiter fails, the
// rules' failure modes decide.
func (e *Engine) Decide(ctx context.Context, req *rules.Request) Decision {
	p := (*e.programs.Load())[req.Domain]
	if p == nil {
		d := Decision{Allowed: true}
		e.recorder.Record(req.Domain, &d)
		return d
	}
	asked := p.ask(req)
	d := Decision{Allowed: true}
	if len(asked.charges) > 0 {
		verdicts, err := e.limiter.Decide(ctx, asked.charges)
		if err != nil {
			e.log.Debug("limiter failed", "domain", req.Domain, "err", err)
			d = asked.withoutStore()
		} else {
			d = asked.compose(verdicts)
		}
	}
	d.Revision = p.index.Domain.Revision
	e.recorder.Record(req.Domain, &d)
	return d
}

// asked is one request's charges and the versions they belong to.
type asked struct {
	versions []askedVersion
	charges  []Charge
	limits   []string // the limit of each charge
}

type askedVersion struct {
	rule    *rules.Rule
	version *rules.Version
	whatIf  bool
	from    int // its charges are charges[from:to]
	to      int
}

// cost of a request, until specs have costs.
const cost = 1

func (p *program) ask(req *rules.Request) asked {
	var a asked
	n := newNamer(p.index.Domain.Secret)
	for i, hit := range p.index.Lookup(req) {
		before := len(a.charges)
		if hit.Binding != nil {
			p.askVersion(&a, &n, req, hit, i, false)
		}
		if hit.WhatIf != nil {
			p.askVersion(&a, &n, req, hit, i, true)
		}
		own(a.charges[before:], func(c *Charge) bool {
			return a.versions[c.Version].version == hit.Rule.Stable
		})
	}
	return a
}

func (p *program) askVersion(a *asked, n *namer, req *rules.Request, hit rules.Hit, rule int, whatIf bool) {
	version, what := hit.Binding, roleActual
	if whatIf {
		version = hit.WhatIf
	}
	plan := p.plans[version]
	key := rules.KeyOf(plan.key, req)
	isCandidate := version == hit.Rule.Candidate
	switch {
	case whatIf && isCandidate:
		what = roleCandidate
	case whatIf:
		what = roleStable
	case isCandidate && sharedByCohort(hit.Rule, key):
		// One actual counter serves callers on both sides of the cohort, so it cannot tell what the candidate would have
		// admitted: its what-if counter decides for the cohort.
		what = roleCandidate
	}
	v := askedVersion{rule: hit.Rule, version: version, whatIf: whatIf, from: len(a.charges)}
	tag := n.tag(plan, key)
	for i := range plan.limits {
		l := &plan.limits[i]
		c := Charge{
			Rule: rule, Version: len(a.versions), WhatIf: whatIf, Cost: cost, Limit: l.params, Tick: l.tick,
			Actual: Counter{Tag: tag, ID: n.counter(l, key, roleActual, 0)},
		}
		c.Decides = c.Actual
		if what != roleActual {
			c.Decides.ID = n.counter(l, key, what, hit.Rule.Epoch)
		}
		a.charges = append(a.charges, c)
		a.limits = append(a.limits, l.name)
	}
	v.to = len(a.charges)
	a.versions = append(a.versions, v)
}

// sharedByCohort reports whether the candidate's actual counter is used on both sides of the cohort: with no key, with a
// missing value, or with another key than the stable's, by which the cohort is chosen.
func sharedByCohort(r *rules.Rule, key rules.Key) bool {
	return key.Shared() || r.Stable != nil && !slices.Equal(r.Stable.Spec.Key, r.Candidate.Spec.Key)
}

// own marks, for each actual counter of one rule's charges, the charge that owns it: the binding one that decides by it,
// else the stable's, else the first.
func own(charges []Charge, stable func(*Charge) bool) {
	rank := func(c *Charge) int {
		switch {
		case c.Decides == c.Actual:
			return 2
		case stable(c):
			return 1
		}
		return 0
	}
	for i := range charges {
		c := &charges[i]
		c.Owns = true
		for j := range charges {
			other := &charges[j]
			if other.Actual == c.Actual && (rank(other) > rank(c) || rank(other) == rank(c) && j < i) {
				c.Owns = false
				break
			}
		}
	}
}
