package ui_test

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/spike"
	"github.com/headgate/headgate/web/api/adminpb"
)

// fire makes an alert of a rule.
func (w *world) fire(a alert.Alert) {
	w.t.Helper()
	last, err := w.ledger.LastRound(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	a.Version, a.Severity, a.State = 1, alert.Page, "v1 stable"
	round := alert.Round{At: last.At.Add(time.Second), Alerts: []alert.Alert{a}}
	if last.At.IsZero() {
		round.At = time.Now()
	}
	if err := w.ledger.SaveRound(w.t.Context(), last.At, round); err != nil {
		w.t.Fatal(err)
	}
}

func TestAlertsSayWhatFiresAndWhatHelps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wants(t, w.page("/alerts"), "✓ nothing fires", "rulectl alert list", "No alert has fired")
	w.apply("api", "{name: a, key: [ip], limit: 1/s, labels: {runbook: 'https://wiki.test/a'}}", "{name: b, key: [ip], limit: 2/s, labels: {runbook: 'javascript:alert(1)'}}")
	evidence := spike.Evidence{Count: spike.Count{Refused: 3201, Of: 41_022}, Bound: 0.0742, Baseline: 0.004, Limit: 0.024}
	w.fire(alert.Alert{ID: "one", Domain: "api", Rule: "a", Kind: alert.Refused, Evidence: evidence, Hits: alert.Many, Distinct: 214, Keys: []alert.Key{{Label: markup, Count: 311}}, Since: time.Now()})
	w.fire(alert.Alert{ID: "two", Domain: "api", Rule: "b", Kind: alert.WouldRefuse, Evidence: evidence, Hits: alert.OneClient, Since: time.Now()})
	w.fire(alert.Alert{ID: "old", Domain: "api", Rule: "b", Kind: alert.Refused, Evidence: evidence, Since: time.Now().Add(-time.Hour), Resolved: time.Now().Add(-30 * time.Minute), Ending: "it is as usual"})
	page := w.page("/alerts")
	wants(t, page, `id="one"`, "3,201 of 41,022 requests in five minutes, 7.8% where 0.4% is usual: it hits about 214 keys", "7.42%", "2.4%", "311", "&lt;script&gt;", `href="https://wiki.test/a"`,
		"/d/api/r/a/do/silence", "/d/api/r/a/do/rollback", "/d/api/r/a/do/freeze", "/d/api/do/freeze", `id="two"`, "Nobody is refused by it", `id="old"`, "it is as usual", "30m")
	lacks(t, page, markup, `href="javascript`, "<svg class=\"spark\"")
	counts := tally.Counts{}
	counts[tally.CellAllowed], counts[tally.BindingCell(tally.Refused, 0)] = 90, 10
	w.count(10*time.Minute, tally.Window{Versions: []tally.VersionTally{{Domain: "api", UID: w.uid("api", "a"), Version: 1, Counts: counts}}})
	wants(t, w.page("/alerts"), `<svg class="spark"`, `<path class="refused"`, "What v1 made of requests", "/d/api/r/a?from=")
	if _, err := w.api.Silence(w.as(), &adminpb.SilenceRequest{Domain: "api", Rule: "a", For: durationpb.New(time.Hour), Message: "load test"}); err != nil {
		t.Fatal(err)
	}
	lacks(t, w.page("/alerts?show=firing"), `id="one"`, `id="old"`)
	wants(t, w.page("/alerts?show=silenced"), `id="one"`, "load test", "/d/api/r/a/do/unsilence", "Firing (1)", "Past (1)")
	w.refuses("/alerts?show=loud", http.StatusBadRequest, "it is one of all, firing")
	w.who = access.Identity{Name: "vi", Role: access.Viewer, Domains: []string{"api"}, Verified: true}
	page = w.page("/alerts")
	wants(t, page, `id="one"`, "vi has the role viewer; this needs operator", "Only the alerts of your domains are shown: api")
	lacks(t, page, "/do/")
	w.who.Domains = []string{"web"}
	lacks(t, w.page("/alerts"), "3,201", "it is as usual")
}
