package enforce

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/rules"
)

// Engine decides requests by the rules in force.
type Engine struct {
	limiter  Limiter
	local    Local // for rules that fail to a local limit
	recorder Recorder
	clock    func() time.Time
	log      *slog.Logger

	storeDown atomic.Bool // as the limiter told

	mu       sync.Mutex                // serialises changes of what follows
	freezes  map[string][]rules.Freeze // by domain: those made here, one for each rule
	programs atomic.Pointer[map[string]*program]
}

// program is one revision of a domain made ready for requests. It is immutable.
type program struct {
	index *rules.Index
	plans map[*rules.Version]*versionPlan
	// domain is the index's, with the freezes that were made here beside its own.
	domain rules.Domain
	clock  func() time.Time
}

// Option changes an Engine.
type Option func(*Engine)

// Local is a limiter that counts in the process. It must not fail.
type Local interface {
	Limiter
	// Forget forgets every count.
	Forget()
}

// Watched is a limiter that knows, also while nobody asks it anything, whether its store answers. It tells each change
// once, in their order; until the first the store counts as up.
type Watched interface {
	Watch(changed func(up bool, cause error))
}

// WithLocal names the limiter that counts for rules with `failure: local` while the other one does not answer. Its counts
// end with the outage. Without it such rules fail closed: a limit that cannot be kept must not silently vanish.
func WithLocal(l Local) Option { return func(e *Engine) { e.local = l } }

// WithClock replaces the clock by which freezes and overrides end. Limits never depend on it.
func WithClock(now func() time.Time) Option { return func(e *Engine) { e.clock = now } }

// NewEngine returns an engine with no rules: it allows every request until Swap is called.
func NewEngine(limiter Limiter, recorder Recorder, log *slog.Logger, options ...Option) *Engine {
	e := &Engine{
		limiter: limiter, recorder: recorder, clock: time.Now, log: log.With("component", "engine"),
		freezes: map[string][]rules.Freeze{},
	}
	for _, o := range options {
		o(e)
	}
	e.programs.Store(&map[string]*program{})
	if w, ok := limiter.(Watched); ok {
		w.Watch(e.storeChanged)
	}
	return e
}

// Swap puts a domain's index in force, whole: every request sees the old one or the new one. Freezes made here stay.
func (e *Engine) Swap(index *rules.Index) {
	p := &program{index: index, plans: make(map[*rules.Version]*versionPlan, len(index.Rules())), clock: e.clock}
	p.plan((*e.programs.Load())[index.Domain.Name])
	e.mu.Lock()
	defer e.mu.Unlock()
	e.store(p)
}

// plan makes the plans, and takes those of the program before for the rules that are the same: mostly all but one. Was may
// be nil.
func (p *program) plan(was *program) {
	var old []*rules.Rule
	shard := p.index.Domain.Shard
	if was != nil && (shard == nil) == (was.domain.Shard == nil) && (shard == nil || *shard == *was.domain.Shard) {
		old = was.index.Rules()
	}
	for _, r := range p.index.Rules() {
		for len(old) > 0 && old[0].Name < r.Name {
			old = old[1:]
		}
		same := len(old) > 0 && old[0] == r
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			switch {
			case v == nil:
			case same:
				p.plans[v] = was.plans[v]
			default:
				p.plans[v] = planVersion(r, &v.Spec, shard)
			}
		}
	}
}

// store puts a program in force, with the freezes made here. The caller holds mu.
func (e *Engine) store(p *program) {
	p.domain = p.index.Domain
	p.domain.Freezes = slices.Concat(p.domain.Freezes, e.freezes[p.domain.Name])
	programs := maps.Clone(*e.programs.Load())
	programs[p.domain.Name] = p
	e.programs.Store(&programs)
}

// Index returns the rules in force of a domain; nil before its first Swap.
func (e *Engine) Index(domain string) *rules.Index {
	if p := (*e.programs.Load())[domain]; p != nil {
		return p.index
	}
	return nil
}

// Decide answers one request. It waits for nothing but the limiter, and always answers: where the limiter fails, the
// rules' failure modes decide.
func (e *Engine) Decide(ctx context.Context, req *rules.Request) Decision {
	return e.decideAll(ctx, []*rules.Request{req}, nil)
}

// DecideAll answers one call that is described several times, as by the descriptors of Envoy's rate limit service. All
// are of one domain. Within the call a rule is charged at most once for a key, with the largest cost. There must be one.
func (e *Engine) DecideAll(ctx context.Context, reqs []*rules.Request) Decision {
	return e.decideAll(ctx, reqs, nil)
}

// decideAll sets the statuses of the requests, where there are any.
func (e *Engine) decideAll(ctx context.Context, reqs []*rules.Request, statuses []Status) Decision {
	domain := reqs[0].Domain
	d := Decision{Allowed: true}
	if p := (*e.programs.Load())[domain]; p != nil {
		d = e.decide(ctx, p, reqs, statuses)
		d.Revision = p.index.Domain.Revision
	}
	if !d.Allowed {
		d.Reference = newReference()
	}
	e.recorder.Record(domain, &d)
	return d
}

func (e *Engine) decide(ctx context.Context, p *program, reqs []*rules.Request, statuses []Status) Decision {
	a, exempt := p.ask(reqs, statuses != nil)
	if exempt != "" {
		return Decision{Allowed: true, Exempt: exempt}
	}
	var d Decision
	if len(a.charges) == 0 { // no rule matches, or only unlimited ones
		d = a.compose(nil)
		a.each(statuses, nil, &d)
		return d
	}
	// A caller that goes does not break off the store's answer: its charges are on their way, and the limiter has a bound
	// of its own.
	verdicts, err := e.limiter.Decide(context.WithoutCancel(ctx), a.charges)
	if err != nil {
		d, verdicts = a.withoutStore(ctx, e.local), nil
	} else {
		d = a.compose(verdicts)
	}
	a.each(statuses, verdicts, &d)
	return d
}

// storeChanged hears of the beginning and the end of an outage.
func (e *Engine) storeChanged(up bool, cause error) {
	e.storeDown.Store(!up)
	if !up {
		e.log.Warn("the store does not answer: the failure modes of the rules decide", "err", cause)
		return
	}
	e.log.Info("the store answers again")
	if e.local != nil {
		e.local.Forget()
	}
}

// StoreUp reports whether the store of a limiter that knows answers; true for others, and until it is known.
func (e *Engine) StoreUp() bool { return !e.storeDown.Load() }
