package ui_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// slow is the connection of a browser that reads nothing: a write ends with its deadline, if it has one.
type slow struct {
	http.ResponseWriter
	until time.Time
	gone  <-chan struct{}
}

func (*slow) Flush() {}

func (s *slow) SetWriteDeadline(t time.Time) error {
	s.until = t
	return nil
}

func (s *slow) Write([]byte) (int, error) {
	if s.until.IsZero() {
		<-s.gone
	}
	<-time.After(time.Until(s.until))
	return 0, os.ErrDeadlineExceeded
}

// One that reads nothing held its stream for ever, and enough of them all that there are.
func TestStreamOfWhoReadsNothingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", "text/event-stream")
		ctx, cancel := context.WithTimeout(access.With(t.Context(), w.who), time.Hour)
		defer cancel()
		began := time.Now()
		w.ui.ServeHTTP(&slow{ResponseWriter: httptest.NewRecorder(), gone: ctx.Done()}, r.WithContext(ctx))
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it lasted for %s", took)
		}
		synctest.Wait()
	})
}

// One credential could take all the streams that there are.
func TestNobodyTakesAllStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		follow := func(credential string) string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			who := w.who
			who.Credential = credential
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept", "text/event-stream")
			recorder := httptest.NewRecorder()
			w.ui.ServeHTTP(recorder, r.WithContext(access.With(ctx, who)))
			return recorder.Body.String()
		}
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() { follow("greedy") })
		}
		synctest.Wait()
		if got := follow("greedy"); !strings.Contains(got, "event: trouble\ndata: 64 pages are followed with your token already") || !strings.Contains(got, "retry: 10000\n") {
			t.Errorf("one more gets %q", got)
		}
		if got := follow("other"); !strings.Contains(got, "event: live-domains") {
			t.Errorf("somebody else gets %q", got)
		}
		group.Wait()
		if got := follow("greedy"); !strings.Contains(got, "event: live-domains") {
			t.Errorf("when they have ended one gets %q", got)
		}
		synctest.Wait()
	})
}
