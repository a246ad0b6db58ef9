// Package meter counts what became of requests: for the windows that are reported ([Meter.Close]), for Prometheus, and for
// a log of refusals ([RefusalLog]).
//
// The picture to hold: each rule version has one atomic counter for each [tally.Cell], which only grows. Series show the
// counters, and windows are the differences between two readings, so both are exact, and so is a window that closes while
// requests run: each count is in exactly one. Memory is bounded by the rules in force, never by the keys seen. What cannot
// be exact in bounded memory stands beside the counts: the keys that a version goes against, and a sample of refusals.
//
// A Meter is safe for concurrent use, and recording never blocks. A counter is one atomic addition. The keys of a version
// are under a lock that is only tried: while another request holds it, a key waits in a queue for whoever comes next. What
// finds the queue full is missing in the lists of keys, and in nothing else; it is counted. How often keys call is counted
// without a lock, of a sample that a hash chooses.
package meter

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Meter is an [enforce.Recorder].
type Meter struct {
	byVersion sync.Map                           // *rules.Version to *handle: all whose requests may be under way
	byDomain  atomic.Pointer[map[string]*domain] // only grows: a sidecar's domains are configured
	late      atomic.Int64
	waiting   chan waiting           // keys of versions whose lock was held
	minute    atomic.Pointer[minute] // that in which rates are counted
	unnamed   atomic.Int64
	log       *RefusalLog

	mu       sync.Mutex // guards what follows; recording does not take it
	versions map[identity]*version
	retired  []*rules.Version // in the order of their retirement
	begun    time.Time        // when the open window began
	spare    *sketch
}

// identity is what a version keeps when its rule changes around it.
type identity struct {
	domain, rule, uid string
	number            int64
}

// version is what is counted of one rule version.
type version struct {
	identity
	in    *domain
	cells [tally.Cells]atomic.Int64
	keys  keys
	rates atomic.Pointer[rates] // of the minute; nil until its first call

	// The meter's mu guards what follows.
	closed tally.Counts // what closed windows have
	shown  int          // how many of its handles have series
	held   int          // how many there are
	left   time.Time    // when there was one the last time
}

// domain is what is counted of one domain.
type domain struct {
	name   string
	cells  [tally.DomainCells]atomic.Int64
	failed atomic.Int64 // expressions
	secret atomic.Pointer[[16]byte]

	// The meter's mu guards what follows.
	closed tally.DomainCounts
	index  *rules.Index     // the one that was installed last
	going  []*rules.Version // of those before it, to be retired
}

// Option changes a Meter.
type Option func(*Meter)

// WithRefusalLog logs refusals.
func WithRefusalLog(l *RefusalLog) Option { return func(m *Meter) { m.log = l } }

// New returns a meter whose first window begins now, and registers its metrics.
func New(reg prometheus.Registerer, options ...Option) *Meter {
	m := &Meter{waiting: make(chan waiting, maxWaiting), versions: map[identity]*version{}, begun: time.Now()}
	m.byDomain.Store(&map[string]*domain{})
	m.minute.Store(&minute{})
	for _, o := range options {
		o(m)
	}
	reg.MustRegister(collector{m})
	return m
}

// Record counts a decision. One that comes more than a minute after its version was retired is in no tally; it is counted as
// late.
func (m *Meter) Record(name string, d *enforce.Decision) {
	var in *domain
	wouldRefuse := false
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		wouldRefuse = wouldRefuse || o.Outcome == tally.WouldRefuse && o.Version == o.Rule.Candidate
		h, ok := m.byVersion.Load(o.Version)
		if !ok {
			m.late.Add(1)
			continue
		}
		v := h.(*handle).version //nolint:errcheck // there is nothing else in it
		in = v.in
		v.cells[cell(o)].Add(1)
		if newest(o.Rule, o.Version) {
			m.call(v, o.Key.Rate())
		}
		if o.Outcome.Affects() {
			m.against(v, d, o)
		}
	}
	if in == nil {
		in = m.domain(name)
	}
	c := domainCell(d)
	in.cells[c].Add(1)
	if wouldRefuse && c == tally.RequestsAllowed {
		in.cells[tally.RequestsWouldRefuse].Add(1)
	}
	if d.ExpressionsFailed > 0 {
		in.failed.Add(int64(d.ExpressionsFailed))
	}
}

// domain returns what is counted of a domain. The name is one that a door serves.
func (m *Meter) domain(name string) *domain {
	for {
		all := m.byDomain.Load()
		if d := (*all)[name]; d != nil {
			return d
		}
		more := maps.Clone(*all)
		more[name] = &domain{name: name}
		m.byDomain.CompareAndSwap(all, &more)
	}
}

func domainCell(d *enforce.Decision) tally.DomainCell {
	switch {
	case d.Exempt != "":
		return tally.RequestsExempt
	case d.Reason == enforce.ReasonMalformed:
		return tally.RequestsMalformed
	case !d.Allowed:
		return tally.RequestsRefused
	case len(d.Outcomes) == 0:
		return tally.RequestsUnmatched
	}
	return tally.RequestsAllowed
}

func cell(o *enforce.VersionOutcome) tally.Cell {
	if o.WhatIf {
		return tally.WhatIfCell(o.Outcome, o.Beside, o.OtherRefused)
	}
	return tally.BindingCell(o.Outcome, o.Limit)
}

// against notes the key that a version went against.
func (m *Meter) against(v *version, d *enforce.Decision, o *enforce.VersionOutcome) {
	h := hit{key: o.Key, spec: &o.Version.Spec, values: o.Values, would: o.WhatIf}
	if v.keys.mu.TryLock() {
		v.keys.add(v.in, &h)
		v.keys.sample(v, d, o)
		v.keys.mu.Unlock()
		m.catchUp()
	} else {
		m.wait(v, &h)
	}
	if m.log != nil {
		m.log.offer(v, d, o)
	}
}

func (m *Meter) wait(v *version, h *hit) {
	select {
	case m.waiting <- waiting{v, *h}:
	default:
		m.unnamed.Add(1)
	}
}

// catchUp notes a few of the keys that wait: more than came meanwhile, and not so many that a request would be late.
func (m *Meter) catchUp() {
	for range min(batch, len(m.waiting)) {
		select {
		case w := <-m.waiting:
			if !w.version.keys.mu.TryLock() {
				m.wait(w.version, &w.hit)
				return
			}
			w.version.keys.add(w.version.in, &w.hit)
			w.version.keys.mu.Unlock()
		default:
			return
		}
	}
}
