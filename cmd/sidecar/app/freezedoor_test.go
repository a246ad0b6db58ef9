package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// door is the freeze door over an engine whose rule "shut" of the domain d refuses everything.
type door struct {
	http.Handler
	engine  *enforce.Engine
	reports func() []rollout.BreakGlass
	changes int
	log     bytes.Buffer
}

type nobody struct{}

func (nobody) Record(string, *enforce.Decision) {}

func openDoor(t *testing.T, path string, domains ...string) *door {
	t.Helper()
	d := &door{engine: enforce.NewEngine(memlimit.New(), nobody{}, slog.New(slog.DiscardHandler))}
	d.Handler, d.reports = app.FreezeDoor(d.engine, path, func() { d.changes++ }, slog.New(slog.NewTextHandler(&d.log, nil)), domains...)
	d.swap()
	return d
}

func (d *door) swap(freezes ...rules.Freeze) {
	shut := rules.Version{Number: 1, Spec: rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Window: time.Second}}}}}
	rule := &rules.Rule{Domain: "d", Name: "shut", UID: "u", Stable: &shut}
	d.engine.Swap(rules.NewIndex(rules.Domain{Name: "d", Freezes: freezes}, []*rules.Rule{rule}))
}

func (d *door) allows(t *testing.T) bool {
	t.Helper()
	return d.engine.Decide(t.Context(), &rules.Request{Domain: "d", Method: "GET", Path: "/", Hits: 1}).Allowed
}

type answer struct {
	Freezes []struct {
		Domain, Rule, Source, Actor string
		Until                       time.Time
		IncludingClosed             bool
	}
	Warning, Error string
}

func (d *door) ask(t *testing.T, method, url string, header ...string) (int, answer) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, url, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:8082"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	var a answer
	if w.Code != http.StatusMethodNotAllowed {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%s %s: %d %q, %v", method, url, w.Code, w.Body, err)
		}
	}
	return w.Code, a
}

// shown sums an answer up.
func (a answer) shown() (list []string) {
	for _, f := range a.Freezes {
		list = append(list, fmt.Sprintf("%s/%s %s %s closed=%v", f.Domain, f.Rule, f.Source, f.Actor, f.IncludingClosed))
	}
	return list
}

func TestFreezeTakesEffectAtOnceAndCanBeEnded(t *testing.T) {
	t.Parallel()
	d := openDoor(t, "", "d")
	if d.allows(t) {
		t.Fatal("allowed before the freeze")
	}
	before := time.Now()
	code, a := d.ask(t, "POST", "/freeze?domain=d&rule=shut&for=15m&including_closed=true&actor=ann")
	if diff := cmp.Diff([]string{"d/shut sidecar ann closed=true"}, a.shown()); diff != "" || code != http.StatusOK {
		t.Fatalf("%d %s (-want +got):\n%s", code, a.Error, diff)
	}
	if left := a.Freezes[0].Until.Sub(before); left < 15*time.Minute-time.Microsecond || left > 16*time.Minute {
		t.Errorf("it ends in %v, want 15m", left)
	}
	if !strings.Contains(a.Warning, "--last-good") {
		t.Errorf("warning %q, want that a restart forgets it", a.Warning)
	}
	d.swap(rules.Freeze{Until: before.Add(time.Hour)})
	if !d.allows(t) {
		t.Error("refused during the freeze")
	}
	_, a = d.ask(t, "GET", "/freezes")
	if diff := cmp.Diff([]string{"d/ controlplane  closed=false", "d/shut sidecar ann closed=true"}, a.shown()); diff != "" {
		t.Errorf("from both sources (-want +got):\n%s", diff)
	}
	d.swap()
	if code, a = d.ask(t, "POST", "/unfreeze?domain=d&rule=shut&actor=bob"); code != http.StatusOK || len(a.Freezes) > 0 || d.allows(t) {
		t.Errorf("%d %+v, allows %v; want nothing frozen", code, a, d.allows(t))
	}
	var got []string
	for _, r := range d.reports() {
		if r.ID == "" || r.Freeze.Until.Location() != time.UTC || r.At.Truncate(time.Microsecond) != r.At {
			t.Errorf("report %+v: want an id, and UTC microseconds", r)
		}
		got = append(got, fmt.Sprintf("%s %s %s %v", r.Actor, r.Domain, r.Freeze.Rule, r.Freeze.Until.Sub(r.At)))
	}
	if diff := cmp.Diff([]string{"bob d shut 0s", "ann d shut 15m0s"}, got); diff != "" {
		t.Errorf("reports, the newest first (-want +got):\n%s", diff)
	}
	if d.changes != 2 {
		t.Errorf("told of %d changes, want 2", d.changes)
	}
}

func TestFreezeOfOneDomainNeedsNoName(t *testing.T) {
	t.Parallel()
	d := openDoor(t, "", "d")
	if code, a := d.ask(t, "POST", "/freeze?for=15m"); code != http.StatusOK || !d.allows(t) {
		t.Errorf("%d %+v", code, a)
	}
	if code, a := d.ask(t, "POST", "/unfreeze"); code != http.StatusOK || d.allows(t) {
		t.Errorf("%d %+v", code, a)
	}
	if got := d.reports(); len(got) != 2 || got[0].Actor != "unknown" {
		t.Errorf("reports %+v, want two by unknown", got)
	}
}

func TestFreezeThatCannotBeIsRefusedWithAClearText(t *testing.T) {
	t.Parallel()
	d := openDoor(t, "", "d", "e")
	for _, c := range []struct {
		method, url string
		code        int
		want        string
	}{
		{"POST", "/freeze?domain=x&for=15m", 404, `domain "x" is not served here: this sidecar has d, e`},
		{"POST", "/freeze?for=15m", 404, "this sidecar has d, e"},
		{"POST", "/freeze?domain=d&rule=gone&for=15m", 404, `rule "gone" is not in force here`},
		{"POST", "/freeze?domain=e&rule=shut&for=15m", 404, `rule "shut" is not in force here`},
		{"POST", "/freeze?domain=d", 400, "say for how long, as for=15m; at most 24h"},
		{"POST", "/freeze?domain=d&for=15", 400, "for=15:"},
		{"POST", "/freeze?domain=d&for=-1m", 400, "for=-1m:"},
		{"POST", "/freeze?domain=d&for=25h", 400, "at most 24h"},
		{"POST", "/freeze?domain=d&for=15m&including_closed=maybe", 400, "including_closed is true or false"},
		{"POST", "/freeze?domain=d&for=15m&includeClosed=true", 400, `"includeClosed": use domain, rule`},
		{"POST", "/freeze?domain=d&domain=e&for=15m", 400, `"domain": use domain, rule`},
		{"POST", "/freeze?domain=%zz&for=15m", 400, "invalid"},
		{"POST", "/unfreeze?domain=d", 404, "no freeze of d was made at this sidecar"},
		{"POST", "/unfreeze?domain=d&rule=shut", 404, "no freeze of d/shut was made at this sidecar"},
		{"GET", "/freeze?domain=d&for=15m", 405, ""},
		{"GET", "/unfreeze?domain=d", 405, ""},
	} {
		if code, a := d.ask(t, c.method, c.url); code != c.code || !strings.Contains(a.Error, c.want) {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.url, code, a.Error, c.code, c.want)
		}
	}
	if _, a := d.ask(t, "GET", "/freezes"); len(a.Freezes) > 0 || len(d.reports()) > 0 || a.Freezes == nil {
		t.Errorf("frozen after refusals only: %+v, %+v", a.Freezes, d.reports())
	}
}

// The page of another site, open on the same host, must not freeze.
func TestFreezeIsRefusedToPagesOfOtherSites(t *testing.T) {
	t.Parallel()
	d := openDoor(t, "", "d")
	code, a := d.ask(t, "POST", "/freeze?for=15m", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	if code != http.StatusForbidden || a.Error == "" || d.allows(t) {
		t.Errorf("%d %+v, allows %v", code, a, d.allows(t))
	}
}

// What is logged, stored and sent is printable and bounded, whatever the client calls itself.
func TestActorIsMadePrintable(t *testing.T) {
	t.Parallel()
	d := openDoor(t, "", "d")
	d.ask(t, "POST", "/freeze?for=15m&actor=a%00n%0an%ff"+strings.Repeat("ä", 200))
	if got := d.reports()[0].Actor; !strings.HasPrefix(got, "ann") || len(got) > 200 || strings.ToValidUTF8(got, "") != got {
		t.Errorf("actor %q", got)
	}
}

func TestFreezesSurviveARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.freezes")
	d := openDoor(t, path, "d")
	for _, url := range []string{
		"/freeze?for=1h&actor=ann", "/freeze?rule=shut&for=1h", "/unfreeze?rule=shut", "/freeze?for=2h&including_closed=1&actor=bob",
	} {
		if code, a := d.ask(t, "POST", url); code != http.StatusOK || a.Warning != "" {
			t.Fatalf("%s: %d %+v", url, code, a)
		}
	}
	again := openDoor(t, path, "d")
	if !again.allows(t) {
		t.Error("refused after the restart")
	}
	_, a := again.ask(t, "GET", "/freezes")
	if diff := cmp.Diff([]string{"d/ sidecar bob closed=true"}, a.shown()); diff != "" {
		t.Errorf("in force after the restart (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(d.reports(), again.reports()); diff != "" {
		t.Errorf("reports after the restart (-want +got):\n%s", diff)
	}
}

func TestOnlyFreezesThatHaveNotEndedComeBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	now := time.Now().UTC()
	record := func(rule string, ago, length time.Duration) rollout.BreakGlass {
		at := now.Add(-ago)
		return rollout.BreakGlass{ID: rule, At: at, Actor: "ann", Domain: "d", Freeze: rules.Freeze{Rule: rule, Until: at.Add(length)}}
	}
	b, err := json.Marshal([]rollout.BreakGlass{
		record("ended", time.Minute, 0), record("over", time.Hour, time.Minute), record("ended", 2*time.Hour, 9*time.Hour),
		record("runs", 3*time.Hour, 9*time.Hour), record("endless", 4*time.Hour, 99*time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	d := openDoor(t, path, "d")
	_, a := d.ask(t, "GET", "/freezes")
	if diff := cmp.Diff([]string{"d/runs sidecar ann closed=false"}, a.shown()); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	if !strings.Contains(d.log.String(), "endless") {
		t.Errorf("the log does not name the freeze that cannot be:\n%s", d.log.String())
	}
}

func TestDamagedFileIsLoggedAndLeftAside(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	d := openDoor(t, path, "d")
	d.ask(t, "POST", "/freeze?for=1h")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) - 1 {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		d := openDoor(t, path, "d")
		if d.allows(t) || !strings.Contains(d.log.String(), "is damaged") {
			t.Fatalf("cut to %d of %d bytes: allows %v, log %q", size, len(whole), d.allows(t), d.log.String())
		}
		if code, a := d.ask(t, "POST", "/freeze?for=1h"); code != http.StatusOK || a.Warning != "" || !openDoor(t, path, "d").allows(t) {
			t.Fatalf("a freeze after it: %d %+v, or lost", code, a)
		}
	}
}

func TestFreezeGetsThroughWhereItCannotBeWritten(t *testing.T) {
	t.Parallel()
	d := openDoor(t, filepath.Join(t.TempDir(), "no", "such", "folder"), "d")
	code, a := d.ask(t, "POST", "/freeze?for=1h")
	if code != http.StatusOK || !strings.Contains(a.Warning, "restart") || !d.allows(t) {
		t.Errorf("%d %+v, allows %v; want it in force with a warning", code, a, d.allows(t))
	}
}

// The records are bounded, and what is still in force is not forgotten among them. What the control plane may not hear of
// is in the log.
func TestManyRecordsKeepTheFreezesInForce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	d := openDoor(t, path, "d")
	d.ask(t, "POST", "/freeze?rule=shut&for=1h&actor=first")
	for range 55 {
		d.ask(t, "POST", "/freeze?for=1h")
		d.ask(t, "POST", "/unfreeze")
	}
	if n := len(d.reports()); n != 100 {
		t.Errorf("%d reports, want 100", n)
	}
	if log := d.log.String(); strings.Count(log, "not reported any more") != 11 || !strings.Contains(log, "actor=first\n") {
		t.Errorf("the log does not tell of the 11 that are no longer reported: %s", log)
	}
	var kept []rollout.BreakGlass
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &kept) != nil || len(kept) != 101 {
		t.Errorf("%d records kept, %v; want the newest 100 and the one in force", len(kept), err)
	}
	if _, a := openDoor(t, path, "d").ask(t, "GET", "/freezes"); len(a.Freezes) != 1 || a.Freezes[0].Actor != "first" {
		t.Errorf("after a restart: %+v, want the first freeze", a.Freezes)
	}
}

// Who reaches the port from elsewhere may look, and not freeze: nobody is asked who they are.
func TestFreezeIsTakenFromThisMachineOnly(t *testing.T) {
	t.Parallel()
	d := openDoor(t, "", "d")
	for peer, want := range map[string]int{"127.0.0.1:1": 200, "[::1]:1": 200, "[::ffff:127.0.0.1]:1": 200, "192.0.2.1:1": 403, "[2001:db8::1]:1": 403, "@": 403} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/freeze?domain=d&for=15m", nil)
		r.RemoteAddr, r.Host = peer, "localhost:8082"
		w := httptest.NewRecorder()
		if d.ServeHTTP(w, r); w.Code != want {
			t.Errorf("freeze from %s: %d, want %d", peer, w.Code, want)
		}
	}
}

// A page whose name was made to point to this machine asks as if it were of this site.
func TestFreezeIsNotTakenUnderAForeignName(t *testing.T) {
	t.Parallel()
	d := openDoor(t, "", "d")
	for host, want := range map[string]int{"127.0.0.1:8082": 200, "[::1]:8082": 200, "localhost": 200, "evil.example:8082": 403, "evil.example": 403} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/freeze?domain=d&for=15m", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", host
		r.Header.Set("Origin", "http://"+host)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		w := httptest.NewRecorder()
		if d.ServeHTTP(w, r); w.Code != want {
			t.Errorf("freeze of a page of %s: %d, want %d", host, w.Code, want)
		}
	}
}

func TestProfilesAreForThisMachineOnly(t *testing.T) {
	t.Parallel()
	for peer, want := range map[string]int{"127.0.0.1:1": 200, "192.0.2.1:1": 403} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
		r.RemoteAddr, r.Host = peer, "127.0.0.1:8082"
		w := httptest.NewRecorder()
		if app.Profile(w, r); w.Code != want {
			t.Errorf("from %s: %d, want %d", peer, w.Code, want)
		}
	}
}
