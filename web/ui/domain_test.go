package ui_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// refusing is that a version decided requests, and refused some of them.
func refusing(w *world, rule string, allowed, no int64) tally.VersionTally {
	v := tally.VersionTally{Domain: "api", UID: w.uid("api", rule), Version: 1}
	v.Counts[tally.CellAllowed] = allowed
	v.Counts[refused] = no
	return v
}

// rows are the names of rules in the order in which a table shows them.
func rows(page string) (names []string) {
	for _, part := range strings.Split(page, `<th scope="row"><a href="/d/api/r/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		names = append(names, name)
	}
	return names
}

func TestDomainShowsItsRulesFilteredAndSorted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: a, key: [ip], limit: 1/s, owner: edge}", "{name: b, key: [ip], limit: 60/min, labels: {tier: gold}}", "{name: c, key: [], limit: 7/s, description: 'All <b>callers</b>'}")
	w.promote("api", "b", 10_000)
	w.promote("api", "c", 2500)
	w.count(time.Minute, tally.Window{
		Versions: []tally.VersionTally{refusing(w, "b", 90, 10), refusing(w, "c", 80, 20)},
		Domains:  []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{tally.RequestsAllowed: 170, tally.RequestsWouldRefuse: 1234, tally.RequestsRefused: 4321}}},
	})
	wants(t, w.page("/d/api"), "4,321", `would refuse</p><p class="big">1,234<`, "10%", "10 of 100", "20%", "20 of 100", "◐ 25% of keys", "Each client address: 60 calls a minute", "✓ stable", "◌ in shadow",
		`href="/d/api/do/freeze"`, `<option>edge</option>`)
	for query, want := range map[string]string{
		"":                         "a b c",
		"?sort=refused":            "c b a",
		"?q=CALLERS":               "c",
		"?stage=partial":           "c",
		"?stage=frozen":            "",
		"?owner=edge":              "a",
		"?label=tier":              "b",
		"?label=tier%3Dgold":       "b",
		"?label=tier%3Dsilver":     "",
		"?page=9":                  "a b c",
		"?q=nothing+is+so":         "",
		"?stage=stable&sort=would": "b",
	} {
		if got := strings.Join(rows(w.page("/d/api"+query)), " "); got != want {
			t.Errorf("%q shows %q, want %q", query, got, want)
		}
	}
	for query, want := range map[string]string{
		"?sort=size":       "ort is &#34;size&#34;; it is one of name, refused, would",
		"?page=no":         "age is &#34;no&#34;; it is a whole number",
		"?stage=new":       "one of all, shadow",
		"?from=9&to=3":     "rom is 9 and to is 3",
		"?to=3":            "from is missing",
		"?q=a&q=b":         "stands in the address of this page 2 times",
		"?page=1%00&q=%zz": "broken after the question mark",
	} {
		if status, page := w.get("/d/api" + query); status != http.StatusBadRequest || !strings.Contains(page, want) {
			t.Errorf("%q: %d, and a page without %q:\n%s", query, status, want, page)
		}
	}
	if status, page := w.get("/d/nowhere"); status != http.StatusNotFound || !strings.Contains(page, "rulectl apply") {
		t.Errorf("a domain that is not there: %d\n%s", status, page)
	}
}

func TestDomainComparesRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: a, key: [ip], limit: 1/s}", "{name: b, key: [ip], limit: 2/s}")
	w.promote("api", "a", 1000)
	w.promote("api", "a", 10_000)
	wants(t, w.page("/d/api?from=1"), "From revision 1 to now", "<th scope=\"row\">api/a</th><td>v1 in shadow with no stable version</td><td>v1 stable</td>")
	wants(t, w.page("/d/api?from=1&to="), `name="from" type="number" min="1" required value="1"`, "From revision 1 to now")
	if page := w.page("/d/api?from=1&to=2"); strings.Contains(page, "<td>v1 stable</td>") || strings.Contains(page, `<th scope="row">api/b</th>`) {
		t.Errorf("what came later, or did not change, is shown:\n%s", page)
	}
}

func TestDomainSaysWhoMayNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: a, key: [ip], limit: 1/s}")
	if _, err := w.api.Freeze(w.as(), &adminpb.FreezeRequest{Domain: "api", For: durationpb.New(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	wants(t, w.page("/d/api"), "The domain is frozen", "Unfreeze…", "❄ frozen")
	w.who = access.Identity{Name: "vi", Role: access.Viewer, Domains: []string{"api"}, Verified: true}
	page := w.page("/d/api")
	wants(t, page, "The domain is frozen", "vi has the role viewer; this needs operator")
	if strings.Contains(page, "/do/") {
		t.Errorf("a viewer is shown a button:\n%s", page)
	}
	w.who.Domains = []string{"web"}
	if status, page := w.get("/d/api"); status != http.StatusForbidden || strings.Contains(page, "1 call") {
		t.Errorf("another domain: %d\n%s", status, page)
	}
}

func TestDomainOfAThousandRulesIsSmall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("{name: rule-with-a-long-name-%04d, key: [header:x-api-key, path], limit: %d/min burst 90000, owner: team-%d}", i, 100+i, i%7))
	}
	w.apply("api", all...)
	for i := range 12 {
		window := tally.Window{}
		for n := range 100 {
			window.Versions = append(window.Versions, refusing(w, fmt.Sprintf("rule-with-a-long-name-%04d", n), int64(1000+i*n%97), int64(i*n%13)))
		}
		w.count(time.Duration(i)*5*time.Minute, window)
	}
	began := time.Now()
	page := w.page("/d/api")
	t.Logf("%d bytes in %s", len(page), time.Since(began))
	if len(page) > 300_000 || len(rows(page)) != 100 {
		t.Errorf("%d bytes with %d rules, want at most 300,000 with 100", len(page), len(rows(page)))
	}
	wants(t, page, "1 to 100 of 1,000", `href="/d/api?page=2"`)
	if got := rows(w.page("/d/api?q=-09&page=1")); len(got) != 100 || got[0] != "rule-with-a-long-name-0900" {
		t.Errorf("the filter shows %d rules, the first %q", len(got), got[0])
	}
}
