package e2e_test

import (
	"net/http"
	"strings"
	"testing"
)

// Somebody is woken: an alert fires, the domain is frozen from it, and everybody passes.
func TestDashboardFreezesADomainFromAnAlert(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.enforce(shop("{name: per-client, key: [ip], limit: 1/d}"))
	if refused := b.calls(30, 3); refused != 60 {
		t.Fatalf("%d calls were refused, want 60", refused)
	}
	tab := b.as("operator", "/")
	fired := b.fire(60)
	tab.WaitText("#live-alerts", "Firing") // without a reload
	tab.WaitText("#live-alerts", "shop/per-client")
	tab.Click("#live-alerts a[href='/alerts#" + fired.ID + "']")
	entry := "[id='" + fired.ID + "']"
	tab.WaitText(entry, "60")
	tab.WaitText(entry, "90")
	tab.WaitText(entry, "192.0.2.*")

	tab.Click(entry + " a[href^='/d/shop/do/freeze']")
	tab.WaitText("#dialog h1", "shop")
	b.taken(func() { confirm(tab, "woken at three") })
	if refused := b.calls(30, 1); refused > 0 {
		t.Errorf("frozen, and %d calls were refused", refused)
	}
	tab.Open("/")
	tab.WaitText("#live-domains", "frozen")
	b.audited(`"freeze"`, "woken at three")
}

// A customer asks why they got a 429: their key is typed in, and only a hash of it is known.
func TestDashboardFindsOneCustomer(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.enforce(shop("{name: api-key-plan, key: [header:x-api-key], limit: 2/d}"))
	for range 5 {
		b.one.callWith(http.MethodGet, "/v1/orders", http.Header{"X-Api-Key": {"secret-of-a-customer"}})
	}
	b.one.callWith(http.MethodGet, "/v1/orders", http.Header{"X-Api-Key": {"another-one"}})

	tab := b.as("viewer", rulePage("api-key-plan", "keys"))
	tab.WaitText("#top-keys tbody th", "#") // a keyed hash
	hash := tab.Text("#top-keys tbody th")
	tab.Type("#lookup [name=key]", "secret-of-a-customer")
	tab.Click("#lookup [type=submit]")
	tab.WaitText("#found", hash)
	tab.WaitText("#found", "number 1")
	tab.WaitText("#found", "/v1/orders")
	if got := tab.Texts("#found tbody tr"); len(got) != 1+3 { // where it stands, and its refusals
		t.Errorf("found is %q", got)
	}
	for _, where := range []string{tab.Text("body"), tab.Path()} {
		if strings.Contains(where, "secret-of-a-customer") {
			t.Errorf("the key is shown: %s", where)
		}
	}

	tab.Type("#lookup [name=key]", "nobody")
	tab.Click("#lookup [type=submit]")
	tab.WaitText("#found", "No refusal is kept")
}
