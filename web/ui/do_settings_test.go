package ui_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/ui"
)

func TestTokenIsShownOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wants(t, w.page("/settings/do/create-token"), "shown once", "rulectl token create")
	status, page := w.post("/settings/do/create-token", form("name", `ci "<b>"`, "role", "editor", "domains", "api, web", "expires", "30d", "message", "for the pipeline"))
	token := regexp.MustCompile(`hg_[0-9a-f]+_[0-9a-f]{64}`).FindString(page)
	if status != http.StatusOK || token == "" {
		t.Fatalf("%d\n%s", status, page)
	}
	wants(t, page, "it is not shown again", "ci &#34;&lt;b&gt;&#34;", "api, web", "editor")
	got, err := w.ledger.Credential(t.Context(), access.HashToken(token))
	if err != nil || got.Role != access.Editor || len(got.Domains) != 2 || got.Expires.IsZero() {
		t.Errorf("what is kept of it: %+v, %v", got, err)
	}
	if r := w.last(); r.Message != "for the pipeline" || strings.Contains(r.Detail+string(r.After), token) {
		t.Errorf("the audit trail says %+v", r)
	}

	revoke := "/settings/do/revoke-token"
	wants(t, w.page(revoke+"?id="+got.ID), "End the token of ci", "rulectl token revoke "+got.ID)
	if notice, to := w.done(revoke, form("id", got.ID)); to != "/settings" || !strings.Contains(notice, got.ID+" is revoked") {
		t.Errorf("it leads to %s with %q", to, notice)
	}
	if got, err := w.ledger.Credential(t.Context(), access.HashToken(token)); err != nil || got.Revoked.IsZero() {
		t.Errorf("after revoking it: %+v, %v", got, err)
	}
	if status, _ := w.get(revoke + "?id=nothing"); status != http.StatusNotFound {
		t.Errorf("one that is not there: %d", status)
	}
	status, page = w.post("/settings/do/create-token", form("name", "x", "role", "king", "expires", "never"))
	if status != http.StatusBadRequest || !strings.Contains(page, "king") {
		t.Errorf("a role that is none: %d", status)
	}
}

func TestTestAlertTellsWhoTookIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	status, page := w.post("/settings/do/test-alerts", form("message", "after the move"))
	if status != http.StatusOK {
		t.Errorf("%d", status)
	}
	wants(t, page, "The control plane has no target for alerts")
	if r := w.last(); r.Action != rollout.ActionTestAlert || r.Message != "after the move" {
		t.Errorf("the audit trail says %+v", r)
	}
}

// targets are those of a control plane, which take nine seconds to answer.
type targets struct{ adminpb.AdminServiceClient }

func (targets) TestAlerts(ctx context.Context, _ *adminpb.TestAlertsRequest, _ ...grpc.CallOption) (*adminpb.TestAlertsResponse, error) {
	select {
	case <-time.After(9 * time.Second):
		return &adminpb.TestAlertsResponse{Answers: []*adminpb.TargetAnswer{{Target: "far away"}}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestTestAlertWaitsForTargetsLongerThanForTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var err error
		if w.ui, err = ui.New(ui.Options{API: targets{w.api}}); err != nil {
			t.Fatal(err)
		}
		status, page := w.post("/settings/do/test-alerts", nil)
		if status != http.StatusOK || !strings.Contains(page, "far away") {
			t.Errorf("%d\n%s", status, page)
		}
	})
}

// leaving is a door by which somebody leaves.
type leaving struct {
	ui.Door
	left []string
}

func (d *leaving) SignOutEverywhere(_ context.Context, who access.Identity) error {
	d.left = append(d.left, who.Credential)
	return nil
}

func TestSignOutEverywhereEndsTheSessionsOfTheCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if status, _ := w.get("/settings/do/sign-out-everywhere"); status != http.StatusNotFound {
		t.Errorf("where nobody signs in: %d", status)
	}
	door := &leaving{}
	var err error
	if w.ui, err = ui.New(ui.Options{API: w.api, Door: door}); err != nil {
		t.Fatal(err)
	}
	w.who = access.Identity{Name: "vic", Role: access.Viewer, Domains: []string{"api"}, Credential: "c1", Verified: true}
	wants(t, w.page("/settings/do/sign-out-everywhere"), "Every session that was opened with the token of vic ends")
	if status, _ := w.post("/settings/do/sign-out-everywhere", nil); status != http.StatusSeeOther || len(door.left) != 1 || door.left[0] != "c1" {
		t.Errorf("%d, left are %v", status, door.left)
	}
}

func TestSessionThatHasEndedLeadsToSignInAndBackToTheForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.who = access.Identity{}
	r, recorder := httptest.NewRequest(http.MethodPost, "/d/api/r/x/do/promote", nil), httptest.NewRecorder()
	w.ui.Failed(recorder, r, rules.ErrUnauthenticated)
	wants(t, recorder.Body.String(), `href="/login?next=%2fd%2fapi%2fr%2fx%2fdo%2fpromote"`)
}
