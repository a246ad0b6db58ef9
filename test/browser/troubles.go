package browser

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// troubles is what went wrong in a tab, and what of it was expected.
type troubles struct {
	host string // the only one that may be asked

	mu       sync.Mutex
	requests map[network.RequestID]string // method and URL
	seen     []string
	expected []string
}

func newTroubles(host string) *troubles {
	return &troubles{host: host, requests: map[network.RequestID]string{}}
}

// Expect says that a trouble with the part in its text will come, or has come: once or several times, but not never. Texts
// are for example
//
//	403 POST http://127.0.0.1:7070/d/shop/freeze
//	console: something is wrong
func (t *troubles) Expect(part string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected = append(t.expected, part)
}

// unexpected returns the troubles that nobody has expected, and the expectations that nothing has met.
func (t *troubles) unexpected() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []string
	met := map[string]bool{}
	for _, trouble := range t.seen {
		i := slices.IndexFunc(t.expected, func(part string) bool { return strings.Contains(trouble, part) })
		if i < 0 {
			found = append(found, trouble)
		} else {
			met[t.expected[i]] = true
		}
	}
	for _, part := range t.expected {
		if !met[part] {
			found = append(found, fmt.Sprintf("nothing happened with %q in it, which the test expected", part))
		}
	}
	return found
}

func (t *troubles) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = append(t.seen, fmt.Sprintf(format, args...))
}

// hear gets the events of the tab, in their order.
func (t *troubles) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			t.note("console: %s", consoleText(e.Args))
		}
	case *runtime.EventExceptionThrown:
		t.note("exception: %s", exceptionText(e.ExceptionDetails))
	case *log.EventEntryAdded:
		// Those of the network are heard below, with their method.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			t.note("%s: %s", e.Entry.Source, e.Entry.Text)
		}
	case *audits.EventIssueAdded:
		// Also where a script has tried something and says nothing when it may not.
		if v := e.Issue.Details.ContentSecurityPolicyIssueDetails; v != nil {
			t.note("policy: %s %s violates %s", v.ContentSecurityPolicyViolationType, v.BlockedURL, v.ViolatedDirective)
		}
	case *page.EventJavascriptDialogOpening:
		t.note("dialog: %s", e.Message)
	case *network.EventRequestWillBeSent:
		t.sent(e.RequestID, e.Request)
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			t.note("%d %s", e.Response.Status, t.request(e.RequestID))
		}
	case *network.EventLoadingFailed:
		// Canceled is what the page itself or the next page has ended, e.g. a stream of events.
		if !e.Canceled {
			t.note("failed: %s: %s", t.request(e.RequestID), e.ErrorText)
		}
	}
}

func (t *troubles) sent(id network.RequestID, r *network.Request) {
	t.mu.Lock()
	t.requests[id] = r.Method + " " + r.URL
	t.mu.Unlock()
	u, err := url.Parse(r.URL)
	if err != nil || (u.Host != t.host && u.Scheme != "data" && u.Scheme != "blob") {
		t.note("foreign: %s %s", r.Method, r.URL)
	}
}

func (t *troubles) request(id network.RequestID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests[id]
}

func consoleText(args []*runtime.RemoteObject) string {
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = arg.Description // of objects and errors
		if texts[i] == "" {
			texts[i] = string(arg.Value)
		}
	}
	return strings.Join(texts, " ")
}

func exceptionText(e *runtime.ExceptionDetails) string {
	if e.Exception != nil && e.Exception.Description != "" {
		return e.Text + " " + e.Exception.Description
	}
	return e.Text
}
