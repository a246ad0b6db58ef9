package meter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// prometheus/prometheus#1673: a series born at 15 shows no increase (CASES C27).
func TestC27SeriesExistAtZeroAndGoWithTheVersion(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := meter.New(reg)
	rule := newRule(t, "r", 1)
	rule.Stable, rule.Candidate = nil, rule.Stable

	m.Install(indexOf(rule))
	if n := count(t, reg); n != len(tally.Outcomes()) {
		t.Errorf("%d series after the version was installed, want %d at 0", n, len(tally.Outcomes()))
	}
	for n := range 15 {
		if sum := metric(t, reg, "headgate_decisions_total"); sum != float64(n) {
			t.Errorf("%v decisions, want %d", sum, n)
		}
		m.Record("d", &enforce.Decision{Allowed: true, Outcomes: []enforce.VersionOutcome{outcome(rule, tally.WouldRefuse, requestOf(1))}})
	}
	m.Install(indexOf())
	if n := count(t, reg); n != len(tally.Outcomes()) {
		t.Errorf("%d series while requests are decided by the rules before, want %d", n, len(tally.Outcomes()))
	}
	m.Retire("d")
	m.Record("d", &enforce.Decision{Allowed: true, Outcomes: []enforce.VersionOutcome{outcome(rule, tally.WouldRefuse, requestOf(1))}})
	if n := count(t, reg); n != 0 {
		t.Errorf("%d series after the rule was deleted, want none", n)
	}
	if w := m.Close(time.Now(), false); w.Versions[0].Counts.Of(tally.WouldRefuse) != 16 {
		t.Errorf("the window has %d, want those before and the one that was on its way", w.Versions[0].Counts.Of(tally.WouldRefuse))
	}
}

// A rule that was deleted and one of the same name that is another never have the same series twice.
func TestSeriesOfRulesOfOneNameAreOne(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := meter.New(reg)
	one, other := newRule(t, "r", 1), newRule(t, "r", 1)
	other.UID = "another"
	m.Install(indexOf(one))
	m.Install(indexOf(other))
	for _, r := range []*rules.Rule{one, other} {
		d := refusal(r, 1)
		m.Record("d", &d)
	}
	if n := count(t, reg); n != len(tally.Outcomes()) {
		t.Errorf("%d series, want %d", n, len(tally.Outcomes()))
	}
	if n := metric(t, reg, "headgate_decisions_total"); n != 2 {
		t.Errorf("%v decisions, want 2", n)
	}
}

func TestRequestsAreCountedByDecision(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := meter.New(reg)
	r := newRule(t, "r", 1)
	m.Install(indexOf(r))
	matched := []enforce.VersionOutcome{outcome(r, tally.Allowed, requestOf(1))}
	for i, d := range []enforce.Decision{
		{Allowed: true, Outcomes: matched, ExpressionsFailed: 2},
		{Outcomes: matched},
		{Allowed: true, Exempt: "health"},
		{Allowed: true},
		{Reason: enforce.ReasonMalformed},
	} {
		for range i + 1 {
			m.Record("d", &d)
		}
	}
	want := []tally.DomainTally{{Domain: "d", Counts: tally.DomainCounts{1, 2, 3, 4, 5}}}
	if diff := cmp.Diff(want, m.Close(time.Now(), false).Domains); diff != "" {
		t.Errorf("window (-want +got):\n%s", diff)
	}
	err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP headgate_requests_total Requests by decision: allowed, refused, malformed, exempt from all rules, or unmatched by any.
# TYPE headgate_requests_total counter
headgate_requests_total{decision="allowed",domain="d"} 1
headgate_requests_total{decision="refused",domain="d"} 2
headgate_requests_total{decision="exempt",domain="d"} 3
headgate_requests_total{decision="unmatched",domain="d"} 4
headgate_requests_total{decision="malformed",domain="d"} 5
# HELP headgate_expression_errors_total Rule versions that were applied because their expression (when) could not be evaluated.
# TYPE headgate_expression_errors_total counter
headgate_expression_errors_total{domain="d"} 2
`), "headgate_requests_total", "headgate_expression_errors_total")
	if err != nil {
		t.Error(err)
	}
}

// What a candidate would have refused of the requests that were allowed is told beside them, once however many would have.
func TestAllowedRequestsThatACandidateWouldRefuseAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := meter.New(reg)
	shadow, other, stable := newRule(t, "shadow", 1), newRule(t, "other", 1), newRule(t, "stable", 1)
	for _, r := range []*rules.Rule{shadow, other} {
		r.Stable, r.Candidate = nil, r.Stable
	}
	m.Install(indexOf(other, shadow, stable))
	would := func(rules ...*rules.Rule) (list []enforce.VersionOutcome) {
		for _, r := range rules {
			list = append(list, outcome(r, tally.WouldRefuse, requestOf(1)))
		}
		return list
	}
	for _, d := range []enforce.Decision{
		{Allowed: true, Outcomes: would(shadow)},
		{Allowed: true, Outcomes: would(other, shadow)},
		{Allowed: true, Outcomes: would(stable)}, // of a key in the cohort of a candidate that allows, or frozen
		{Allowed: true, Outcomes: []enforce.VersionOutcome{outcome(shadow, tally.WouldAllow, requestOf(1))}},
		{Outcomes: append(would(shadow), outcome(stable, tally.Refused, requestOf(1)))},
	} {
		m.Record("d", &d)
	}
	want := tally.DomainCounts{tally.RequestsAllowed: 4, tally.RequestsRefused: 1, tally.RequestsWouldRefuse: 2}
	got := m.Close(time.Now(), false).Domains[0].Counts
	if diff := cmp.Diff(want, got); diff != "" || got.Total() != 5 {
		t.Errorf("%d requests, want 5; -want +got\n%s", got.Total(), diff)
	}
	if n := metric(t, reg, "headgate_requests_total"); n != 5 {
		t.Errorf("the series add up to %v requests, want 5", n)
	}
}

func count(t *testing.T, reg *prometheus.Registry) int {
	t.Helper()
	n, err := testutil.GatherAndCount(reg, "headgate_decisions_total")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// metric is the sum of all series of one name.
func metric(t interface {
	Helper()
	Fatal(args ...any)
}, reg *prometheus.Registry, name string,
) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() == name {
				sum += s.GetCounter().GetValue()
			}
		}
	}
	return sum
}
