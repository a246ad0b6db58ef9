package app_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/rules/rollout/access"
)

// A heap holds the secrets of domains.
func TestProfilesAreForAdmins(t *testing.T) {
	t.Parallel()
	for _, role := range append(access.Roles(), "") {
		want := http.StatusForbidden
		if role == access.Admin {
			want = http.StatusOK
		}
		r := httptest.NewRequestWithContext(access.With(t.Context(), access.Identity{Role: role}), http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
		w := httptest.NewRecorder()
		if app.Profile(w, r); w.Code != want {
			t.Errorf("by %q: %d, want %d", role, w.Code, want)
		}
	}
}

// Without authentication a page whose name was made to point to this machine is nobody's admin.
func TestProfilesAreNotReadUnderAForeignNameWithoutAuthentication(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]int{"127.0.0.1:7070": 200, "[::1]:7070": 200, "localhost": 200, "evil.example:7070": 403, "127.0.0.1.evil.example": 403} {
		r := httptest.NewRequestWithContext(access.With(t.Context(), access.Local("unknown")), http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if app.Profile(w, r); w.Code != want {
			t.Errorf("as %s: %d, want %d", host, w.Code, want)
		}
	}
}
