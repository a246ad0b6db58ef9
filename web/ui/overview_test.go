package ui_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

func TestOverviewShowsDomainsAndRollouts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wants(t, w.page("/"), "There are no rules yet", "No sidecar has connected", "Nothing has been changed yet")
	w.apply("api", "{name: per-ip, key: [ip], limit: 1/s}", "{name: all, key: [], limit: 100/s}")
	w.promote("api", "all", 1000)
	w.count(2*time.Minute, tally.Window{Domains: []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{tally.RequestsAllowed: 12345, tally.RequestsRefused: 678}}}})
	wants(t, w.page("/"), `href="/d/api"`, "12.3k", "678", "last 2m: 12.3k allowed, 0 would be refused, 678 refused", "by 2 rules", "1 in shadow", "1 partial", `href="/d/api/r/per-ip"`, "10% of keys", "promote")
}
