package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/test/browser"
	"github.com/headgate/headgate/test/harness"
)

// lived is a board with something on each of its pages: rules in all stages, refusals, an alert, a freeze, an override, a
// rule that was rolled back.
func lived(t *testing.T) *board {
	t.Helper()
	b := startBoard(t)
	const (
		login  = `{name: login, description: Tries to sign in, owner: team-identity, labels: {ticket: IDP-7}, match: {path: /login}, key: [ip], limit: 2/d, failure: closed}`
		client = `{name: per-client, description: Calls per client, owner: team-edge, key: [ip], limit: %s}`
		plans  = `{name: api-key-plan, owner: team-payments, match: {path: /v1/*}, key: [header:x-api-key], limit: {by: header:x-plan, values: {free: 60/min, pro: 600/min burst 1200}, default: 60/min}}`
	)
	b.enforce(shop(login, fmt.Sprintf(client, "100/d"), "{name: global, key: [], limit: 5_000/s burst 7_500}"))
	b.must("apply", "-f", b.file(shop(login, fmt.Sprintf(client, "3/d"), plans)), "-m", "three a day are enough", "--yes", "--wait")
	b.must("promote", "shop/api-key-plan", "--to", "25%", "-m", "as announced", "--yes", "--wait")
	b.must("override", "set", "shop/per-client", "--key", "192.0.2.200", "--limit", "1000/d", "--for", "1h", "-m", "a load test", "--yes")
	b.must("freeze", "shop/global", "--for", "1h", "-m", "being looked at", "--yes", "--wait")
	b.calls(30, 5)
	for i := range 30 {
		for range 5 {
			b.one.call(http.MethodPost, "/login", fmt.Sprintf("198.51.100.%d", i))
		}
		b.one.callWith(http.MethodGet, "/v1/orders", http.Header{"X-Api-Key": {fmt.Sprintf("key-%d", i)}, "X-Plan": {"pro"}})
	}
	b.fire(90)
	return b
}

// pages are all that the dashboard has to show of it.
func (b *board) pages() []string {
	paths := []string{"/", "/d/shop", "/d/shop?stage=shadow", "/d/shop?q=nothing-like-that"}
	for _, tab := range []string{"traffic", "shadow", "keys", "try", "rollout", "versions", "definition"} {
		paths = append(paths, rulePage("per-client", tab))
	}
	return append(paths,
		rulePage("login", "traffic"), rulePage("global", "shadow"), "/d/shop/r/per-client?tab=versions&a=1&b=2",
		"/d/shop/r/per-client/do/promote?to=10%25", "/d/shop/r/login/do/rollback", "/d/shop/do/freeze",
		"/sidecars", "/sidecars/one", "/alerts", "/alerts?show=past", "/audit", "/audit?actor=nobody", "/audit/1", "/overrides", "/settings",
		"/settings/do/create-token",
	)
}

func TestDashboardPages(t *testing.T) {
	t.Parallel()
	b := lived(t)
	// Each looks at all pages, in a tab of its own.
	t.Run("accessible", func(t *testing.T) {
		t.Parallel()
		tab := b.of(t).as("admin", "/")
		for _, path := range b.pages() {
			tab.Light()
			tab.Open(path)
			tab.Accessible()
			b.picture(tab, "light"+path)
			tab.Dark()
			tab.Accessible()
			b.picture(tab, "dark"+path)
		}
		tab = b.of(t).tab()
		tab.Open("/login")
		tab.Accessible()
		tab.Dark()
		tab.Accessible()
		b.of(t).signIn(tab, "viewer", "/")
		tab.Expect("404 GET")
		tab.Open("/nothing")
		tab.Accessible()
		tab.Light()
		tab.Accessible()
	})
	t.Run("narrow", func(t *testing.T) {
		t.Parallel()
		tab := b.of(t).tab()
		tab.Narrow()
		b.of(t).signIn(tab, "operator", "/")
		for _, path := range b.pages() {
			tab.Open(path)
			b.picture(tab, "narrow"+path)
			if wide := browser.Eval[[]string](tab, sticksOut); len(wide) > 0 {
				t.Errorf("%s is wider than a telephone: %q", path, wide)
			}
		}
	})
	t.Run("without JavaScript", func(t *testing.T) {
		t.Parallel()
		tab := b.of(t).tab()
		tab.NoScript()
		b.of(t).signIn(tab, "operator", "/")
		for _, path := range b.pages() {
			tab.Open(path)
			b.picture(tab, "plain"+path)
			if text := tab.Text("#main"); tab.Text("h1") == "" || strings.Contains(text, "undefined") || len(text) < 40 {
				t.Errorf("%s without JavaScript says %s", path, text)
			}
		}
		// Nothing is drawn, and all figures are there.
		tab.Open(rulePage("login", "traffic"))
		tab.WaitText("#main table", "90")
		// What is done in a dialog otherwise is a page here.
		tab.Open(rulePage("per-client", "rollout"))
		tab.Click("#main a[href*='do/promote']")
		tab.Wait("#confirm")
		tab.Click("#confirm a[data-close]")
		tab.WaitGone("#confirm")
	})
	t.Run("times are local, with UTC on hover", func(t *testing.T) {
		t.Parallel()
		tab := b.of(t).tab()
		tab.Zone("Asia/Kathmandu") // UTC+5:45
		b.of(t).signIn(tab, "operator", "/audit/1")
		times := browser.Eval[[]struct{ At, Text, Hover string }](tab, `[...document.querySelectorAll("#main time:not([data-ago])")]
			.map(e => ({At: e.dateTime, Text: e.innerText, Hover: e.title}))`)
		if len(times) == 0 {
			t.Fatal("the page has no time")
		}
		for _, shown := range times {
			at, err := time.Parse(time.RFC3339, shown.At)
			if err != nil {
				t.Fatal(err)
			}
			there := at.In(time.FixedZone("", 5*3600+45*60))
			if !strings.Contains(shown.Text, there.Format("04:05")) || !strings.Contains(shown.Hover, at.UTC().Format("15:04:05")) || !strings.Contains(shown.Hover, "UTC") {
				t.Errorf("%s is shown as %q, on hover %q", shown.At, shown.Text, shown.Hover)
			}
		}
	})
	t.Run("addresses that are broken", func(t *testing.T) {
		t.Parallel()
		tab := b.of(t).as("viewer", "/")
		for path, says := range map[string]string{
			"/d/shop?sort=colour":                       "sort",
			"/d/shop?stage=ready":                       "stage",
			"/d/shop?page=-1":                           "page",
			"/d/shop?q=a&q=b":                           "q",
			"/d/shop?%zz":                               "address",
			"/d/shop?from=x&to=y":                       "from",
			"/d/shop/r/per-client?tab=secrets":          "tab",
			"/d/shop/r/per-client?range=1000y":          "range",
			"/d/shop/r/per-client?from=yesterday&to=2":  "from",
			"/d/shop/r/per-client?tab=versions&a=x&b=2": "a",
			"/d/shop/r/per-client?tab=try&rate=fast":    "rate",
			"/audit?from=yesterday":                     "from",
			"/audit?before=x":                           "before",
			"/alerts?show=ready":                        "show",
			"/sidecars?state=tired":                     "state",
		} {
			tab.Expect("400 GET http://" + b.http + path)
			tab.Open(path)
			tab.WaitText("#main", "Not understood")
			if text := tab.Text("#main"); !strings.Contains(strings.ToLower(text), says) {
				t.Errorf("%s says\n%s\nand not what is wrong with %s", path, text, says)
			}
		}
		for _, path := range []string{"/d/none", "/d/shop/r/none", "/d/shop/r/per-client/do/nothing", "/sidecars/none", "/audit/999999", "/nothing"} {
			tab.Expect("404 GET http://" + b.http + path)
			tab.Open(path)
			tab.WaitText("#main", "Not found")
		}
	})
}

// sticksOut are the elements that make the page itself scroll sideways.
const sticksOut = `(() => {
	const page = document.documentElement
	if (page.scrollWidth <= page.clientWidth) return []
	const scrolls = e => e && e !== document.body && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement))
	const reaches = e => e.getBoundingClientRect().left + Math.max(e.offsetWidth ?? 0, e.scrollWidth) > page.clientWidth
	const found = [...document.querySelectorAll("body *")].filter(e => reaches(e) && !scrolls(e))
		.filter((e, _, all) => !all.some(inner => inner !== e && e.contains(inner)))
	return ["it is " + page.scrollWidth + " px wide", ...found.map(e => e.outerHTML.slice(0, 120))]
})()`

// of is the board for a subtest.
func (b *board) of(t *testing.T) *board {
	s := *b.system
	s.t = t
	return &board{system: &s, one: b.one, tokens: b.tokens}
}

// Markup is text, whoever has written it and wherever it is shown.
func TestDashboardShowsMarkupAsText(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	const evil = `<img src=x onerror=alert(1)>'"</script><script>alert(2)</script>`
	b.must("apply", "-f", b.file(shop(
		`{name: by-path, description: "`+strings.ReplaceAll(evil, `"`, `\"`)+`", owner: "<b>team</b>", key: [path], limit: 1/d}`,
	)), "-m", evil, "--stage", "enforce", "--yes", "--wait")
	b.must("freeze", "shop", "--for", "1h", "-m", evil, "--yes", "--wait")
	b.must("unfreeze", "shop", "-m", evil, "--yes", "--wait")
	for range 3 {
		b.one.raw(t, "GET /<img/src=x/onerror=alert(3)> HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
	}
	tab := b.as("admin", "/")
	tab.WaitText("#live-trail", evil)
	tab.Open("/d/shop")
	tab.WaitText("#rules", "<b>team</b>")
	tab.Open(rulePage("by-path", "definition"))
	tab.WaitText("#main", evil)
	tab.Open(rulePage("by-path", "versions"))
	tab.WaitText("#main", evil)
	tab.Open(rulePage("by-path", "keys"))
	tab.WaitText("#top-keys", "img")
	tab.Open("/audit")
	tab.WaitText("#main", evil)
	for _, path := range []string{
		"/d/shop?q=" + "%3Cscript%3Ealert(4)%3C/script%3E", rulePage("by-path", "keys") + "&key=%3Cscript%3Ealert(5)%3C/script%3E",
		"/audit?actor=%22%3E%3Cscript%3Ealert(6)%3C/script%3E", "/d/shop/r/by-path/do/freeze?message=%3C/textarea%3E%3Cscript%3Ealert(7)%3C/script%3E",
	} {
		tab.Open(path)
		if made := browser.Eval[int](tab, `document.querySelectorAll("script:not([src]), img, [onerror]").length`); made > 0 {
			t.Errorf("%s has %d elements that somebody made of text", path, made)
		}
	}
}

// raw sends bytes to the sidecar that no client would send, and waits for its answer.
func (c *sidecar) raw(t *testing.T, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", c.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Fatal(err)
	}
}

// The domain of a large team: all of its rules can be found, and no page grows with them.
func TestDashboardOfAThousandRules(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	list := make([]string, 1000)
	for i := range list {
		list[i] = fmt.Sprintf("{name: rule-%d, owner: team-%d, match: {path: /v%d/*}, key: [ip], limit: %d/min}", i, i%10, i, 10+i)
	}
	b.apply(shop(list...))
	tab := b.as("viewer", "/")
	tab.WaitText("#live-domains", "1,000")
	b.small(tab)
	tab.Open("/d/shop")
	tab.WaitText("#main", "1,000")
	b.small(tab)
	tab.Type("[name=q]", "rule-777")
	tab.WaitText("#rules tbody tr:first-child", "rule-777")
	if got := tab.Texts("#rules tbody tr"); len(got) != 1 {
		t.Errorf("found are %q", got)
	}
	harness.Eventually(t, patience, func() error { // what is chosen stands in the address
		if got := tab.Path(); !strings.Contains(got, "q=rule-777") {
			return fmt.Errorf("the address is %s", got)
		}
		return nil
	})
	tab.Click("#rules a[href='/d/shop/r/rule-777']")
	tab.WaitText("h1", "rule-777")
	b.small(tab)
}

// small wants a page of less than 300 KB, and logs how long the server took.
func (b *board) small(tab *browser.Tab) {
	b.t.Helper()
	page := browser.Eval[struct {
		Bytes int
		Took  float64
	}](tab, `(() => {
		const [n] = performance.getEntriesByType("navigation")
		return {Bytes: n.decodedBodySize, Took: n.responseStart - n.requestStart}
	})()`)
	b.t.Logf("%s: %d bytes after %.0f ms", tab.Path(), page.Bytes, page.Took)
	if page.Bytes > 300<<10 {
		b.t.Errorf("%s has %d bytes", tab.Path(), page.Bytes)
	}
}

// All that is done with a mouse is done with the keyboard as well.
func TestDashboardIsUsedWithTheKeyboard(t *testing.T) {
	t.Parallel()
	b := startBoard(t)
	b.apply(shop("{name: per-client, key: [ip], limit: 5/d}"))
	tab := b.as("operator", rulePage("per-client", "rollout"))
	tab.Wait("body.scripted")
	tab.Press(kb.Tab)
	if got := browser.Eval[string](tab, `document.activeElement.innerText`); !strings.Contains(got, "Skip") {
		t.Errorf("the first thing that is reached is %q, not the way past the navigation", got)
	}
	reach(t, tab, "#main a[href*='do/promote']")
	if outline := browser.Eval[string](tab, `getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).boxShadow`); outline == "nonenone" {
		t.Error("what has the focus does not look like it")
	}
	tab.Press(kb.Enter)
	tab.Wait("#dialog[open] h1:focus") // which says what is asked
	tab.Press(kb.Escape)
	tab.WaitGone("#dialog[open]")
	if !browser.Eval[bool](tab, `document.activeElement.matches("a[href*='do/promote']")`) {
		t.Error("after Escape the focus is not where it was")
	}
	tab.Press(kb.Enter)
	tab.Wait("#dialog[open] h1:focus")
	reach(t, tab, "#dialog #message")
	tab.Press("w", "h", "y")
	reach(t, tab, "#dialog [type=submit]")
	b.taken(func() { tab.Press(kb.Enter) })
	tab.WaitGone("#dialog[open]")
	b.audited(`"promote"`, "why")
}

// reach presses Tab until an element that matches has the focus.
func reach(t *testing.T, tab *browser.Tab, selector string) {
	t.Helper()
	for range 100 {
		if browser.Eval[bool](tab, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
			return
		}
		tab.Press(kb.Tab)
	}
	t.Fatalf("%s is not reached with Tab", selector)
}
