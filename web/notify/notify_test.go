package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally/spike"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/notify"
)

func TestMain(m *testing.M) { harness.Main(m) }

var since = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when the time of synctest begins

func anAlert(rule string) alert.Alert {
	return alert.Alert{
		ID: rule, Domain: "api", Rule: rule, UID: "u-" + rule, Version: 3, Kind: alert.Refused, Severity: alert.Page, State: "v3 stable",
		Evidence: spike.Evidence{Count: spike.Count{Refused: 10, Of: 20}, Bound: 0.2158, Baseline: 0.005, Limit: 0.025},
		Hits:     alert.Many, Distinct: 2, Keys: []alert.Key{{Label: "<!channel> & co", Count: 9}},
		Offers: []alert.Offer{{Command: "rulectl rollback api/" + rule + " --wait", Effect: "it back"}}, Since: since,
	}
}

// save stores alerts as they stand after a round.
func save(t *testing.T, m *rollouttest.Memory, list ...alert.Alert) {
	t.Helper()
	last, err := m.LastRound(t.Context())
	if err == nil {
		err = m.SaveRound(t.Context(), last.At, alert.Round{At: last.At.Add(spike.Every), Alerts: list})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func resolved(a alert.Alert, at time.Time) alert.Alert {
	a.Resolved, a.Ending = at, "over"
	return a
}

// wire answers calls as a test says, in the time of synctest.
type wire struct {
	mu     sync.Mutex
	answer func(n int, r *http.Request, body string) (*http.Response, error) // nil: 200
	calls  []string                                                          // "5s ours firing a,b"
	begin  time.Time
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	n := len(w.calls)
	w.calls = append(w.calls, fmt.Sprintf("%s %s %s", time.Since(w.begin).Truncate(time.Second), r.URL.Host, told(r.URL.Path, body)))
	answer := w.answer
	w.mu.Unlock()
	if answer == nil {
		return status(http.StatusOK), nil
	}
	return answer(n, r, string(body))
}

func status(code int, headers ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("their secret"))}
}

// told says what a body tells of: "firing a".
func told(path string, body []byte) string {
	var list []struct {
		Status string
		Labels map[string]string
		EndsAt time.Time
	}
	var hook struct{ Alerts json.RawMessage }
	switch {
	case strings.HasSuffix(path, "/alerts"):
	case json.Unmarshal(body, &hook) == nil && hook.Alerts != nil:
		body = hook.Alerts
	default:
		var slack struct{ Text string }
		if err := json.Unmarshal(body, &slack); err != nil {
			return err.Error()
		}
		first, _, _ := strings.Cut(slack.Text, "\n")
		return first
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return err.Error()
	}
	texts := make([]string, len(list))
	for i, a := range list {
		if a.Status == "" {
			a.Status = map[bool]string{true: "firing", false: "resolved"}[a.EndsAt.After(time.Now())]
		}
		texts[i] = a.Status + " " + a.Labels["rule"]
	}
	return strings.Join(texts, ", ")
}

// after runs a notifier for a time, and returns the calls that it made.
func (w *wire) after(t *testing.T, n *notify.Notifier, d time.Duration) []string {
	t.Helper()
	n.Over(w)
	ctx, stop := context.WithCancel(t.Context())
	w.begin = time.Now()
	w.calls = nil
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	<-time.After(d) // of synctest: it takes none
	stop()
	if err := <-done; err != nil {
		t.Errorf("run ended with %v", err)
	}
	slices.Sort(w.calls)
	return w.calls
}

func newNotifier(t *testing.T, s notify.Store, o notify.Options) *notify.Notifier {
	t.Helper()
	n, err := notify.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantCalls(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var everyKind = notify.Options{
	Alertmanagers: []string{"http://am1/prefix/", "http://am2"}, Webhooks: []string{"https://hook/x", "https://hook/x"}, Secret: []byte("s"),
	Slack: "https://slack/services/T/B/token",
}

func TestEachTargetHearsOfEachStatusOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, w := rollouttest.New(), &wire{}
		save(t, m, anAlert("a"))
		got := w.after(t, newNotifier(t, m, everyKind), 90*time.Second)
		wantCalls(t, "while it fires", got,
			"0s am1 firing a", "0s am2 firing a", "0s hook firing a", "0s slack *FIRING (page)* api/a v3 refuses at least 21.6%",
			"1m0s am1 firing a", "1m0s am2 firing a")

		// Another leader goes on: only Alertmanagers are told again, which forget otherwise.
		got = w.after(t, newNotifier(t, m, everyKind), 30*time.Second)
		wantCalls(t, "another leader", got, "0s am1 firing a", "0s am2 firing a")

		save(t, m, resolved(anAlert("a"), time.Now().UTC()))
		got = w.after(t, newNotifier(t, m, everyKind), 5*time.Minute)
		wantCalls(t, "when it is over", got,
			"0s am1 resolved a", "0s am2 resolved a", "0s hook resolved a", "0s slack *RESOLVED* api/a v3 refused at least 21.6%")
		wantCalls(t, "after it", w.after(t, newNotifier(t, m, everyKind), time.Minute))
	})
}

func TestATargetThatIsAwayIsTriedAgain(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		answer func(r *http.Request) (*http.Response, error)
		atMost int // calls in ten minutes, of two alerts
	}{
		"down":     {func(*http.Request) (*http.Response, error) { return nil, refused }, 30},
		"error":    {func(*http.Request) (*http.Response, error) { return status(500), nil }, 30},
		"redirect": {func(*http.Request) (*http.Response, error) { return status(302, "Location", "http://other/"), nil }, 30},
		"busy":     {func(*http.Request) (*http.Response, error) { return status(429, "Retry-After", "300"), nil }, 3},
		"refusing": {func(*http.Request) (*http.Response, error) { return status(400), nil }, 60},
		"slow":     {func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := rollouttest.New()
				save(t, m, anAlert("a"), anAlert("b"))
				w := &wire{answer: func(_ int, r *http.Request, _ string) (*http.Response, error) {
					if r.URL.Host == "slack" {
						return status(200), nil // another target does not wait for it
					}
					return c.answer(r)
				}}
				var log bytes.Buffer
				metrics := prometheus.NewRegistry()
				n := newNotifier(t, m, notify.Options{
					Webhooks: []string{"https://user:pass@hook/token"}, Secret: []byte("key"), Slack: "https://slack/token",
					Log: slog.New(slog.NewTextHandler(&log, nil)), Registerer: metrics,
				})
				got := w.after(t, n, 10*time.Minute)
				failed := slices.DeleteFunc(slices.Clone(got), func(call string) bool { return strings.Contains(call, "slack") })
				if len(failed) < 2 || len(failed) > c.atMost {
					t.Errorf("%d calls in ten minutes, want 2 to %d:\n%s", len(failed), c.atMost, strings.Join(failed, "\n"))
				}
				if len(got)-len(failed) != 2 {
					t.Errorf("the other target: %q, want both alerts at once", got)
				}
				for _, secret := range []string{"token", "pass", "key", "their secret"} {
					if strings.Contains(log.String(), secret) {
						t.Errorf("the log tells a secret:\n%s", &log)
					}
				}
				if n := strings.Count(log.String(), "level=WARN"); n != 1 {
					t.Errorf("%d warnings, want one:\n%s", n, &log)
				}

				w.answer = nil
				wantCalls(t, "when it is back", w.after(t, n, time.Minute), "0s hook firing a", "0s hook firing b")
				if got := testutil.ToFloat64(counter(t, metrics, "webhook", "sent")); got != 2 {
					t.Errorf("%v sent, want 2", got)
				}
			})
		})
	}
}

// counter makes a collector of one series.
func counter(t *testing.T, metrics *prometheus.Registry, target, result string) prometheus.Collector {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"})
	for _, f := range families {
		for _, series := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["target"] == target && labels["result"] == result {
				g.Set(series.GetCounter().GetValue())
			}
		}
	}
	return g
}

func TestAnAlertThatATargetRefusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := rollouttest.New()
		save(t, m, anAlert("a"), anAlert("b"))
		w := &wire{answer: func(_ int, _ *http.Request, body string) (*http.Response, error) {
			if strings.Contains(body, `"rule":"b"`) {
				return status(400), nil
			}
			return status(200), nil
		}}
		got := w.after(t, newNotifier(t, m, notify.Options{Webhooks: []string{"http://hook"}, Secret: []byte("s")}), time.Second)
		wantCalls(t, "calls", got, "0s hook firing a", "0s hook firing b")
	})
}

func TestOfASilencedRuleNothingNewIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, w := rollouttest.New(), &wire{}
		o := notify.Options{Webhooks: []string{"http://hook"}, Secret: []byte("s")}
		silence := func(rule string, length time.Duration) {
			now := time.Now().UTC()
			if err := m.SaveSilence(t.Context(), rollout.Silence{Domain: "api", Rule: rule, At: now, Until: now.Add(length)}, rollout.Record{}); err != nil {
				t.Fatal(err)
			}
		}
		save(t, m, anAlert("told"))
		w.after(t, newNotifier(t, m, o), time.Second)
		for _, rule := range []string{"told", "untold", "over"} {
			silence(rule, time.Minute)
		}
		// What was told before ends for everybody; what nobody heard of begins and ends unheard.
		save(t, m, resolved(anAlert("told"), time.Now().UTC()), anAlert("untold"), resolved(anAlert("over"), time.Now().UTC()))
		got := w.after(t, newNotifier(t, m, o), 2*time.Minute)
		wantCalls(t, "calls", got, "0s hook resolved told", "1m0s hook firing untold")
	})
}

func TestTheEndOfAnAlertIsNotToldForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, w := rollouttest.New(), &wire{}
		o := notify.Options{Webhooks: []string{"http://hook"}, Secret: []byte("s")}
		save(t, m, anAlert("a"))
		w.after(t, newNotifier(t, m, o), time.Second)
		save(t, m, resolved(anAlert("a"), time.Now().UTC()))
		time.Sleep(2 * time.Hour) // no leader
		wantCalls(t, "calls", w.after(t, newNotifier(t, m, o), time.Minute))
	})
}

func TestNothingIsSentWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, w := rollouttest.New(), &wire{}
		n := newNotifier(t, m, notify.Options{Slack: "http://slack"})
		save(t, m, anAlert("a"))
		m.Fail(errors.New("away"))
		wantCalls(t, "calls", w.after(t, n, time.Minute))
		m.Fail(nil)
		if got := w.after(t, n, time.Minute); len(got) != 1 {
			t.Errorf("%q, want one call when it is back", got)
		}
	})
}

func TestATestAsksEveryTargetOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: func(_ int, r *http.Request, _ string) (*http.Response, error) {
			switch r.URL.Host {
			case "am1":
				return nil, errors.New("connection refused")
			case "hook":
				return status(403), nil
			}
			return status(200), nil
		}}
		n := newNotifier(t, rollouttest.New(), everyKind)
		n.Over(w)
		var got []string
		for _, a := range n.Test(t.Context(), "ann") {
			got = append(got, fmt.Sprint(a.Target, ": ", a.Err))
		}
		if diff := cmp.Diff([]string{
			"alertmanager am1: connection refused", "alertmanager am2: <nil>", "slack slack: <nil>",
			"webhook hook: it answers 403: check the secret and the URL",
		}, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if len(w.calls) != 4 {
			t.Errorf("%d calls, want 4: %q", len(w.calls), w.calls)
		}
	})
}

func TestUnusableTargetsAreRefusedWithoutTellingThem(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]notify.Options{
		"no URL":         {Slack: "token"},
		"another scheme": {Alertmanagers: []string{"ftp://host/token"}},
		"no host":        {Webhooks: []string{"https:///token"}, Secret: []byte("s")},
		"not to parse":   {Webhooks: []string{"https://host/token\x00"}, Secret: []byte("s")},
		"no secret":      {Webhooks: []string{"https://host/token"}},
	} {
		if _, err := notify.New(rollouttest.New(), o); err == nil || strings.Contains(err.Error(), "token") {
			t.Errorf("%s: %v, want an error without the token", name, err)
		}
	}
}

// Over real sockets.
func TestCallsAreSignedAndGoNowhereElse(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	signed := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get(notify.SignatureHeader) != notify.Sign([]byte("secret"), body) {
			t.Errorf("%s is %q over\n%s", notify.SignatureHeader, r.Header.Get(notify.SignatureHeader), body)
		}
		signed <- r.Header.Get("Content-Type")
	}))
	defer server.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer untrusted.Close()

	n := newNotifier(t, rollouttest.New(), notify.Options{
		Webhooks: []string{server.URL + "/here", server.URL + "/moved", untrusted.URL}, Secret: []byte("secret"),
	})
	if got := n.Targets(); len(got) != 3 || strings.Contains(strings.Join(got, " "), "/here") || !slices.IsSorted(got) {
		t.Errorf("targets %q, want kind and host of three", got)
	}
	var failed []string
	for _, a := range n.Test(t.Context(), "ann") {
		if a.Err != nil {
			failed = append(failed, a.Err.Error())
		}
	}
	slices.Sort(failed)
	if len(failed) != 2 || !strings.Contains(failed[0], "307: redirects are not followed") || !strings.Contains(failed[1], "certificate") {
		t.Errorf("%q, want that of the redirect and that of the certificate", failed)
	}
	if got := <-signed; got != "application/json" {
		t.Errorf("content type %q", got)
	}
	// openssl dgst -sha256 -hmac secret
	if got, want := notify.Sign([]byte("secret"), []byte("body")), "sha256=dc46983557fea127b43af721467eb9b3fde2338fe3e14f51952aa8478c13d355"; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

// Who sends a call back repeats its URL, which is a secret.
func TestWhatATargetRepeatsIsNotTold(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"HTTP/1.1 302 Found\r\nLocation: /services/s3cret%zz\r\n\r\n",
		"HTTP/1.1 /services/s3cret\r\n\r\n",
		"/services/s3cret\x1b[31m\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: /services/s3cret\r\n\r\n",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}))
		defer server.Close()
		n := newNotifier(t, rollouttest.New(), notify.Options{Slack: server.URL + "/services/s3cret"})
		if err := n.Test(t.Context(), "ann")[0].Err; err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "no answer of HTTP") {
			t.Errorf("after %q: %v", answer, err)
		}
	}
}

func TestSlackIsToldWithoutMarkup(t *testing.T) {
	t.Parallel()
	texts := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Text string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		texts <- body.Text
	}))
	defer server.Close()
	m := rollouttest.New()
	save(t, m, anAlert("a"))
	n := newNotifier(t, m, notify.Options{Slack: server.URL + "/services/x"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	want := "*FIRING (page)* api/a v3 refuses at least 21.6%\nv3 refuses 10 of 20 requests in the five minutes before 2000-01-01T00:00:00Z; " +
		"usual is 0.5%. The rule: v3 stable. About 2 keys are hit: &lt;!channel&gt; &amp; co (9). To have it back: rulectl rollback api/a --wait."
	if diff := cmp.Diff(want, <-texts); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("run ended with %v", err)
	}
}
