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
	local    Limiter // for rules that fail to a local limit
	recorder Recorder
	clock    func() time.Time
	log      *slog.Logger

	storeDown atomic.Bool  // the limiter failed the last time it was asked
	told      atomic.Int64 // when its failure was logged, in nanoseconds

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

// WithLocal names the limiter that counts for rules with `failure: local` while the other one does not answer. It must
// not fail. Without it such rules fail closed: a limit that cannot be kept must not silently vanish.
func WithLocal(l Limiter) Option { return func(e *Engine) { e.local = l } }

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
	return e
}

// Swap puts a domain's index in force, whole: every request sees the old one or the new one. Freezes made here stay.
func (e *Engine) Swap(index *rules.Index) {
	p := &program{index: index, plans: map[*rules.Version]*versionPlan{}, clock: e.clock}
	for _, r := range index.Rules() {
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if v != nil {
				p.plans[v] = planVersion(r, &v.Spec, index.Domain.Shard)
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.store(p)
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
	return e.DecideAll(ctx, []*rules.Request{req})
}

// DecideAll answers one call that is described several times, as by the descriptors of Envoy's rate limit service. All
// are of one domain. Within the call a rule is charged at most once for a key, with the largest cost. There must be one.
func (e *Engine) DecideAll(ctx context.Context, reqs []*rules.Request) Decision {
	domain := reqs[0].Domain
	d := Decision{Allowed: true}
	if p := (*e.programs.Load())[domain]; p != nil {
		d = e.decide(ctx, p, reqs)
		d.Revision = p.index.Domain.Revision
	}
	e.recorder.Record(domain, &d)
	return d
}

func (e *Engine) decide(ctx context.Context, p *program, reqs []*rules.Request) Decision {
	a, exempt := p.ask(reqs)
	if exempt != "" {
		return Decision{Allowed: true, Exempt: exempt}
	}
	if len(a.charges) == 0 { // no rule matches, or only unlimited ones
		return a.compose(nil)
	}
	// A caller that goes does not break off the store's answer: its charges are on their way, and the limiter has a bound
	// of its own.
	verdicts, err := e.limiter.Decide(context.WithoutCancel(ctx), a.charges)
	e.note(err)
	if err != nil {
		return a.withoutStore(ctx, e.local)
	}
	return a.compose(verdicts)
}

// tellEvery bounds how often the engine tells of a store that comes and goes.
const tellEvery = 10 * time.Second

// note keeps whether the limiter answers, and tells of a change unless it told of one just before.
func (e *Engine) note(err error) {
	down := err != nil
	if e.storeDown.Load() == down || e.storeDown.Swap(down) == down {
		return
	}
	now, told := time.Now().UnixNano(), e.told.Load()
	switch {
	case down && (now-told < int64(tellEvery) || !e.told.CompareAndSwap(told, now)):
	case down:
		e.log.Warn("the store does not answer in time: the failure modes of the rules decide", "err", err)
	case now-told > int64(tellEvery):
		e.log.Info("the store answers again")
	}
}

// StoreUp reports whether the limiter answered when it was last asked; true before that.
func (e *Engine) StoreUp() bool { return !e.storeDown.Load() }
