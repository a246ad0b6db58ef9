package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/test/harness"
)

// The window of a laptop, until the test says otherwise.
const width, height = 1280, 800

// patience bounds every wait for something that is expected to happen. It is long because machines that test are busy.
const patience = 30 * time.Second

// Tab is one page of the browser, with cookies, a cache and storage of its own. It is closed when its test ends.
//
// Selectors are those of CSS, and mean the first element that matches. A method that needs an element waits for it, and
// ends the test when it does not come in time.
type Tab struct {
	tb     testing.TB
	ctx    context.Context
	origin string
	*troubles
}

// New returns an empty tab for the pages of one server, e.g. "http://127.0.0.1:7070". What goes wrong in it until
// the test ends is an error of the test.
func New(tb testing.TB, origin string) *Tab {
	tb.Helper()
	u, err := url.Parse(origin)
	if err != nil {
		tb.Fatal(err)
	}
	t := &Tab{tb: tb, origin: origin, troubles: newTroubles(u.Host)}
	ctx, closed := chromedp.NewContext(chromium(tb), chromedp.WithNewBrowserContext(), chromedp.WithListener(t.hear))
	t.ctx = ctx
	if _, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{}); err != nil {
		tb.Fatalf("open a tab: %v", err)
	}
	t.Light()
	tb.Cleanup(func() {
		// Also has all events heard that came before the answer.
		text := t.try(`document.body?.innerText ?? ""`)
		for _, trouble := range t.unexpected() {
			tb.Error("in the browser: " + trouble)
		}
		if tb.Failed() {
			tb.Logf("at its end the tab shows %s", text)
		}
		closed()
	})
	return t
}

// hear notes the events of the tab, and closes dialogs, for which the whole page would wait.
func (t *Tab) hear(event any) {
	t.troubles.hear(event)
	if _, ok := event.(*page.EventJavascriptDialogOpening); ok {
		// Not in place: this is called by who would have to read the answer.
		go func() {
			_, _ = chromedp.Call(t.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	}
}

// Open loads a page of the server, given as path and query, and returns when it is there with its scripts and styles.
func (t *Tab) Open(path string) {
	t.tb.Helper()
	t.do("open "+path, chromedp.Navigate(t.origin+path))
}

// Reload loads the page again.
func (t *Tab) Reload() { t.tb.Helper(); t.do("reload", chromedp.Reload()) }

// Path returns the path and the query of the page.
func (t *Tab) Path() string {
	t.tb.Helper()
	return Eval[string](t, `location.pathname + location.search`)
}

// Wait returns when an element matches.
func (t *Tab) Wait(selector string) {
	t.tb.Helper()
	t.until(fmt.Sprintf(`document.querySelector(%s) ? "" : "nothing matches"`, quote(selector)), selector)
}

// WaitGone returns when no element matches, or none that is shown.
func (t *Tab) WaitGone(selector string) {
	t.tb.Helper()
	t.until(fmt.Sprintf(`[...document.querySelectorAll(%s)].some(e => e.checkVisibility()) ? "is shown" : ""`, quote(selector)), selector)
}

// WaitText returns when an element that matches, any of them, shows the text.
func (t *Tab) WaitText(selector, text string) {
	t.tb.Helper()
	t.until(fmt.Sprintf(`(() => {
		const texts = [...document.querySelectorAll(%s)].map(e => e.innerText)
		return texts.some(text => text.includes(%s)) ? "" : "the texts are " + JSON.stringify(texts)
	})()`, quote(selector), quote(text)), fmt.Sprintf("%s with %q", selector, text))
}

// Text returns what an element shows, as it is read: blocks on lines of their own, without what is hidden.
func (t *Tab) Text(selector string) string {
	t.tb.Helper()
	t.Wait(selector)
	return Eval[string](t, fmt.Sprintf(`document.querySelector(%s).innerText`, quote(selector)))
}

// Texts returns what each of the elements shows that match now, of which there may be none.
func (t *Tab) Texts(selector string) []string {
	t.tb.Helper()
	return Eval[[]string](t, fmt.Sprintf(`[...document.querySelectorAll(%s)].map(e => e.innerText)`, quote(selector)))
}

// Click waits until an element is shown, scrolls to it and clicks on its middle.
func (t *Tab) Click(selector string) {
	t.tb.Helper()
	t.again("click on "+selector, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Type puts text into a field, in place of what is there.
func (t *Tab) Type(selector, text string) {
	t.tb.Helper()
	t.again("type into "+selector,
		chromedp.Focus(chromedp.CSS(selector), chromedp.NodeVisible),
		chromedp.Evaluate[chromedp.Void](`document.activeElement.select?.()`),
		chromedp.KeyEvent(kb.Delete),
		chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Press presses keys one after the other, wherever the focus is: letters, or those of chromedp's package kb.
func (t *Tab) Press(keys ...string) {
	t.tb.Helper()
	for _, key := range keys {
		t.do(fmt.Sprintf("press %q", key), chromedp.KeyEvent(key))
	}
}

// Dark has the person prefer dark pages.
func (t *Tab) Dark() { t.tb.Helper(); t.prefer("dark") }

// Light has the person prefer light pages, as they do from the start.
func (t *Tab) Light() { t.tb.Helper(); t.prefer("light") }

func (t *Tab) prefer(scheme string) {
	t.tb.Helper()
	t.do("prefer "+scheme, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme},
				// So that no colour is half way to another one when a test looks.
				{Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	}))
}

// Narrow makes the window that of a telephone, 390 px wide.
func (t *Tab) Narrow() {
	t.tb.Helper()
	t.do("make the window narrow", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch))
}

// NoScript switches JavaScript off, for pages that are opened from now on. What a test asks of the page still works.
func (t *Tab) NoScript() {
	t.tb.Helper()
	t.do("switch JavaScript off", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
}

// Zone moves the person to another time zone, e.g. "Asia/Tokyo".
func (t *Tab) Zone(name string) {
	t.tb.Helper()
	t.do("move to "+name, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
		return err
	}))
}

// Screenshot writes the whole page, also what is below the window, to a PNG file.
func (t *Tab) Screenshot(file string) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(file, png, 0o600)
	}
	if err != nil {
		t.tb.Fatalf("take a screenshot: %v", err)
	}
}

// Eval returns the value of a JavaScript expression in the page; of a promise, what it comes to. The policy of the page does
// not bind it.
func Eval[T any](t *Tab, expression string) T {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.tb.Fatalf("evaluate %.200s: %v", expression, err)
	}
	return value
}

// do does what is done once.
func (t *Tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.tb.Fatalf("%s: %v", what, err)
	}
}

// again does what may be tried again: a page that is alive can replace an element between the look for it and the click.
func (t *Tab) again(what string, actions ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	harness.Eventually(t.tb, patience, func() error {
		ctx, cancel := context.WithTimeout(t.ctx, patience/3)
		defer cancel()
		if err := chromedp.Do(ctx, actions...); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// until asks an expression, which says what is missing, until nothing is. It is asked from outside, not by an observer in
// the page, since it has to outlive the page and to work without JavaScript.
func (t *Tab) until(expression, what string) {
	t.tb.Helper()
	harness.Eventually(t.tb, patience, func() error {
		if missing := t.try(expression); missing != "" {
			return fmt.Errorf("%s: %s", what, missing)
		}
		return nil
	})
}

// try evaluates an expression in a page that may be about to go.
func (t *Tab) try(expression string) string {
	ctx, cancel := context.WithTimeout(t.ctx, patience/3)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		return err.Error()
	}
	return text
}

// quote returns the text as JavaScript writes it.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // of a string never fails
	return strings.TrimSpace(b.String())
}
