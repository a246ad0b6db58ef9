// Package meter counts decisions as Prometheus metrics.
//
// Series are bounded by the rules in force, never by the keys seen: those of a version exist at 0 from the moment it is
// installed, so that its first refusals are an increase, and go with it.
package meter

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// Meter is an [enforce.Recorder]. It never blocks.
type Meter struct {
	decisions *prometheus.CounterVec
	requests  *prometheus.CounterVec

	mu        sync.Mutex
	installed map[string]map[versionKey]bool // by domain
}

type versionKey struct{ rule, version string }

// New registers the metrics.
func New(reg prometheus.Registerer) *Meter {
	m := &Meter{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_decisions_total",
			Help: "Requests that a rule version matched, by what it made of them. would_* are of a version that is only judged.",
		}, []string{"domain", "rule", "version", "outcome"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_requests_total",
			Help: "Requests by decision: allowed, refused, or unmatched by any rule.",
		}, []string{"domain", "decision"}),
		installed: map[string]map[versionKey]bool{},
	}
	reg.MustRegister(m.decisions, m.requests)
	return m
}

// Install makes the series of the index's versions exist, and removes those of versions its domain no longer has.
func (m *Meter) Install(index *rules.Index) {
	m.mu.Lock()
	defer m.mu.Unlock()
	domain := index.Domain.Name
	now := map[versionKey]bool{}
	for _, r := range index.Rules() {
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if v != nil {
				now[versionKey{r.Name, strconv.FormatInt(v.Number, 10)}] = true
			}
		}
	}
	for k := range now {
		for _, o := range enforce.Outcomes {
			m.decisions.WithLabelValues(domain, k.rule, k.version, string(o))
		}
	}
	for k := range m.installed[domain] {
		if !now[k] {
			m.decisions.DeletePartialMatch(prometheus.Labels{"domain": domain, "rule": k.rule, "version": k.version})
		}
	}
	m.installed[domain] = now
}

// Record counts a decision.
func (m *Meter) Record(domain string, d *enforce.Decision) {
	decision := "allowed"
	switch {
	case !d.Allowed:
		decision = "refused"
	case len(d.Outcomes) == 0:
		decision = "unmatched"
	}
	m.requests.WithLabelValues(domain, decision).Inc()
	for _, o := range d.Outcomes {
		m.decisions.WithLabelValues(domain, o.Rule.Name, strconv.FormatInt(o.Version, 10), string(o.Outcome)).Inc()
	}
}
