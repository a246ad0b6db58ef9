package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/test/browser"
	"github.com/headgate/headgate/test/harness"
)

// A person decides whether to let a limit loose on customers: what it would refuse, a tenth of the keys, and back.
func TestDashboardPromotesAndRollsBack(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.apply(shop("{name: per-client, description: Calls per client, key: [ip], limit: 5/d}"))
	const clients = 200
	if refused := b.calls(clients, 6); refused > 0 { // each would have been refused once
		t.Fatalf("in shadow, and %d calls were refused", refused)
	}

	tab := b.as("operator", "/")
	tab.WaitText("#live-rollouts", "shop/per-client")
	tab.Click("#live-rollouts a[href='/d/shop/r/per-client']")
	tab.WaitText("#live-head", "shadow")
	tab.Click("a[href*='tab=shadow']")
	tab.WaitText("#would-refuse", "200")
	tab.WaitText("#would-refuse", "1,200")
	tab.WaitText("#newly-refused", "200")
	tab.Click("a[href*='tab=keys']")
	tab.WaitText("#top-keys", "192.0.2.*")
	tab.WaitText("#live-keys", strconv.Itoa(clients)) // distinct ones

	tab.Click("a[href*='tab=rollout']")
	tab.Click("#main a[href*='do/promote'][href*='to=10']")
	tab.WaitText("#dialog h1", "10%")
	b.taken(func() { confirm(tab, "the figures look right") })
	tab.WaitText("#live-head", "10%")

	tab.Click("a[href*='tab=traffic']")
	tab.Wait("body[data-feed=open]")
	refused := b.calls(clients, 1)
	if refused == 0 || refused > clients/2 {
		t.Errorf("at 10 %% of the keys %d of %d calls were refused", refused, clients)
	}
	tab.WaitText("#live-traffic .refused", strconv.Itoa(refused))

	tab.Click("#rule-head a[href*='do/rollback']")
	tab.WaitText("#dialog h1", "per-client")
	b.taken(func() { confirm(tab, "customers call") })
	tab.WaitText("#live-head", "shadow")
	if refused := b.calls(clients, 1); refused > 0 {
		t.Errorf("rolled back, and %d calls were refused", refused)
	}
	b.audited(`"promote"`, "the figures look right", `"rollback"`, "customers call", "a operator")
}

// A refusal is on the screen within two seconds; a busy machine is given more before this fails.
func TestDashboardShowsARefusalAsItHappens(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.enforce(shop("{name: per-client, key: [ip], limit: 1/d}"))
	for i, page := range []struct{ path, shows string }{
		{"/", "#live-domains .tile.refused .big"},
		{rulePage("per-client", "traffic"), "#live-traffic .refused"},
	} {
		b.one.call(http.MethodGet, "/", client(i)) // the one that passes
		tab := b.as("viewer", page.path)
		tab.Wait("body[data-feed=open]")
		before := tab.Text(page.shows)
		watch(tab, page.shows)
		at := time.Now()
		if got := b.one.call(http.MethodGet, "/", client(i)).status; got != http.StatusTooManyRequests {
			t.Fatalf("the call got %d", got)
		}
		took := time.UnixMilli(watched(t, tab)).Sub(at)
		t.Logf("%s: %q became %q after %v", page.path, before, tab.Text(page.shows), took)
		if took > 10*time.Second {
			t.Errorf("%s: a refusal was on the screen after %v", page.path, took)
		}
	}
}

// watch has the page note when the text of the element changes.
func watch(tab *browser.Tab, selector string) {
	browser.Eval[bool](tab, fmt.Sprintf(`(() => {
		const text = () => document.querySelector(%q)?.textContent
		const was = text()
		new MutationObserver(() => { if (text() !== was) window.changedAt ??= Date.now() })
			.observe(document.body, {subtree: true, childList: true, characterData: true})
		return true
	})()`, selector))
}

// watched returns when that was, in milliseconds of the Unix epoch.
func watched(t *testing.T, tab *browser.Tab) (at int64) {
	t.Helper()
	harness.Eventually(t, patience, func() error {
		if at = browser.Eval[int64](tab, `window.changedAt ?? 0`); at == 0 {
			return fmt.Errorf("the page has not changed")
		}
		return nil
	})
	return at
}

// What a person presses stays where it is until they let go: a click on what was replaced meanwhile is none.
func TestDashboardReplacesNothingUnderAPress(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.enforce(shop("{name: per-client, key: [ip], limit: 1/d}"))
	b.calls(1, 1)
	tab := b.as("viewer", rulePage("per-client", "traffic"))
	tab.Wait("body[data-feed=open] #live-traffic .tile")
	// A stream of its own tells the test when the page has been told as well.
	browser.Eval[bool](tab, `(() => {
		document.dispatchEvent(new PointerEvent("pointerdown", {bubbles: true}))
		document.querySelector("#live-traffic .tile").id = "pressed"
		let parts = 0
		const stream = new EventSource(location)
		stream.addEventListener("live-traffic", () => { if (++parts === 3) { stream.close(); document.body.dataset.told = "yes" } })
		return true
	})()`)
	harness.Eventually(t, patience, func() error {
		b.calls(1, 1)
		if browser.Eval[string](tab, `document.body.dataset.told ?? ""`) == "" {
			return errors.New("the page has not been told of two changes")
		}
		return nil
	})
	tab.Wait("body[data-told=yes] #pressed")
	browser.Eval[bool](tab, `document.dispatchEvent(new PointerEvent("pointerup", {bubbles: true}))`)
	tab.WaitGone("#pressed")
}
