package ui_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
)

// listen follows a page, and returns its events as they come: name and data.
func (w *world) listen(path string) (next func() (string, string), stop func()) {
	w.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.ui.ServeHTTP(rw, r.WithContext(access.With(r.Context(), w.who)))
	}))
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := server.Client().Do(req) //nolint:bodyclose // stop does
	if err != nil {
		w.t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		w.t.Fatalf("it is %s", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	next = func() (name, data string) {
		w.t.Helper()
		for lines.Scan() {
			switch line := lines.Text(); {
			case strings.HasPrefix(line, "event: "):
				name = strings.TrimPrefix(line, "event: ")
			case strings.HasPrefix(line, "data:"):
				data += strings.TrimPrefix(strings.TrimPrefix(line, "data:"), " ") + "\n"
			case line == "" && name != "":
				return name, data
			}
		}
		w.t.Fatalf("the stream ended: %v", lines.Err())
		return "", ""
	}
	return next, func() {
		cancel()
		_ = resp.Body.Close()
		server.Close()
	}
}

func TestLivePartsComeWhenTheyHaveChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-ip, key: [ip], limit: 1/s}")
	next, stop := w.listen("/")
	defer stop()
	seen := map[string]int{}
	for range 5 {
		name, _ := next()
		seen[name]++
	}
	for _, part := range []string{"live-alerts", "live-domains", "live-fleet", "live-rollouts", "live-trail"} {
		if seen[part] != 1 {
			t.Errorf("%s came %d times at first", part, seen[part])
		}
	}
	w.count(0, tally.Window{Domains: []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{tally.RequestsRefused: 4321}}}})
	if name, data := next(); name != "live-domains" || !strings.Contains(data, "4,321") {
		t.Errorf("then comes %s: %s", name, data)
	}
	w.promote("api", "per-ip", 10_000)
	changed := map[string]string{}
	for range 3 {
		name, data := next()
		changed[name] = data
	}
	if !strings.Contains(changed["live-trail"], "promote") || !strings.Contains(changed["live-rollouts"], "No candidate") || changed["live-domains"] == "" {
		t.Errorf("after a promotion come %v", changed)
	}
}

func TestBrokenAddressesAreNotFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := httptest.NewRequest(http.MethodGet, "/?a=%zz", nil)
	r.Header.Set("Accept", "text/event-stream")
	if status, body := w.do(r); status != http.StatusBadRequest || !strings.Contains(body, "broken") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := w.get("/?a=%zz"); status != http.StatusBadRequest || !strings.Contains(body, "broken after the question mark") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := w.get("/nothing"); status != http.StatusNotFound || !strings.Contains(body, "There is no such page") {
		t.Errorf("%d %s", status, body)
	}
}

// A message with a carriage return ended a line of the stream: what followed was an event of whoever wrote the message, and
// "ended" had every browser on the page load it again and again.
func TestNoTextMakesAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-ip, key: [ip], limit: 1/s}")
	w.done("/d/api/do/freeze", form("for", "15m", "message", "why\r\revent: ended\rdata: x\r\r\nand more"))
	next, stop := w.listen("/")
	defer stop()
	for range 5 {
		name, data := next()
		if strings.Contains(data, "\r") {
			t.Errorf("%s has a line that is two to a browser: %q", name, data)
		}
		if name == "live-trail" && !strings.Contains(data, "event: ended") {
			t.Errorf("the message is not there: %q", data)
		}
	}
}
