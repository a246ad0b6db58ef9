package meter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/rules/tally"
)

var (
	decisionsDesc = prometheus.NewDesc("headgate_decisions_total",
		"Requests that a rule version matched, by what it made of them. would_* are of a version that is only judged.",
		[]string{"domain", "rule", "version", "outcome"}, nil)
	requestsDesc = prometheus.NewDesc("headgate_requests_total",
		"Requests by decision: allowed, refused, malformed, exempt from all rules, or unmatched by any.",
		[]string{"domain", "decision"}, nil)
	failedDesc = prometheus.NewDesc("headgate_expression_errors_total",
		"Rule versions that were applied because their expression (when) could not be evaluated.",
		[]string{"domain"}, nil)
	lateDesc = prometheus.NewDesc("headgate_tally_late_total",
		"Outcomes that no tally has, since they came more than a minute after their rule version was retired.", nil, nil)
	unnamedDesc = prometheus.NewDesc("headgate_tally_keys_unnamed_total",
		"Refusals that are counted, and whose keys are missing in the lists of keys hit most: too many came at once.", nil, nil)
)

// collector shows the counters as series. Those of a version exist at 0 from the moment it is installed, so that its first
// refusals are an increase, and go with it.
type collector struct{ *Meter }

func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{decisionsDesc, requestsDesc, failedDesc, lateDesc, unnamedDesc} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	show := func(desc *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	show(lateDesc, c.late.Load())
	show(unnamedDesc, c.unnamed.Load())
	for _, d := range *c.byDomain.Load() {
		show(failedDesc, d.failed.Load(), d.name)
		for c := range tally.RequestsWouldRefuse { // which is no decision
			show(requestsDesc, d.cells[c].Load(), d.name, c.String())
		}
	}
	for s, counts := range c.shown() {
		number := strconv.FormatInt(s.version, 10)
		for _, o := range tally.Outcomes() {
			show(decisionsDesc, counts[o], s.domain, s.rule, number, o.String())
		}
	}
}

// series are what one version is shown as.
type series struct {
	domain, rule string
	version      int64
}

// shown returns the counts by outcome of what has series. Two rules of one name, one of which takes the other's place at
// this moment, are shown as one.
func (c collector) shown() map[series]*[tally.Unknown + 1]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[series]*[tally.Unknown + 1]int64, len(c.versions))
	for id, v := range c.versions {
		if v.shown == 0 {
			continue
		}
		s := series{id.domain, id.rule, id.number}
		if all[s] == nil {
			all[s] = new([tally.Unknown + 1]int64)
		}
		for i := range v.cells {
			all[s][tally.Cell(i).Outcome()] += v.cells[i].Load()
		}
	}
	return all
}
