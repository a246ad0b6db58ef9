package e2e_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/test/browser"
)

// Who may only look sees no buttons and is told why; a form that is sent all the same is refused, and the attempt is kept.
func TestDashboardOfAViewer(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.apply(shop("{name: per-client, key: [ip], limit: 5/d}"))
	tab := b.as("viewer", "/")
	for _, path := range []string{
		"/d/shop", rulePage("per-client", "traffic"), rulePage("per-client", "rollout"), rulePage("per-client", "versions"),
		"/alerts", "/overrides", "/settings",
	} {
		tab.Open(path)
		if buttons := browser.Eval[[]string](tab, `[...document.querySelectorAll("#main a[href*='/do/']:not([href*='/do/sign-out'])")].map(e => e.href)`); len(buttons) > 0 {
			t.Errorf("%s offers a viewer %q", path, buttons)
		}
	}
	tab.Open(rulePage("per-client", "rollout"))
	tab.WaitText(".whynot", "operator")
	tab.WaitText(".whynot", "viewer")

	// The form says so as well.
	tab.Open("/d/shop/r/per-client/do/promote?to=100%25")
	tab.WaitText("#confirm", "You cannot do this")
	if got := tab.Texts("#confirm [type=submit]"); len(got) > 0 {
		t.Errorf("the form has the buttons %q", got)
	}

	tab.Expect("403 POST http://" + b.http + "/d/shop/r/per-client/do/promote")
	status := browser.Eval[int](tab, `fetch("/d/shop/r/per-client/do/promote", {
		method: "POST", body: new URLSearchParams({to: "100%", message: "forged"}), redirect: "manual",
	}).then(r => r.status)`)
	if status != 403 {
		t.Errorf("a forged promotion got %d", status)
	}
	if list := b.must("get", "rules"); !strings.Contains(list, "shadow") {
		t.Errorf("the rules are\n%s", list)
	}
	b.audited("promote: forbidden: a viewer has the role viewer")
}

// Who has signed out is nobody, in the other window too where they sign out everywhere.
func TestDashboardSignsOut(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	one, two := b.as("admin", "/"), b.as("admin", "/settings")
	two.Click("a[href*='do/sign-out-everywhere']")
	two.Click("#dialog[open] [type=submit]")
	two.WaitText("h1", "Sign in")
	one.Open("/d/shop")
	one.WaitText("h1", "Sign in")
	if got := one.Path(); got != "/login?next=%2Fd%2Fshop" {
		t.Errorf("the address is %s", got)
	}

	one = b.as("viewer", "/")
	one.Click("form[action='/logout'] button")
	one.WaitText("h1", "Sign in")
	one.Type("[name=token]", "no-such-token")
	one.Expect("401 POST http://" + b.http + "/login")
	one.Click("#main [type=submit]")
	one.WaitText("#main", "not") // known
	one.Wait("[name=token]")
}
