package ui_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/ui"
)

// door takes one token.
type door struct{ ui.Door }

func (door) SignIn(_ context.Context, token string) (*http.Cookie, access.Identity, error) {
	switch token {
	case "right":
		return &http.Cookie{Name: "session", Value: "secret"}, access.Identity{Name: "ann"}, nil
	case "away":
		return nil, access.Identity{}, errors.New("dial tcp 10.0.0.7: refused")
	}
	return nil, access.Identity{}, fmt.Errorf("%w: this token is unknown", rules.ErrUnauthenticated)
}

func (door) SignOut(context.Context, *http.Request) (*http.Cookie, error) {
	return &http.Cookie{Name: "session", MaxAge: -1}, nil
}

func TestSignInLeadsToThePageThatWasAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if status, _ := w.get("/login"); status != http.StatusSeeOther {
		t.Errorf("where nobody is asked who they are the form answers %d", status)
	}
	var err error
	if w.ui, err = ui.New(ui.Options{API: w.api, Door: door{}}); err != nil {
		t.Fatal(err)
	}
	w.who = access.Identity{}
	page := w.page("/login?next=/d/api%3Fstage%3Dshadow")
	wants(t, page, `name="next" value="/d/api?stage=shadow"`, `type="password"`)
	lacks(t, page, `aria-label="Pages"`)
	for next, want := range map[string]string{"/d/api?stage=shadow": "/d/api?stage=shadow", "//evil.test/": "/", "https://evil.test/": "/", `/\evil.test`: "/", "": "/"} {
		recorder := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"token": {" right\n"}, "next": {next}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w.ui.ServeHTTP(recorder, r)
		if to := recorder.Header().Get("Location"); recorder.Code != http.StatusSeeOther || to != want || !strings.Contains(recorder.Header().Get("Set-Cookie"), "session=secret") {
			t.Errorf("next %q leads to %q with %d and cookie %q, want %q", next, to, recorder.Code, recorder.Header().Get("Set-Cookie"), want)
		}
	}
	status, page := w.post("/login", url.Values{"token": {"wrong"}, "next": {"/audit"}})
	if status != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", status)
	}
	wants(t, page, "This token is unknown", `value="/audit"`)
	lacks(t, page, "wrong")
	status, page = w.post("/login?token=right", url.Values{})
	if status != http.StatusUnauthorized {
		t.Errorf("a token in the address: %d\n%s", status, page)
	}
	if status, page = w.post("/login", url.Values{"token": {"away"}}); status != http.StatusInternalServerError || strings.Contains(page, "10.0.0.7") {
		t.Errorf("a database that is away: %d\n%s", status, page)
	}
	if status, _ = w.post("/logout", nil); status != http.StatusSeeOther {
		t.Errorf("sign out: %d", status)
	}
}
