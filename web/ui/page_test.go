package ui_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/ui"
)

// away is a control plane whose database does not answer: calls hang, whatever becomes of their context, or fail.
type away struct {
	adminpb.AdminServiceClient
	until chan struct{}
	err   error
}

func (a away) Overview(context.Context, *adminpb.OverviewRequest, ...grpc.CallOption) (*adminpb.OverviewResponse, error) {
	if a.err == nil {
		<-a.until
	}
	return nil, a.err
}

func (a away) Freeze(_ context.Context, req *adminpb.FreezeRequest, _ ...grpc.CallOption) (*adminpb.FreezeResponse, error) {
	if a.err == nil && !req.GetWhy().GetDryRun() {
		<-a.until
	}
	return nil, a.err
}

// Nobody waits for the database longer than two seconds, and what is wrong is said.
func TestDatabaseThatDoesNotAnswerIsSaidInTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hangs := away{w.api, make(chan struct{}), nil}
		var err error
		if w.ui, err = ui.New(ui.Options{API: hangs}); err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		status, body := w.get("/")
		if took := time.Since(asked); status != http.StatusServiceUnavailable || took > 2*time.Second || !strings.Contains(body, "did not answer within 1.8s") {
			t.Errorf("after %s: %d %s", took, status, body)
		}
		close(hangs.until)
	})
}

// A door that waits for the database, too, does not make it longer.
func TestWhatTheDoorTakesIsPartOfTheTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hangs := away{w.api, make(chan struct{}), nil}
		pages, err := ui.New(ui.Options{API: hangs})
		if err != nil {
			t.Fatal(err)
		}
		slow := pages.Behind(func(next http.Handler, _ func(http.ResponseWriter, *http.Request, error)) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-time.After(1400 * time.Millisecond)
				next.ServeHTTP(w, r)
			})
		})
		asked, recorder := time.Now(), httptest.NewRecorder()
		slow.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(access.With(t.Context(), w.who)))
		if took := time.Since(asked); recorder.Code != http.StatusServiceUnavailable || took > 2*time.Second {
			t.Errorf("after %s: %d", took, recorder.Code)
		}
		close(hangs.until)
	})
}

// What a database says of its troubles may name its host: it is for the log.
func TestFailureOfTheDatabaseTellsNoSecrets(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{
		errors.New("dial tcp 10.1.2.3:5432: refused"),
		fmt.Errorf("begin a change: %w: failed to connect to user=headgate: dial tcp 10.1.2.3:5432: refused", rules.ErrUnavailable),
	} {
		w := newWorld(t)
		w.apply("api", "{name: x, key: [ip], limit: 1/s}")
		var err error
		if w.ui, err = ui.New(ui.Options{API: away{w.api, nil, failure}}); err != nil {
			t.Fatal(err)
		}
		get, page := w.get("/")
		post, form := w.post("/d/api/do/freeze", form("for", "15m"))
		next, stop := w.listen("/")
		_, trouble := next()
		stop()
		if get < http.StatusInternalServerError || post < http.StatusInternalServerError {
			t.Errorf("%v: a page is answered with %d, a form with %d", failure, get, post)
		}
		for _, text := range []string{page, form, trouble} {
			if strings.Contains(text, "10.1.2.3") || strings.Contains(text, "user=") || !strings.Contains(text, "log says") {
				t.Errorf("%v: %s", failure, text)
			}
		}
	}
}

// A form that was not refused may have been done, though nothing was heard of it: it was said not to be.
func TestFormOfWhichNothingIsHeardIsNotSaidToBeUndone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apply("api", "{name: x, key: [ip], limit: 1/s}")
		hangs := away{w.api, make(chan struct{}), nil}
		var err error
		if w.ui, err = ui.New(ui.Options{API: hangs}); err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		status, body := w.post("/d/api/do/freeze", form("for", "15m"))
		if took := time.Since(asked); status != http.StatusServiceUnavailable || took > 2*time.Second {
			t.Errorf("%d after %s", status, took)
		}
		wants(t, body, "Perhaps done", "did not answer within 1.8s", "Whether this was done is not known", `href="/audit"`)
		lacks(t, body, "Not done", "Try again")
		close(hangs.until)
	})
}

func TestEveryAnswerForbidsWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/", "/nothing", "/static/app.js", "/static/nothing"} {
		recorder := httptest.NewRecorder()
		w.ui.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		policy := recorder.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || recorder.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, recorder.Header())
		}
	}
}

// What rounded to a thousand of a unit was written as 1e+03 of it.
func TestShortNumbersHaveNoExponent(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 9999: "9,999", 10_000: "10k", 99_960: "100k", 999_499: "999k", 999_500: "1M", 999_999: "1M", 1_234_567: "1.23M",
		999_499_999: "999M", 999_999_999: "1G", 123_456_789_012: "123G", 9_223_372_036_854_775_807: "9,223,372,036G",
	} {
		w := newWorld(t)
		w.apply("api", "{name: x, key: [ip], limit: 1/s}")
		w.count(time.Minute, tally.Window{Domains: []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{tally.RequestsRefused: n}}}})
		wants(t, w.page("/d/api"), `<p class="hint">refused</p><p class="big">`+want+"</p>")
	}
}

func TestRefusalsAreSaidAsSentences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.who = access.Identity{Name: "vi", Role: access.Viewer, Domains: []string{"api"}, Verified: true}
	if status, body := w.get("/audit/export.jsonl"); status != http.StatusForbidden || !strings.Contains(body, "Export the audit trail: vi is for the domains api only") {
		t.Errorf("%d %s", status, body)
	}
}
