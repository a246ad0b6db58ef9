// Package meter counts decisions as Prometheus metrics.
//
// Series are bounded by the rules in force, never by the keys seen: those of a version exist at 0 from the moment it is
// installed, so that its first refusals are an increase, and go with it.
package meter

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Meter is an [enforce.Recorder]. It never blocks.
type Meter struct {
	decisions *prometheus.CounterVec
	requests  *prometheus.CounterVec
	failed    *prometheus.CounterVec

	mu        sync.Mutex // serialises Install and Retire
	latest    map[string]map[versionKey]bool
	installed atomic.Pointer[map[versionKey]series]
}

type versionKey struct {
	domain, rule string
	version      int64
}

// series are the counters of a version by outcome, in the order of tally.Outcomes.
type series []prometheus.Counter

// New registers the metrics.
func New(reg prometheus.Registerer) *Meter {
	m := &Meter{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_decisions_total",
			Help: "Requests that a rule version matched, by what it made of them. would_* are of a version that is only judged.",
		}, []string{"domain", "rule", "version", "outcome"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_requests_total",
			Help: "Requests by decision: allowed, refused, malformed, exempt from all rules, or unmatched by any.",
		}, []string{"domain", "decision"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_expression_errors_total",
			Help: "Rule versions that were applied because their expression (when) could not be evaluated.",
		}, []string{"domain"}),
		latest: map[string]map[versionKey]bool{},
	}
	m.installed.Store(&map[versionKey]series{})
	reg.MustRegister(m.decisions, m.requests, m.failed)
	return m
}

// Install makes the series of the index's versions exist. Call it before the index is in force, and Retire after: what is
// decided by the rules before is counted until then.
func (m *Meter) Install(index *rules.Index) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.installed.Load())
	now := map[versionKey]bool{}
	for _, r := range index.Rules() {
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if v == nil {
				continue
			}
			k := versionKey{index.Domain.Name, r.Name, v.Number}
			now[k] = true
			if all[k] == nil {
				all[k] = m.newSeries(k)
			}
		}
	}
	m.latest[index.Domain.Name] = now
	m.installed.Store(&all)
}

func (m *Meter) newSeries(k versionKey) series {
	list := make(series, len(tally.Outcomes()))
	for i, o := range tally.Outcomes() {
		list[i] = m.decisions.WithLabelValues(k.domain, k.rule, strconv.FormatInt(k.version, 10), o.String())
	}
	return list
}

// Retire removes the series of versions that the domain's latest index no longer has.
func (m *Meter) Retire(domain string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.installed.Load())
	for k := range all {
		if k.domain == domain && !m.latest[domain][k] {
			delete(all, k)
			m.decisions.DeletePartialMatch(prometheus.Labels{
				"domain": k.domain, "rule": k.rule, "version": strconv.FormatInt(k.version, 10),
			})
		}
	}
	m.installed.Store(&all)
}

// Record counts a decision. Outcomes of a version that was retired meanwhile are dropped: they must not bring its series
// back.
func (m *Meter) Record(domain string, d *enforce.Decision) {
	m.requests.WithLabelValues(domain, d.Label()).Inc()
	if d.ExpressionsFailed > 0 {
		m.failed.WithLabelValues(domain).Add(float64(d.ExpressionsFailed))
	}
	installed := *m.installed.Load()
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		if list := installed[versionKey{domain, o.Rule.Name, o.Version.Number}]; list != nil {
			list[o.Outcome-tally.Allowed].Inc()
		}
	}
}
