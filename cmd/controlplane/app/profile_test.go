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
