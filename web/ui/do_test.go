package ui_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/ui"
)

// form is the values of a form, as pairs.
func form(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return values
}

// last is the newest record of the audit trail.
func (w *world) last() rollout.Record {
	w.t.Helper()
	list, err := w.ledger.Audit(w.t.Context(), rollout.AuditQuery{Limit: 1})
	if err != nil || len(list) != 1 {
		w.t.Fatalf("the audit trail: %v, %v", list, err)
	}
	return list[0]
}

// records is how many there are.
func (w *world) records() int {
	w.t.Helper()
	list, err := w.ledger.Audit(w.t.Context(), rollout.AuditQuery{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(list)
}

// done sends a form that must be taken, and returns what the next page says of it, and where that is.
func (w *world) done(path string, values url.Values) (notice, to string) {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	w.ui.ServeHTTP(recorder, r.WithContext(access.With(w.t.Context(), w.who)))
	answer := recorder.Result()
	if answer.StatusCode != http.StatusSeeOther {
		w.t.Fatalf("%s: %d\n%s", path, answer.StatusCode, recorder.Body)
	}
	next := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range answer.Cookies() {
		if strings.HasPrefix(c.Name, "__Host-") && (!c.Secure || c.Path != "/" || c.Domain != "") {
			w.t.Fatalf("no browser takes the cookie %v", c)
		}
		next.AddCookie(c)
	}
	_, page := w.do(next)
	_, notice, _ = strings.Cut(page, `<p class="note good" role="status">`)
	notice, _, _ = strings.Cut(notice, "</p>")
	return notice, answer.Header.Get("Location")
}

// rolling is a world with two rules: x has a candidate beside its stable, y is failure: closed and stable.
func rolling(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.apply("api", "{name: x, key: [ip], limit: 60/min}", "{name: y, key: [ip], limit: 5/min, failure: closed}") // revision 1
	w.promote("api", "x", 10_000)
	w.promote("api", "y", 10_000)
	w.apply("api", "{name: x, key: [ip], limit: 30/min}") // revision 4
	return w
}

func TestActionsSayWhatTheyDoAndDoIt(t *testing.T) {
	t.Parallel()
	const x = "/d/api/r/x/do/"
	for name, c := range map[string]struct {
		before func(*world)
		at     string // with its query
		says   []string
		values url.Values
		action rollout.Action
		target string
		notice string
	}{
		"promote": {
			at: x + "promote?to=10%25", says: []string{"v2 in shadow beside stable v1", "v2 at 10% beside stable v1", "30 calls a minute", "-    limit: 60/min", "&#43;    limit: 30/min", "not known: no request was judged", "none serves the domain", "rulectl promote api/x --to 10% -m MESSAGE"},
			values: form("to", "10%"), action: rollout.ActionPromote, target: "api/x", notice: "api/x is v2 at 10% beside stable v1",
		},
		"promote by a plan": {
			at: x + "promote?plan=", says: []string{"shadow 1h, 1% 15m, 5% 15m", "maxWouldRefuse 2%", "step 1 of 7"},
			values: form("plan", "1% 15m, 100%", "gates", "maxDelta 1%", "on_trip", "rollback"), action: rollout.ActionPromote, target: "api/x", notice: "v2 at 1%, step 1 of 2,",
		},
		"next step": {
			before: func(w *world) { w.done(x+"promote", form("plan", "shadow 1h, 5% 15m, 100%")) },
			at:     x + "promote?next=1", says: []string{"Take api/x to 5% of keys", "The plan holds this step for another", "The plan waits: "},
			values: form("next", "1"), action: rollout.ActionPromote, target: "api/x", notice: "v2 at 5%, step 2 of 3",
		},
		"pause": {
			at: x + "pause", says: []string{"v2 in shadow, paused,"}, action: rollout.ActionPause, target: "api/x", notice: "paused",
		},
		"resume": {
			before: func(w *world) { w.done(x+"pause", nil) },
			at:     x + "resume", says: []string{"v2 in shadow, paused,"}, action: rollout.ActionResume, target: "api/x", notice: "v2 in shadow beside stable v1",
		},
		"abort": {
			before: func(w *world) { w.promote("api", "x", 1000) },
			at:     x + "abort", says: []string{"v2 at 10% beside stable v1", "v2 in shadow beside stable v1", "rulectl abort api/x"}, action: rollout.ActionAbort, target: "api/x", notice: "v2 in shadow",
		},
		"roll back the last step": {
			at: x + "rollback", says: []string{"v1 stable", "-    limit: 30/min", "&#43;    limit: 60/min", "rulectl rollback api/x"}, action: rollout.ActionRollback, target: "api/x", notice: "api/x is v1 stable",
		},
		"roll back to a version": {
			before: func(w *world) { w.promote("api", "x", 10_000) },
			at:     x + "rollback?to=1", says: []string{"Make v1 the stable version", "rulectl rollback api/x --to v1", "60 calls a minute"}, values: form("to", "1"), action: rollout.ActionRollbackTo, target: "api/x", notice: "api/x is v1 stable",
		},
		"delete": {
			at: x + "delete", says: []string{"deleted", "A rollback restores it"}, action: rollout.ActionDelete, target: "api/x", notice: "api/x is deleted",
		},
		"freeze a rule": {
			at: x + "freeze?for=30m", says: []string{"Freeze api/x for 30m?", "x frozen until", "rulectl freeze api/x --for 30m"}, values: form("for", "30m"), action: rollout.ActionFreeze, target: "api/x", notice: "x frozen until",
		},
		"freeze a domain": {
			at: "/d/api/do/freeze", says: []string{"Freeze api for 15m?", "not frozen", "Rules with failure: closed go on refusing: y, unless they are included", `type="checkbox" value="true"><span>Include rules with failure: closed`}, values: form("for", "15m", "including_closed", "true"), action: rollout.ActionFreeze, target: "api", notice: "failure: closed included, until",
		},
		"unfreeze": {
			before: func(w *world) { w.done("/d/api/do/freeze", form("for", "15m")) },
			at:     "/d/api/do/unfreeze", says: []string{"frozen until", "rulectl unfreeze api"}, action: rollout.ActionUnfreeze, target: "api", notice: "api is not frozen",
		},
		"roll a domain back": {
			before: func(w *world) { w.promote("api", "x", 10_000) },
			at:     "/d/api/do/rollback?to=3", says: []string{"Restore api as it was at revision 3?", "v2 stable", "v1 stable", "4: apply api by ann"}, values: form("to", "3"), action: rollout.ActionRollbackDomain, target: "api", notice: "api/x is v1 stable",
		},
		"silence": {
			at: x + "silence?for=4h", says: []string{"not sent until", "rulectl alert silence api/x --for 4h"}, values: form("for", "4h"), action: rollout.ActionSilence, target: "api/x", notice: "Alerts of api/x are not sent until",
		},
		"unsilence": {
			before: func(w *world) { w.done(x+"silence", form("for", "4h")) },
			at:     x + "unsilence", says: []string{"not sent until", "by ann"}, action: rollout.ActionUnsilence, target: "api/x", notice: "Alerts of api/x are sent again.",
		},
		"override": {
			at: x + "override", says: []string{`name="key1"`, "which is 60/min", "rulectl override set api/x --key VALUE --limit RATE --for 4h"},
			values: form("key1", "192.0.2.7", "rate", "120/min", "for", "1d"), action: rollout.ActionOverride, target: "api/x", notice: "120/min until",
		},
		"end an override": {
			before: func(w *world) {
				w.done(x+"override", form("key1", "192.0.2.7", "rate", "120/min", "for", "1d"))
			},
			at: x + "override-delete", says: []string{`name="key1"`}, values: form("key1", "192.0.2.7"), action: rollout.ActionDeleteOverride, target: "api/x", notice: "no longer override",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rolling(t)
			if c.before != nil {
				c.before(w)
			}
			before := w.records()
			wants(t, w.page(c.at), c.says...)
			if n := w.records(); n != before {
				t.Fatalf("opening the form left %d records", n-before)
			}
			values := form("message", "because of <PAY-812>")
			for k, v := range c.values {
				values[k] = v
			}
			path, _, _ := strings.Cut(c.at, "?")
			notice, to := w.done(path, values)
			if !strings.Contains(notice, c.notice) {
				t.Errorf("the next page says %q, want %q", notice, c.notice)
			}
			if want, _, _ := strings.Cut(path, "/do/"); to != want {
				t.Errorf("it leads to %s, want %s", to, want)
			}
			if got := w.last(); got.Action != c.action || got.Target != c.target || got.Message != "because of <PAY-812>" || got.Actor.Name != "ann" || got.Refused != "" {
				t.Errorf("the audit trail says %+v", got)
			}
			w.who.Role = access.Viewer
			if status, page := w.post(path, values); status != http.StatusForbidden || !strings.Contains(page, "You cannot do this: ann has the role viewer; this needs operator.") {
				t.Errorf("a viewer's form: %d\n%s", status, page)
			}
			if got := w.last(); got.Action == "" || !strings.Contains(got.Refused, "this needs operator") {
				t.Errorf("the attempt of a viewer is recorded as %+v", got)
			}
		})
	}
}

func TestWhoMayNotIsToldSoAndHasNoButton(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	w.who = access.Identity{Name: "vic", Role: access.Operator, Domains: []string{"other"}, Verified: true}
	if status, _ := w.get("/d/api/r/x/do/promote"); status != http.StatusForbidden {
		t.Errorf("the form of a rule of another domain: %d", status)
	}
	w.who = access.Identity{Name: "vic", Role: access.Viewer, Verified: true}
	before := w.records()
	for _, path := range []string{
		"/d/api/r/x/do/promote", "/d/api/r/x/do/rollback", "/d/api/do/freeze", "/d/api/do/rollback?to=2", "/d/api/r/x/do/override",
		"/settings/do/create-token", "/settings/do/revoke-token?id=1", "/settings/do/test-alerts",
	} {
		page := w.page(path)
		wants(t, page, "You cannot do this: vic has the role viewer; this needs ")
		if strings.Contains(page, `type="submit"`) {
			t.Errorf("%s has a button", path)
		}
	}
	if n := w.records(); n != before {
		t.Errorf("looking left %d records", n-before)
	}
}

func TestChangeMeanwhileIsToldWithTheFormAnew(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	wants(t, w.page("/d/api/r/x/do/promote?to=10%25"), `name="revision" value="4"`)
	w.promote("api", "x", 500) // revision 5
	values := form("to", "10%", "revision", "4", "message", "as <b>agreed</b>")
	status, page := w.post("/d/api/r/x/do/promote", values)
	if status != http.StatusConflict {
		t.Errorf("based on what does not stand any more: %d", status)
	}
	wants(t, page, "since revision 5", "made anew from what stands now", `name="revision" value="5"`, "v2 at 5% beside stable v1", "as &lt;b&gt;agreed&lt;/b&gt;", `value="10%"`)
	values.Set("revision", "5")
	w.done("/d/api/r/x/do/promote", values)
	before := w.last().Revision
	if status, page := w.post("/d/api/r/x/do/promote", values); status != http.StatusConflict || w.last().Revision > before {
		t.Errorf("sent twice: %d\n%s", status, page)
	}
}

func TestGuardIsPassedKnowingly(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	box := `name="knowingly" type="checkbox" value="true" required`

	page := w.page("/d/api/r/y/do/freeze")
	wants(t, page, "A guard stops this.", "api/y: v1 has failure: closed", box)
	if status, page := w.post("/d/api/r/y/do/freeze", form("for", "15m")); status != http.StatusUnprocessableEntity || !strings.Contains(page, "Not done.") {
		t.Errorf("a freeze that is not meant: %d\n%s", status, page)
	}
	w.done("/d/api/r/y/do/freeze", form("for", "15m", "knowingly", "true", "message", "outage"))

	tenfold := form("key1", "192.0.2.7", "rate", "6000/min", "for", "1h")
	status, page := w.post("/d/api/r/x/do/override", tenfold)
	if status != http.StatusUnprocessableEntity {
		t.Errorf("tenfold: %d", status)
	}
	wants(t, page, "Not done.", "ten times or more: from 60/min to 6000/min", box, `value="192.0.2.7"`, `value="6000/min"`)
	tenfold.Set("knowingly", "true")
	w.done("/d/api/r/x/do/override", tenfold)
}

func TestTrippedGateIsPassedOnlyByForceWithAMessage(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	w.done("/d/api/r/x/do/promote", form("plan", "shadow 1h, 1% 15m, 100%", "gates", "maxWouldRefuse 2%, minRequests 10"))
	w.count(0, w.judged("x", 2, map[tally.Cell]int64{newly: 500}))

	page := w.page("/d/api/r/x/do/promote?next=1")
	wants(t, page, "A guard stops this.", "maxWouldRefuse 2%", "✕ has tripped", `name="knowingly"`)
	if status, page := w.post("/d/api/r/x/do/promote", form("next", "1", "knowingly", "true")); status != http.StatusBadRequest || !strings.Contains(page, "wants a message") {
		t.Errorf("by force without a message: %d\n%s", status, page)
	}
	w.done("/d/api/r/x/do/promote", form("next", "1", "knowingly", "true", "message", "the partner knows"))
	if got := w.last(); !strings.Contains(got.Message, "the partner knows (by force past") {
		t.Errorf("the audit trail says %q", got.Message)
	}
}

func TestFormSaysWhatCannotBeDone(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	page := w.page("/d/api/r/y/do/promote?to=10%25")
	wants(t, page, "This cannot be done.", "there is no candidate to promote")
	if strings.Contains(page, `type="submit"`) {
		t.Error("it can be sent")
	}
	w.done("/d/api/r/x/do/rollback", nil)
	wants(t, w.page("/d/api/r/x/do/rollback"), "Nothing would change:", "the last change was a rollback")
	for path, want := range map[string]string{
		"/d/api/r/x/do/promote?to=much":    "is not a percentage",
		"/d/api/r/x/do/promote?to=0.5":     "is ambiguous",
		"/d/api/r/x/do/rollback?to=first":  "To is &#34;first&#34;; it is a version",
		"/d/api/r/x/do/freeze?for=ever":    "For is &#34;ever&#34;; it is a length of time",
		"/d/api/do/rollback?to=-1":         "it is the number of a revision",
		"/d/api/r/x/do/promote?to=1&to=10": "2 times",
	} {
		if status, body := w.get(path); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want %q\n%s", path, status, want, body)
		}
	}
	status, page := w.post("/d/api/r/y/do/promote", form("plan", `1% <script>`, "gates", `"><b>`))
	if status != http.StatusBadRequest || strings.Contains(page, "<script>\"") || strings.Contains(page, "<b>") {
		t.Errorf("a plan that is none: %d\n%s", status, page)
	}
	wants(t, page, "Not done.", `value="1% &lt;script&gt;"`)
}

func TestKeyOfAnOverrideStaysInTheForm(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	const secret = "2001:db8:77::1"
	if page := w.page("/d/api/r/x/do/override?key1=" + url.QueryEscape(secret)); strings.Contains(page, secret) {
		t.Error("the form takes a key from its address")
	}
	notice, _ := w.done("/d/api/r/x/do/override", form("key1", secret, "rate", "120/min", "for", "1d"))
	if record := w.last(); strings.Contains(notice+record.Detail+string(record.After), secret) {
		t.Errorf("the key is in %q or %+v", notice, record)
	}
	list, err := w.api.ListOverrides(w.as(), &adminpb.ListOverridesRequest{Domain: "api", Rule: "x"})
	if err != nil || len(list.GetOverrides()) != 1 {
		t.Fatal(list, err)
	}
	end := "/d/api/r/x/do/override-delete?id=" + list.GetOverrides()[0].GetKey()
	wants(t, w.page(end), "120/min until", "60/min")
	w.done("/d/api/r/x/do/override-delete", form("id", list.GetOverrides()[0].GetKey()))
	if status, body := w.get(end); status != http.StatusNotFound || !strings.Contains(body, "no such override any more") {
		t.Errorf("after its end: %d", status)
	}
}

func TestNoticeTellsHowManySidecarsHaveTheChange(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	notice, _ := w.done("/d/api/r/x/do/promote", form("to", "1%"))
	if !strings.Contains(notice, "No sidecar serves the domain yet.") {
		t.Errorf("without a sidecar: %q", notice)
	}
	head, err := w.ledger.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node := func(id string, acked int64) rollout.Node {
		return rollout.Node{ID: id, Domain: "api", Connected: true, Stream: 1, Seen: time.Now(), Lineage: head.Lineage, Sent: acked, Acked: acked}
	}
	if err := w.ledger.SaveNodes(t.Context(), []rollout.Node{node("fast", 5), node("slow", 5)}); err != nil {
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	changes := w.ledger.Watch(t.Context())
	go func() {
		for range changes {
			if head, err := w.ledger.Head(t.Context()); err != nil || head.Revision == 6 {
				taken <- w.ledger.SaveNodes(t.Context(), []rollout.Node{node("fast", 6)})
				return
			}
		}
	}()
	if notice, _ := w.done("/d/api/r/x/do/promote", form("to", "5%")); !strings.HasPrefix(notice, "Revision 6: ") || !strings.Contains(notice, "1 of 2 sidecars have acknowledged it") {
		t.Errorf("of two sidecars, one of which is late: %q", notice)
	}
	if err := <-taken; err != nil {
		t.Error(err)
	}
}

// slowly is a form of which half has come.
type slowly struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (s *slowly) SetReadDeadline(t time.Time) error {
	s.until = t
	return nil
}

func (s *slowly) Read([]byte) (int, error) {
	if s.until.IsZero() {
		return 0, errors.New("it would be waited for without an end")
	}
	<-time.After(time.Until(s.until))
	return 0, os.ErrDeadlineExceeded
}

func TestFormsAreNotWaitedForWithoutAnEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var err error
		if w.ui, err = ui.New(ui.Options{API: w.api, Door: door{}}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/login", "/d/api/do/freeze", "/d/api/r/x/lookup"} {
			began, s := time.Now(), &slowly{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequest(http.MethodPost, path, s)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w.ui.ServeHTTP(s, r)
			if took := time.Since(began); s.Code != http.StatusBadRequest || took != 10*time.Second || !strings.Contains(s.Body.String(), "came too slowly") {
				t.Errorf("%s: %d after %s: %s", path, s.Code, took, s.Body)
			}
		}
	})
}

// The page of a form was taken for what stands before the first "/do/" of its address.
func TestFormsOfADomainCalledDoLeadBackToIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("do", "{name: do, key: [ip], limit: 1/s}")
	for path, form := range map[string]url.Values{"/d/do": form("for", "15m"), "/d/do/r/do": form("for", "15m")} {
		wants(t, w.page(path+"/do/freeze"), `href="`+path+`/do/freeze?for=30m"`, `href="`+path+`" data-close`)
		if _, to := w.done(path+"/do/freeze", form); to != path {
			t.Errorf("after %s one is on %s", path, to)
		}
	}
}

// Where people come by https, a page of a neighbouring name could have set the cookie that says what was done.
func TestNoticeIsTakenFromThisHostAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: x, key: [ip], limit: 1/s}")
	var err error
	if w.ui, err = ui.New(ui.Options{API: w.api, TLS: true}); err != nil {
		t.Fatal(err)
	}
	forged := httptest.NewRequest(http.MethodGet, "/", nil)
	forged.AddCookie(&http.Cookie{Name: "headgate_notice", Value: base64.RawURLEncoding.EncodeToString([]byte("api was rolled back"))})
	if _, page := w.do(forged); strings.Contains(page, "rolled back") {
		t.Error("the page says what a forged cookie says")
	}
	if notice, _ := w.done("/d/api/do/freeze", form("for", "15m")); !strings.Contains(notice, "frozen until") {
		t.Errorf("the page says %q", notice)
	}
}
