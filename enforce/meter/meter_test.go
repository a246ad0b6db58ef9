package meter_test

import (
	"testing"

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
	domain := rules.Domain{Name: "d"}
	rule := &rules.Rule{Domain: "d", Name: "r", Candidate: &rules.Version{Number: 1}}

	m.Install(rules.NewIndex(domain, []*rules.Rule{rule}))
	if n := count(t, reg); n != len(tally.Outcomes()) {
		t.Errorf("%d series after the version was installed, want %d at 0", n, len(tally.Outcomes()))
	}
	m.Record("d", &enforce.Decision{Allowed: true, Outcomes: []enforce.VersionOutcome{
		{Rule: rule, Version: rule.Candidate, Outcome: tally.WouldRefuse},
	}})
	m.Install(rules.NewIndex(domain, nil))
	record := func() {
		m.Record("d", &enforce.Decision{Allowed: true, Outcomes: []enforce.VersionOutcome{
			{Rule: rule, Version: rule.Candidate, Outcome: tally.WouldRefuse},
		}})
	}
	record() // by the rules before
	m.Retire("d")
	record() // by a request that is still on its way
	if n := count(t, reg); n != 0 {
		t.Errorf("%d series after the rule was deleted, want none", n)
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
