package ui_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/rules/rollout/access"
)

func TestRulePageSaysWhereTheRuleStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", `{name: per-ip, description: "<script>alert(1)</script>", owner: edge, labels: {runbook: "https://wiki/x", t: "javascript:x"}, key: [ip], limit: 60/min}`)
	page := w.page("/d/api/r/per-ip")
	wants(t, page, "api/per-ip", "in shadow", "Candidate v1", "Each client address: 60 calls a minute", "&lt;script&gt;", "edge",
		`href="https://wiki/x"`, `href="/d/api/r/per-ip/do/promote"`, `href="/d/api/r/per-ip/do/freeze"`)
	if strings.Contains(page, "<script>alert") || strings.Contains(page, `href="javascript:`) {
		t.Error("what is in a rule runs")
	}
	w.who.Role = access.Viewer
	page = w.page("/d/api/r/per-ip")
	wants(t, page, "You cannot change this rule")
	if strings.Contains(page, "/do/") {
		t.Error("a viewer is offered a change")
	}
}

func TestRulePageNamesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", `{name: per-ip, key: [ip], limit: 60/min}`)
	for query, want := range map[string]string{
		"tab=nothing":               "Tab is &#34;nothing&#34;; it is one of traffic, shadow, keys",
		"range=1y":                  "Range is &#34;1y&#34;; it is one of 15m, 1h",
		"from=yesterday&to=now":     "From is &#34;yesterday&#34;",
		"range=1h&from=x":           "leave one out",
		"from=2026-01-01T00:00:00Z": "To is &#34;&#34;",
		"from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:01Z": "at least 1m0s after from",
	} {
		if status, body := w.get("/d/api/r/per-ip?" + query); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want %q\n%s", query, status, want, body)
		}
	}
	if status, _ := w.get("/d/api/r/nothing"); status != http.StatusNotFound {
		t.Errorf("a rule that is not there: %d", status)
	}
}
