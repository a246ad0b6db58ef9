package ui_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

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

// What a database says of its troubles may name its host: it is for the log.
func TestFailureOfTheDatabaseTellsNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var err error
	if w.ui, err = ui.New(ui.Options{API: away{w.api, nil, errors.New("dial tcp 10.1.2.3:5432: refused")}}); err != nil {
		t.Fatal(err)
	}
	status, body := w.get("/")
	if status != http.StatusInternalServerError || strings.Contains(body, "10.1.2.3") || !strings.Contains(body, "log says") {
		t.Errorf("%d %s", status, body)
	}
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
