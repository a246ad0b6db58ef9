package e2e_test

import (
	"strconv"
	"testing"

	"github.com/headgate/headgate/test/browser"
	"github.com/headgate/headgate/test/harness"
)

// A page is open for days, while parts of it are filled every second: charts are drawn anew when the evening comes, and a
// reader stays where they are.
func TestDashboardStaysReadable(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.enforce(shop("{name: per-client, key: [ip], limit: 1/d}"))
	refused := b.calls(5, 2)
	tab := b.as("viewer", rulePage("per-client", "traffic"))
	tab.Wait(".u-wrap")
	browser.Eval[int](tab, `document.querySelectorAll(".u-wrap").forEach(e => e.classList.add("of-the-day")) ?? 0`)
	tab.Dark()
	tab.Wait(".u-wrap:not(.of-the-day)")
	tab.WaitGone(".of-the-day")

	tab.Wait("body[data-feed=open]")
	tab.Click("#numbers-traffic > summary")
	browser.Eval[int](tab, `document.querySelector("#numbers-traffic .scroll").scrollTop = 100`)
	browser.Eval[int](tab, `document.querySelector("#live-traffic").firstElementChild.classList.add("old") ?? 0`)
	refused += b.calls(5, 1)
	tab.WaitText("#live-traffic .tile.refused", strconv.Itoa(refused))
	tab.WaitGone("#live-traffic .old")
	if got := browser.Eval[int](tab, `document.querySelector("#numbers-traffic[open] .scroll").scrollTop`); got != 100 {
		t.Errorf("the table was scrolled to 100, and is at %d", got)
	}
	if got := browser.Eval[string](tab, `document.activeElement.innerText`); got != "Show numbers" {
		t.Errorf("the focus is at %q", got)
	}
}

// Nobody tells a browser of a connection that is dead: the page says that what it shows is old, and finds its way back.
func TestDashboardTellsADeadConnection(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.enforce(shop("{name: per-client, key: [ip], limit: 1/d}"))
	refused := b.calls(5, 2)
	link := harness.NewLink(t, b.http)
	tab := browser.New(t, "http://"+link.Addr)
	b.signIn(tab, "operator", rulePage("per-client", "traffic"))
	tab.Wait("body[data-feed=open]")
	link.Swallow()
	tab.WaitText("#trouble", "The control plane does not answer")
	link.Mend()
	tab.WaitGone("#trouble")
	refused += b.calls(5, 1)
	tab.WaitText("#live-traffic .tile.refused", strconv.Itoa(refused))
}

// A form whose answer never came stays open, and says that nobody knows what became of it.
func TestDashboardKeepsAFormThatGotNoAnswer(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.enforce(shop("{name: per-client, key: [ip], limit: 1/d}"))
	tab := b.as("operator", "/d/shop/r/per-client")
	tab.Click("#rule-head a[href*='do/freeze']")
	tab.Type("#dialog[open] [name=message]", "it hurts")
	b.plane.Kill()
	tab.Expect("failed: ")
	tab.Click("#dialog[open] [type=submit]")
	tab.WaitText("#dialog[open] [role=alert]", "whether this was done is not known")
	b.startPlane("--auth", "token")
	tab.WaitGone("#trouble")
	tab.Click("#dialog[open] [type=submit]")
	tab.WaitText("#live-head", "Frozen")
	b.audited(`"freeze"`, "it hurts")
}
