package auth_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/auth"
)

// site is the dashboard behind its door.
type site struct {
	http.Handler
	seen access.Identity // who came through last
}

func behind(a *auth.Authenticator) *site {
	s := &site{}
	s.Handler = a.Browser(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s.seen = access.From(r.Context()) }), nil)
	return s
}

func (s *site) visit(r *http.Request) *httptest.ResponseRecorder {
	s.seen = access.Identity{}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// page asks for a page, as a browser does.
func page(t *testing.T, path string, change ...func(*http.Request)) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	for _, c := range change {
		c(r)
	}
	return r
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func cookie(c *http.Cookie) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value}) }
}

func session(secret string) func(*http.Request) {
	return cookie(&http.Cookie{Name: "headgate_session", Value: secret})
}

func shows(c *x509.Certificate) func(*http.Request) {
	return func(r *http.Request) { r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}} }
}

func method(name string) func(*http.Request) { return func(r *http.Request) { r.Method = name } }

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestBrowserLetsInWhoIsKnown(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s := behind(f.Authenticator)
	token, credential := f.store.token("vi", access.Viewer, func(c *access.Credential) { c.Domains = []string{"a"} })
	other, _ := f.store.token("op", access.Operator, nil)
	f.store.certificate("by-name", access.Admin)
	for _, c := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"token", page(t, "/", bearer(token)), "vi"},
		{"session", page(t, "/", cookie(f.signIn(token))), "vi"},
		{"certificate", page(t, "/", shows(certificate(t, "by-name"))), "by-name"},
		{"token before session", page(t, "/", bearer(other), cookie(f.signIn(token))), "op"},
		{"session before certificate", page(t, "/", cookie(f.signIn(token)), shows(certificate(t, "by-name"))), "vi"},
		{"no page", page(t, "/", bearer(token), header("Accept", "text/event-stream")), "vi"},
		{"a change", page(t, "/", cookie(f.signIn(token)), method(http.MethodPost)), "vi"},
	} {
		if w := s.visit(c.r); w.Code != http.StatusOK || s.seen.Name != c.want || !s.seen.Verified || s.seen.Local {
			t.Errorf("%s: got %d as %+v, want 200 as %s", c.name, w.Code, s.seen, c.want)
		}
	}
	s.visit(page(t, "/", cookie(f.signIn(token))))
	if s.seen.Credential != credential.ID || s.seen.Role != access.Viewer || len(s.seen.Domains) != 1 || s.seen.Expires.IsZero() {
		t.Errorf("a session is of %+v, want all that its credential says, and an end", s.seen)
	}
}

func TestBrowserRefusesByCause(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s := behind(f.Authenticator)
	sidecar, _ := f.store.token("n1", access.Sidecar, nil)
	f.store.certificate("n2", access.Sidecar)
	gone, c := f.store.token("gone", access.Viewer, nil)
	ofRevoked := f.signIn(gone)
	c.Revoked = time.Now()
	f.store.put(c)
	good, _ := f.store.token("vi", access.Viewer, nil)
	kept := f.signIn(good)
	f.store.age(kept)
	noPage := header("Accept", "*/*")
	for _, c := range []struct {
		name   string
		r      *http.Request
		want   int
		reason string // as which it is counted; "": it is not
		clears bool   // takes the cookie away
		say    string
	}{
		{name: "a page before the sign-in", r: page(t, "/"), want: 303},
		{name: "nothing, no page", r: page(t, "/", noPage), want: 401, reason: "missing", say: "send a token"},
		{name: "nothing, a change", r: page(t, "/", method(http.MethodPost)), want: 401, reason: "missing"},
		{name: "empty cookie", r: page(t, "/", session("")), want: 303},
		{name: "unknown token", r: page(t, "/", bearer("hg_x"), noPage), want: 401, reason: "unknown", say: "the token is not known here"},
		{name: "unknown token, a page", r: page(t, "/", bearer("hg_x")), want: 303, reason: "unknown"},
		{name: "no token", r: page(t, "/", bearer("x"), noPage), want: 401, reason: "malformed"},
		{name: "unknown token with a session", r: page(t, "/", bearer("hg_x"), cookie(f.signIn(good)), noPage), want: 401, reason: "unknown"},
		{name: "unknown session", r: page(t, "/", session("x"), noPage), want: 401, reason: "unknown", clears: true, say: "the session has ended"},
		{name: "unknown session, a page", r: page(t, "/", session("x")), want: 303, reason: "unknown", clears: true},
		{name: "unknown session with a certificate", r: page(t, "/", session("x"), shows(certificate(t, "n2"))), want: 303, reason: "unknown", clears: true},
		{name: "a token is no session", r: page(t, "/", session(good), noPage), want: 401, reason: "unknown", clears: true},
		{name: "ended session", r: page(t, "/", cookie(kept), noPage), want: 401, reason: "expired", clears: true, say: "the session of vi ended on"},
		{name: "session of a revoked credential", r: page(t, "/", cookie(ofRevoked), noPage), want: 401, reason: "revoked", clears: true, say: "was revoked"},
		{name: "unknown certificate", r: page(t, "/", shows(certificate(t, "x")), noPage), want: 401, reason: "unknown", say: "no name of the client certificate"},
		{name: "sidecar's token", r: page(t, "/", bearer(sidecar)), want: 403, say: "n1 has the role sidecar"},
		{name: "sidecar's certificate", r: page(t, "/", shows(certificate(t, "n2"))), want: 403, say: "n2 has the role sidecar"},
	} {
		before := f.allFailures()
		w := s.visit(c.r)
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.say) || s.seen.Name != "" {
			t.Errorf("%s: got %d %s as %q, want %d that says %q", c.name, w.Code, w.Body, s.seen.Name, c.want, c.say)
		}
		if c.reason != "" {
			before[c.reason]++
		}
		if after := f.allFailures(); !maps.Equal(after, before) {
			t.Errorf("%s: counted %v, want %v", c.name, after, before)
		}
		if got := w.Header().Get("Set-Cookie"); strings.HasPrefix(got, "headgate_session=; Path=/; Max-Age=0") != c.clears {
			t.Errorf("%s: sets the cookie %q, want that it takes it away: %v", c.name, got, c.clears)
		}
		if c.want == http.StatusSeeOther && w.Header().Get("Location") != "/login?next=%2F" {
			t.Errorf("%s: leads to %q", c.name, w.Header().Get("Location"))
		}
	}
}

func TestPageIsFoundAgainAfterTheSignIn(t *testing.T) {
	t.Parallel()
	s := behind(setup(t).Authenticator)
	for path, want := range map[string]string{
		"/":                          "/login?next=%2F",
		"/rules/api/plan?from=1h&x":  "/login?next=%2Frules%2Fapi%2Fplan%3Ffrom%3D1h%26x",
		"/rules/a%2Fb":               "/login?next=%2Frules%2Fa%252Fb",
		"//evil.example/x":           "/login?next=%2F",
		"/\\evil.example":            "/login?next=%2F%255Cevil.example",
		"http://evil.example/x?y":    "/login?next=%2Fx%3Fy",
		"http://evil.example//evil2": "/login?next=%2F",
	} {
		w := s.visit(page(t, path))
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %d to %s, want 303 to %s", path, w.Code, got, want)
		}
	}
}

func TestLocalPathLeadsToNoOtherSite(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"/":                       "/",
		"/rules/a/b?from=1h#top":  "/rules/a/b?from=1h#top",
		"/a?next=//evil.example":  "/a?next=//evil.example",
		"":                        "/",
		"rules":                   "/",
		"https://evil.example/":   "/",
		"//evil.example":          "/",
		"///evil.example":         "/",
		`/\evil.example`:          "/",
		`\\evil.example`:          "/",
		`/a\..\\evil.example`:     "/",
		"/\t/evil.example":        "/",
		"/\n/evil.example":        "/",
		" //evil.example":         "/",
		"javascript:alert(1)":     "/",
		"/%zz":                    "/",
		"http:/evil.example":      "/",
		"https:evil.example":      "/",
		"?next=https://evil.test": "/",
	} {
		if got := auth.LocalPath(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

func TestSignInAndWhatItNeedsAreOpen(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.store.fail(rules.ErrUnavailable) // nobody asks it
	s := behind(f.Authenticator)
	for path, want := range map[string]int{
		"/login": 200, "/login?next=%2Fx": 200, "/static/htmx.min.js": 200, "/static/css/a.css": 200,
		"/login/": 303, "/loginx": 303, "/static": 303, "/static/../audit": 303, "/static/%2e%2e/audit": 303, "/static//audit": 303,
		"/logout": 303, "/LOGIN": 303,
	} {
		w := s.visit(page(t, path))
		if w.Code != want || s.seen.Name != "" {
			t.Errorf("%s: got %d as %q, want %d as nobody", path, w.Code, s.seen.Name, want)
		}
	}
}

func TestChangesFromOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, _ := f.store.token("op", access.Operator, nil)
	mine := cookie(f.signIn(token))
	local, err := auth.New(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const here, origin = "http://localhost:7070", "Origin"
	for _, c := range []struct {
		name   string
		change []func(*http.Request)
		ok     bool
	}{
		{"same origin", []func(*http.Request){header("Sec-Fetch-Site", "same-origin")}, true},
		{"typed in", []func(*http.Request){header("Sec-Fetch-Site", "none")}, true},
		{"another site", []func(*http.Request){header("Sec-Fetch-Site", "cross-site")}, false},
		{"a neighbour", []func(*http.Request){header("Sec-Fetch-Site", "same-site")}, false},
		{"another site that claims to be this one", []func(*http.Request){header("Sec-Fetch-Site", "cross-site"), header(origin, here)}, false},
		{"older browser", []func(*http.Request){header(origin, here)}, true},
		{"older browser, another site", []func(*http.Request){header(origin, "https://evil.example")}, false},
		{"older browser, another port", []func(*http.Request){header(origin, "http://localhost:8080")}, false},
		{"older browser, no origin that it tells", []func(*http.Request){header(origin, "null")}, false},
		{"no browser", nil, true},
	} {
		for _, path := range []string{"/", "/login", "/logout"} {
			for name, a := range map[string]*auth.Authenticator{"signed in": f.Authenticator, "without authentication": local} {
				s := behind(a)
				r := page(t, here+path, append(c.change, method(http.MethodPost), mine)...)
				if w := s.visit(r); (w.Code == 200) != c.ok || !c.ok && (w.Code != 403 || !strings.Contains(w.Body.String(), "another site")) {
					t.Errorf("%s, POST %s, %s: got %d %s, want ok: %v", name, path, c.name, w.Code, w.Body, c.ok)
				}
				r = page(t, here+path, append(c.change, mine)...)
				if w := s.visit(r); w.Code != 200 {
					t.Errorf("%s, GET %s, %s: got %d, want 200: links may come from anywhere", name, path, c.name, w.Code)
				}
			}
		}
	}
}

func TestWithoutAuthenticationBrowsersNameAnAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host      string
		ok, named bool // named: AnyHost
	}{
		{host: "127.0.0.1:7070", ok: true},
		{host: "localhost:7070", ok: true},
		{host: "localhost", ok: true},
		{host: "[::1]:7070", ok: true},
		{host: "10.1.2.3", ok: true},
		{host: "rebound.example:7070"},
		{host: "localhost.evil.example"},
		{host: "127.0.0.1.evil.example"},
		{host: ""},
		{host: "headgate.internal", named: true, ok: true},
	} {
		a, err := auth.New(auth.Options{Local: "ann", AnyHost: c.named})
		if err != nil {
			t.Fatal(err)
		}
		s := behind(a)
		for _, path := range []string{"/", "/login", "/static/x.css"} {
			w := s.visit(page(t, path, func(r *http.Request) { r.Host = c.host }))
			switch {
			case c.ok && (w.Code != 200 || s.seen.Name != "ann" || !s.seen.Local || s.seen.Verified):
				t.Errorf("%q: got %d as %+v, want 200 as ann, local and unverified", c.host, w.Code, s.seen)
			case !c.ok && (w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "--auth token") || s.seen.Name != ""):
				t.Errorf("%q: got %d %s, want 421 that says what to do", c.host, w.Code, w.Body)
			}
		}
	}
}

func TestDatabaseThatIsAwayIsToldInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		token, _ := f.store.token("vi", access.Viewer, nil)
		mine := f.signIn(token)
		var told error
		door := f.Browser(http.NotFoundHandler(), func(w http.ResponseWriter, _ *http.Request, err error) {
			told = err
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		ask := func(what string) {
			t.Helper()
			for _, r := range []*http.Request{page(t, "/", cookie(mine)), page(t, "/", bearer(token)), page(t, "/", session("x"))} {
				told = nil
				began, w := time.Now(), httptest.NewRecorder()
				door.ServeHTTP(w, r)
				if took := time.Since(began); w.Code != 503 || !errors.Is(told, rules.ErrUnavailable) || took >= 2*time.Second || strings.Contains(told.Error(), "db.internal") {
					t.Errorf("%s: got %d, %v after %v, want 503 and an ErrUnavailable without the address within 2 s", what, w.Code, told, took)
				}
				if w.Header().Get("Set-Cookie") != "" {
					t.Errorf("%s: the cookie is taken away", what)
				}
			}
		}
		time.Sleep(6 * time.Second) // nothing is believed any more
		f.store.fail(fmt.Errorf("dial db.internal:5432: %w", rules.ErrUnavailable))
		ask("gone")
		f.store.fail(nil)
		f.store.hang()
		ask("slow")
		ask("slow, the same question again")
		if n := f.failures("unavailable"); n != 9 {
			t.Errorf("counted %v, want 9", n)
		}
		f.store.resume()
		if w := behind(f.Authenticator).visit(page(t, "/", cookie(mine))); w.Code != 200 {
			t.Errorf("once the database is back: %d", w.Code)
		}
	})
}

func TestWhoWentAwayIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		f.store.hang()
		defer f.store.resume()
		before := f.allFailures()
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		behind(f.Authenticator).visit(page(t, "/", session("x")).WithContext(ctx))
		if after := f.allFailures(); !maps.Equal(after, before) {
			t.Errorf("counted %v, want %v", after, before)
		}
	})
}
