package ui_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

const typed = "s3cr3t-customer"

// hit is a window in which v1 of a rule keyed on an API key refused a customer.
func (w *world) hit(rule string) tally.Window {
	w.t.Helper()
	history, err := w.ledger.History(w.t.Context(), "api", rule)
	if err != nil {
		w.t.Fatal(err)
	}
	domains, err := w.ledger.Domains(w.t.Context(), "api")
	if err != nil {
		w.t.Fatal(err)
	}
	v := history[0].Rule.Candidate
	key, err := rules.KeyOfValues(&v.Spec, []string{typed})
	if err != nil {
		w.t.Fatal(err)
	}
	id, label := tally.KeyOf(domains[0].Secret, &v.Spec, key), tally.Label(domains[0].Secret, &v.Spec, key)
	window := w.judged(rule, 1, map[tally.Cell]int64{refused: 40, tally.CellAllowed: 60})
	window.Versions[0].Keys = []tally.KeyCount{{Key: id, Label: label, Refused: 30, Over: 2}}
	window.Refusals = []tally.Refusal{{
		Time: time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond), Node: "n", Domain: "api", UID: w.uid("api", rule), Version: 1,
		Outcome: tally.Refused, Key: id, Label: label, Path: "/v1/<b>", Reference: "ABCDEFGHIJKLM",
	}}
	return window
}

func TestKeysAreShownMaskedAndACustomerIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-key, key: [header:x-api-key], limit: 60/min}")
	wants(t, w.page("/d/api/r/per-key?tab=keys"), "the rule has refused nobody", "rulectl top api/per-key")
	w.promote("api", "per-key", 10_000)
	w.count(time.Minute, w.hit("per-key"))
	page := w.page("/d/api/r/per-key?tab=keys")
	wants(t, page, `id="top-keys"`, `>#`, "75%", "at most 2", `id="lookup"`, "do/override", "Their values never leave the sidecars")

	status, page := w.post("/d/api/r/per-key/lookup", url.Values{"key": {typed}})
	if status != http.StatusOK {
		t.Fatalf("lookup: %d\n%s", status, page)
	}
	wants(t, page, "number 1", "ABCDEFGHIJKLM", "/v1/&lt;b&gt;", `id="top-keys"`)
	if strings.Contains(page, typed) {
		t.Error("the value of the key stands in the page")
	}
	_, page = w.post("/d/api/r/per-key/lookup", url.Values{"reference": {"abcdefghijklm"}})
	wants(t, page, "ABCDEFGHIJKLM")
	_, page = w.post("/d/api/r/per-key/lookup", url.Values{"key": {"somebody else"}})
	wants(t, page, "No refusal is kept", "not among them")
}

func TestOfAKeyItIsShownWhenItWasSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-key, key: [header:x-api-key], limit: 60/min}")
	w.promote("api", "per-key", 10_000)
	w.count(5*time.Minute, w.hit("per-key"))
	w.count(time.Minute, w.hit("per-key"))
	page := w.page("/d/api/r/per-key?tab=keys&range=15m") // of a whole hour only the hour is known
	wants(t, page, "First seen</th>", "Last seen</th>")
	seen := regexp.MustCompile(`<td><time datetime="([^"]+:00Z)".*</td><td><time datetime="([^"]+:00Z)".*</td></tr>`).FindStringSubmatch(page)
	if seen == nil || seen[1] >= seen[2] {
		t.Errorf("first and last seen: %q, want two minutes", seen)
	}
}

// The hash by which overrides show a key is not the one of the rule's page: who has the key learns of its override there.
func TestLookupOfACustomerNamesTheirOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-key, key: [header:x-api-key], limit: 60/min}")
	w.done("/d/api/r/per-key/do/override", form("key1", typed, "rate", "120/min", "for", "1d", "message", "CUST-7"))
	_, page := w.post("/d/api/r/per-key/lookup", url.Values{"key": {typed}})
	wants(t, page, "<strong>120/min, in place of what the rule says:</strong>", "by ann “CUST-7”, until", `href="/overrides?q=%23`)
	if _, page = w.post("/d/api/r/per-key/lookup", url.Values{"key": {"somebody else"}}); strings.Contains(page, "120/min, in place") {
		t.Error("somebody else is said to have the override")
	}
}

func TestLookupSaysWhatIsWrongWithItsForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-key, key: [header:x-api-key], limit: 60/min}")
	for _, form := range []url.Values{{"key": {"a", typed}}, {"reference": {""}}, {"key": {typed}, "since": {"9y"}}} {
		status, page := w.post("/d/api/r/per-key/lookup", form)
		if status != http.StatusBadRequest || !strings.Contains(page, `role="alert"`) || strings.Contains(page, typed) {
			t.Errorf("%v: %d\n%s", form, status, page)
		}
	}
	wants(t, w.page("/d/api/r/per-key/lookup"), `id="lookup"`)
	if status, _ := w.post("/d/api/r/nothing/lookup", url.Values{"key": {"x"}}); status != http.StatusNotFound {
		t.Errorf("a rule that is not there: %d", status)
	}
	w.who.Domains = []string{"other"}
	if status, _ := w.post("/d/api/r/per-key/lookup", url.Values{"key": {"x"}}); status != http.StatusForbidden {
		t.Errorf("somebody who may not look: %d", status)
	}
}
