package ui_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
)

const markup = "<script>alert(1)</script>"

// lacks fails the test where a page has one of some texts.
func lacks(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q:\n%s", text, page)
		}
	}
}

// refuses fails the test where a page is not an error of the status with the text.
func (w *world) refuses(path string, status int, text string) {
	w.t.Helper()
	if got, page := w.get(path); got != status || !strings.Contains(page, text) {
		w.t.Errorf("%s: %d, want %d with %q:\n%s", path, got, status, text, page)
	}
}

func (w *world) nodes(list ...rollout.Node) {
	w.t.Helper()
	head, err := w.ledger.Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list {
		list[i].Seen, list[i].Connected, list[i].Lineage, list[i].Stream = time.Now(), !list[i].Departed, head.Lineage, 1
	}
	if err := w.ledger.SaveNodes(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
}

func TestFleetShowsWhereSidecarsStand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wants(t, w.page("/sidecars"), "No sidecar has connected", "sidecar --node-id NAME --domain DOMAIN")
	w.apply("api", "{name: a, key: [ip], limit: 1/s}")
	w.apply("web", "{name: b, key: [ip], limit: 1/s}")
	w.promote("api", "a", 1000)
	w.nodes(
		rollout.Node{ID: "a-good", Domain: "api", Program: "sidecar 1", Sent: 3, Acked: 3},
		rollout.Node{ID: "bad/../one", Domain: "api", Program: "sidecar 2", Sent: 3, Acked: 1, Nacked: 3, NackReason: markup, Refused: []string{"a"}},
		rollout.Node{ID: "bad/../one", Domain: "web", Program: "sidecar 2", Sent: 2, Acked: 2, BreakGlass: []rollout.BreakGlass{{
			ID: "x", At: time.Now().Add(-time.Minute), Actor: "ann", Domain: "web", Freeze: rules.Freeze{Until: time.Now().Add(time.Hour)},
		}}},
	)
	page := w.page("/sidecars")
	wants(t, page, "✓ 1 synced", "✕ 1 need somebody", "✕ nacked", "refuses a rule, and keeps its last good version", "2 revisions behind", "&lt;script&gt;", "break-glass on this sidecar alone", "by ann", `href="/sidecars/bad%2F..%2Fone"`)
	lacks(t, page, markup)
	if strings.Index(page, "bad/../one") > strings.Index(page, "a-good") {
		t.Errorf("who needs somebody does not come first:\n%s", page)
	}
	wants(t, w.page("/sidecars?state=nacked"), "bad/../one")
	lacks(t, w.page("/sidecars?state=nacked"), `href="/sidecars/a-good"`)
	wants(t, w.page("/sidecars?q=good&domain=web"), "None of the 2 sidecars is so")
	w.nodes(rollout.Node{ID: "left", Domain: "api", Departed: true})
	wants(t, w.page("/sidecars"), "✓ 1 synced", "– 1 gone")
	wants(t, w.page("/"), "✓ 1 synced", "– 1 gone")
	w.refuses("/sidecars?state=lost", http.StatusBadRequest, "it is one of all, synced")
	page = w.page("/sidecars/bad%2F..%2Fone")
	wants(t, page, "api/a", "v1 in shadow", "v1 at 10%", "✕ refused", "keeps its last good version", "2 revisions behind", "&lt;script&gt;")
	wants(t, w.page("/sidecars/a-good"), "None: it has every rule in its newest state")
	w.refuses("/sidecars/nobody", http.StatusNotFound, "rulectl sidecar list")
	w.who = access.Identity{Name: "vi", Role: access.Viewer, Domains: []string{"web"}, Verified: true}
	wants(t, w.page("/sidecars"), "Only the sidecars of your domains are shown: web")
	w.refuses("/sidecars/a-good", http.StatusNotFound, "not found")
}
