package ui_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// judged is a window of a version that allowed and refused what it decided, and judged what others decided.
func (w *world) judged(rule string, version int64, cells map[tally.Cell]int64) tally.Window {
	t := tally.VersionTally{Domain: "api", UID: w.uid("api", rule), Version: version}
	for cell, n := range cells {
		t.Counts[cell] = n
	}
	return tally.Window{Versions: []tally.VersionTally{t}}
}

var (
	refused = tally.BindingCell(tally.Refused, 0)
	newly   = tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, false)
	both    = tally.WhatIfCell(tally.WouldRefuse, tally.BesideRefused, false)
	leave   = tally.WhatIfCell(tally.WouldAllow, tally.BesideRefused, false)
	pass    = tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false)
	shared  = tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, true)
)

// tried is a rule with a stable v1 that refused 100 of 1,000, and a candidate v2 beside it.
func tried(t *testing.T) *world {
	w := newWorld(t)
	w.apply("api", "{name: per-ip, key: [ip], limit: 60/min}")
	w.promote("api", "per-ip", 10_000)
	w.apply("api", "{name: per-ip, key: [ip], limit: 30/min}")
	w.count(time.Minute, w.judged("per-ip", 1, map[tally.Cell]int64{tally.CellAllowed: 900, refused: 100}))
	w.count(time.Minute, w.judged("per-ip", 2, map[tally.Cell]int64{newly: 40, both: 80, leave: 20, pass: 850, shared: 10}))
	return w
}

// sumOf adds up a column of a table of numbers.
func sumOf(t *testing.T, page, table, column string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<table data-numbers="`+table+`"`)
	if !ok {
		t.Fatalf("no table %s\n%s", table, page)
	}
	rest, _, _ = strings.Cut(rest, "</table>")
	at := -1
	for i, head := range regexp.MustCompile(`(?s)<th scope="col".*?>(.*?)</th>`).FindAllStringSubmatch(rest, -1) {
		if head[1] == column {
			at = i - 1
		}
	}
	if at < 0 {
		t.Fatalf("no column %s\n%s", column, rest)
	}
	var all []string
	for _, row := range regexp.MustCompile(`(?s)<tr>.*?</tr>`).FindAllString(rest, -1) {
		cells := regexp.MustCompile(`<td class="num">(.*?)</td>`).FindAllStringSubmatch(row, -1)
		if len(cells) > at && cells[at][1] != "0" {
			all = append(all, cells[at][1])
		}
	}
	return strings.Join(all, "+")
}

func TestTrafficCountsEachRequestOnce(t *testing.T) {
	t.Parallel()
	w := tried(t)
	page := w.page("/d/api/r/per-ip")
	for column, want := range map[string]string{
		"allowed": "860", "would refuse": "40", "refused": "100", "refused by other rules": "",
		"v1 refused": "100", "v2 would refuse": "120", "v2 allowed or would allow": "880",
	} {
		if got := sumOf(t, page, "traffic", column); got != want {
			t.Errorf("%s: %s, want %s", column, got, want)
		}
	}
	wants(t, page, `id="chart-traffic"`, `id="chart-v1"`, `id="chart-v2"`, `data-columns="refused|would refuse|allowed"`, `<svg class="drawn"`,
		"promote by ann: v1 stable", "3 changes in this time")
}

// A rule that has only a candidate refuses nobody: all that it met passed.
func TestTrafficWithoutAStableIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-ip, key: [ip], limit: 60/min}")
	wants(t, w.page("/d/api/r/per-ip"), "No sidecar has counted", "rulectl describe rule api/per-ip")
	alone := tally.WhatIfCell(tally.WouldRefuse, tally.BesideNone, false)
	w.count(time.Minute, w.judged("per-ip", 1, map[tally.Cell]int64{alone: 30, tally.WhatIfCell(tally.WouldAllow, tally.BesideNone, false): 70}))
	page := w.page("/d/api/r/per-ip")
	for column, want := range map[string]string{"allowed": "70", "would refuse": "30", "refused": ""} {
		if got := sumOf(t, page, "traffic", column); got != want {
			t.Errorf("%s: %s, want %s", column, got, want)
		}
	}
}

func TestShadowTellsNewlyFromNoLongerRefused(t *testing.T) {
	t.Parallel()
	w := tried(t)
	page := w.page("/d/api/r/per-ip?tab=shadow")
	wants(t, page, `id="newly-refused">40<`, `id="no-longer-refused">20<`, "120 of the 1,000 requests", "<strong>12%</strong>",
		"This is an estimate: other rules refused 10", "It alone would refuse 12%",
		`<td class="num">860</td>`, `<td class="num">80</td>`, "Newly less no longer refused: 2%")
	for column, want := range map[string]string{"candidate v2 would refuse": "120", "stable v1 refused": "100"} {
		if got := sumOf(t, page, "shadow", column); got != want {
			t.Errorf("%s: %s, want %s", column, got, want)
		}
	}
	w.promote("api", "per-ip", 10_000)
	wants(t, w.page("/d/api/r/per-ip?tab=shadow"), "No candidate is being tried", "rulectl apply -f")
}

func TestZoomIsKeptInTheAddressOfOtherTabs(t *testing.T) {
	t.Parallel()
	w := tried(t)
	wants(t, w.page("/d/api/r/per-ip?from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z"),
		`?from=2026-01-01T00%3A00%3A00Z&amp;tab=shadow&amp;to=2026-01-01T01%3A00%3A00Z`, "Choose a range to see what is new")
	wants(t, w.page("/d/api/r/per-ip?range=7d"), `?range=7d&amp;tab=shadow`)
}
