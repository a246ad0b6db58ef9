package ui_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/tallytest"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/auth"
	"github.com/headgate/headgate/web/ui"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a dashboard on a ledger in memory.
type world struct {
	t      *testing.T
	ledger *rollouttest.Memory
	counts *tallytest.Memory
	api    adminpb.AdminServiceClient
	ui     *ui.UI
	who    access.Identity // who looks at it
}

// counting is a store of counts that knows the rules of a ledger.
type counting struct {
	*tallytest.Memory
	ledger *rollouttest.Memory
}

func (c counting) Births(ctx context.Context, uids []string) (map[string]tally.Birth, error) {
	return c.ledger.Births(ctx, uids)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ledger: rollouttest.New(), counts: tallytest.New(), who: access.Identity{Name: "ann", Role: access.Admin, Verified: true}}
	tallies := counting{w.counts, w.ledger}
	service := rollout.NewService(w.ledger, time.Now).WithTallies(tallies)
	door, err := auth.New(auth.Options{Refused: service.Refused})
	if err != nil {
		t.Fatal(err)
	}
	w.api = door.InProcess(api.NewServer(service, api.Options{Program: "test", Tallies: tallies, Alerts: w.ledger}))
	if w.ui, err = ui.New(ui.Options{API: w.api}); err != nil {
		t.Fatal(err)
	}
	return w
}

// as is the context of a call by an admin.
func (w *world) as() context.Context {
	return access.With(w.t.Context(), access.Identity{Name: "ann", Role: access.Admin, Verified: true})
}

// apply applies rules of a domain, each as YAML in one line: "{name: x, key: [ip], limit: 1/s}".
func (w *world) apply(domain string, rules ...string) {
	w.t.Helper()
	text := "apiVersion: headgate/v1\nkind: RuleSet\ndomain: " + domain + "\nrules:\n"
	for _, r := range rules {
		text += "  - " + r + "\n"
	}
	if _, err := w.api.Apply(w.as(), &adminpb.ApplyRequest{Files: []*adminpb.File{{Name: "f.yaml", Content: []byte(text)}}}); err != nil {
		w.t.Fatal(err)
	}
}

// promote moves a candidate to a share of keys, in hundredths of a percent.
func (w *world) promote(domain, rule string, to uint32) {
	w.t.Helper()
	if _, err := w.api.Promote(w.as(), &adminpb.PromoteRequest{Domain: domain, Rule: rule, To: to}); err != nil {
		w.t.Fatal(err)
	}
}

// uid is that of a rule.
func (w *world) uid(domain, rule string) string {
	w.t.Helper()
	history, err := w.ledger.History(w.t.Context(), domain, rule)
	if err != nil {
		w.t.Fatal(err)
	}
	return history[0].Rule.UID
}

// count stores what a node counted in a window that began so long ago; each call is a node of its own.
func (w *world) count(ago time.Duration, window tally.Window) {
	w.t.Helper()
	start := time.Now().Add(-ago).Truncate(tally.Span)
	window.Number, window.Start, window.End, window.Last = 1, start, start.Add(tally.Span), true
	source := tally.Source{Node: "n", Epoch: fmt.Sprint(time.Now().UnixNano())}
	if err := w.counts.SaveWindows(w.t.Context(), []tally.SourceWindows{{Source: source, Windows: []tally.Window{window}}}); err != nil {
		w.t.Fatal(err)
	}
}

// get asks for a page, and returns its status and text.
func (w *world) get(path string) (int, string) {
	w.t.Helper()
	return w.do(httptest.NewRequest(http.MethodGet, path, nil))
}

// post sends a form.
func (w *world) post(path string, form url.Values) (int, string) {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return w.do(r)
}

func (w *world) do(r *http.Request) (int, string) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	w.ui.ServeHTTP(recorder, r.WithContext(access.With(w.t.Context(), w.who)))
	body, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return recorder.Code, string(body)
}

// page asks for a page that must be there.
func (w *world) page(path string) string {
	w.t.Helper()
	status, body := w.get(path)
	if status != http.StatusOK {
		w.t.Fatalf("%s: %d\n%s", path, status, body)
	}
	return body
}

// wants fails the test where the page lacks one of some texts.
func wants(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}
