package auth_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/auth"
)

func (s *store) AddSession(ctx context.Context, one access.Session) error {
	unlock, err := s.lock(ctx)
	defer unlock()
	if err == nil {
		s.sessions[one.Hash] = one
	}
	return err
}

func (s *store) Session(ctx context.Context, hash string) (access.Session, access.Credential, error) {
	unlock, err := s.lock(ctx)
	defer unlock()
	if err != nil {
		return access.Session{}, access.Credential{}, err
	}
	found, ok := s.sessions[hash]
	for _, c := range s.known {
		if ok && c.ID == found.Credential {
			return found, c, nil
		}
	}
	return access.Session{}, access.Credential{}, fmt.Errorf("session: %w", rules.ErrNotFound)
}

func (s *store) EndSession(ctx context.Context, hash string) error {
	unlock, err := s.lock(ctx)
	defer unlock()
	if err == nil {
		delete(s.sessions, hash)
	}
	return err
}

func (s *store) EndSessions(ctx context.Context, credential string) error {
	unlock, err := s.lock(ctx)
	defer unlock()
	if err == nil {
		maps.DeleteFunc(s.sessions, func(_ string, one access.Session) bool { return one.Credential == credential })
	}
	return err
}

// age lets a session be over.
func (s *store) age(of *http.Cookie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessions[access.HashSession(of.Value)]
	one.Expires = time.Now()
	s.sessions[one.Hash] = one
}

// hang lets questions wait until resume.
func (s *store) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait = make(chan struct{})
}

func (s *store) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.wait)
	s.wait = nil
}

// signIn opens a session with a good token, and returns its cookie.
func (f *fixture) signIn(token string) *http.Cookie {
	f.t.Helper()
	c, _, err := f.SignIn(f.t.Context(), token)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// allFailures returns the counts by reason.
func (f *fixture) allFailures() map[string]float64 {
	all := map[string]float64{}
	for _, reason := range []string{"missing", "malformed", "unknown", "revoked", "expired", "unavailable"} {
		all[reason] = f.failures(reason)
	}
	return all
}

func TestSignInOpensASession(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, credential := f.store.token("op", access.Operator, func(c *access.Credential) { c.Domains = []string{"a"} })
	c, who, err := f.SignIn(t.Context(), "  "+token+"\r\n")
	if err != nil || who.Name != "op" || who.Role != access.Operator || len(who.Domains) != 1 || who.Credential != credential.ID {
		t.Fatalf("got %+v, %v", who, err)
	}
	if left := time.Until(who.Expires); left > 12*time.Hour || left < 12*time.Hour-time.Minute {
		t.Errorf("the session lasts %v, want 12 h", left)
	}
	if len(f.store.sessions) != 1 || f.store.sessions[access.HashSession(c.Value)].Credential != credential.ID {
		t.Errorf("the store has %v, want one session by the hash of the cookie", f.store.sessions)
	}
	for _, secret := range []string{c.Value, token} {
		if strings.Contains(fmt.Sprint(f.store.sessions), secret) || strings.Contains(f.log.String(), secret) {
			t.Error("a secret is in the store or in the log")
		}
	}
	if !strings.Contains(f.log.String(), "signed in") {
		t.Errorf("the log does not tell of it: %s", f.log)
	}
}

func TestCookieIsForThisSiteAndNoScript(t *testing.T) {
	t.Parallel()
	for secure, name := range map[bool]string{false: "headgate_session", true: "__Host-headgate_session"} {
		f := setupWith(t, newStore(), func(o *auth.Options) { o.TLS = secure })
		token, _ := f.store.token("op", access.Operator, func(c *access.Credential) { c.Expires = time.Now().Add(time.Hour + 500*time.Millisecond) })
		c := f.signIn(token)
		over, err := f.SignOut(t.Context(), page(t, "/logout"))
		if err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]*http.Cookie{"sign-in": c, "sign-out": over} {
			text := c.String()
			if c.Name != name || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.Secure != secure {
				t.Errorf("TLS %v, %s: the cookie is %s", secure, what, text)
			}
			if err := c.Valid(); err != nil {
				t.Errorf("TLS %v, %s: %v", secure, what, err)
			}
		}
		if c.MaxAge != 3600 || over.MaxAge >= 0 || over.Value != "" {
			t.Errorf("the cookies last %d s and %d s, want the hour of the credential, and that the last takes it away", c.MaxAge, over.MaxAge)
		}
		if w := behind(f.Authenticator).visit(page(t, "/", cookie(c))); w.Code != 200 {
			t.Errorf("TLS %v: got %d with the cookie, want 200", secure, w.Code)
		}
	}
}

// By TLS the cookie without the prefix is not looked at: a neighbour in the domain could have set it.
func TestCookieWithoutItsPrefixIsNothing(t *testing.T) {
	t.Parallel()
	f := setupWith(t, newStore(), func(o *auth.Options) { o.TLS = true })
	token, _ := f.store.token("op", access.Operator, nil)
	if w := behind(f.Authenticator).visit(page(t, "/", session(f.signIn(token).Value))); w.Code != http.StatusSeeOther {
		t.Errorf("got %d, want that it has to sign in", w.Code)
	}
}

func TestSignInRefusesWithoutSayingWhy(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stale, _ := f.store.token("old", access.Editor, func(c *access.Credential) { c.Expires = time.Now().Add(-time.Minute) })
	ended, _ := f.store.token("gone", access.Editor, func(c *access.Credential) { c.Revoked = time.Now() })
	unheard, _ := access.NewToken()
	f.store.certificate("hg_by-name", access.Admin)
	texts := map[string]bool{}
	for _, c := range []struct{ name, token, reason string }{
		{"unknown", unheard, "unknown"},
		{"expired", stale, "expired"},
		{"revoked", ended, "revoked"},
		{"empty", "", "malformed"},
		{"something else", "password", "malformed"},
		{"endless", "hg_" + strings.Repeat("a", 1000), "malformed"},
		{"a certificate's name", "hg_by-name", "unknown"},
	} {
		before := f.failures(c.reason)
		got, _, err := f.SignIn(t.Context(), c.token)
		if got != nil || !errors.Is(err, rules.ErrUnauthenticated) {
			t.Errorf("%s: got %v, %v, want an ErrUnauthenticated", c.name, got, err)
			continue
		}
		texts[err.Error()] = true
		if f.failures(c.reason) != before+1 {
			t.Errorf("%s: not counted as %s", c.name, c.reason)
		}
	}
	if len(texts) != 1 {
		t.Errorf("the texts are %v, want one for all", texts)
	}
	if n := strings.Count(f.log.String(), "not authenticated"); n == 0 || n > 5 || strings.Contains(f.log.String(), unheard) {
		t.Errorf("the log has %d failures, want one a second, without tokens: %s", n, f.log)
	}

	sidecar, _ := f.store.token("n1", access.Sidecar, nil)
	if _, _, err := f.SignIn(t.Context(), sidecar); !errors.Is(err, rules.ErrForbidden) || !strings.Contains(err.Error(), "n1 has the role sidecar") {
		t.Errorf("a sidecar: %v, want an ErrForbidden", err)
	}
	f.store.fail(fmt.Errorf("dial db.internal:5432: %w", rules.ErrUnavailable))
	if _, _, err := f.SignIn(t.Context(), "hg_new"); !errors.Is(err, rules.ErrUnavailable) || strings.Contains(err.Error(), "db.internal") {
		t.Errorf("database away: %v, want an ErrUnavailable without the address", err)
	}
	off, err := auth.New(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := off.SignIn(t.Context(), unheard); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("without authentication: %v, want an ErrInvalid", err)
	}
	if len(f.store.sessions) != 0 {
		t.Errorf("the store has %v", f.store.sessions)
	}
}

func TestSignInLogsWhereItWasTriedFrom(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var err error
	door := f.Browser(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _, err = f.SignIn(r.Context(), "hg_x") }), nil)
	door.ServeHTTP(nil, page(t, "/login", method(http.MethodPost), func(r *http.Request) { r.RemoteAddr = "10.9.8.7:1234" }))
	if !errors.Is(err, rules.ErrUnauthenticated) || !strings.Contains(f.log.String(), "peer=10.9.8.7:1234") {
		t.Errorf("got %v, and the log says %s", err, f.log)
	}
}

// A cookie that somebody else has put into the browser before the sign-in opens nothing after it.
func TestSignInMakesAFreshSecret(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s := behind(f.Authenticator)
	planted := session("0000000000000000000000000000000000000000000000000000000000000000")
	token, _ := f.store.token("op", access.Operator, nil)
	var first, second *http.Cookie
	door := f.Browser(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { first, _, _ = f.SignIn(r.Context(), token) }), nil)
	door.ServeHTTP(nil, page(t, "/login", method(http.MethodPost), planted))
	second = f.signIn(token)
	if first.Value == second.Value {
		t.Error("two sign-ins have one secret")
	}
	if w := s.visit(page(t, "/", planted)); w.Code != http.StatusSeeOther {
		t.Errorf("got %d with the planted cookie, want that it has to sign in", w.Code)
	}
	for _, c := range []*http.Cookie{first, second} {
		if w := s.visit(page(t, "/", cookie(c))); w.Code != 200 {
			t.Errorf("got %d with its own, want 200", w.Code)
		}
	}
}

func TestSessionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		s := behind(f.Authenticator)
		long, c := f.store.token("op", access.Operator, nil)
		short, _ := f.store.token("guest", access.Viewer, func(c *access.Credential) { c.Expires = time.Now().Add(time.Hour) })
		ofLong, ofShort := f.signIn(long), f.signIn(short)
		is := func(when string, c *http.Cookie, want int) {
			t.Helper()
			if w := s.visit(page(t, "/", cookie(c))); w.Code != want {
				t.Errorf("%s: got %d, want %d", when, w.Code, want)
			}
		}
		time.Sleep(time.Hour - time.Second)
		is("just before the credential ends", ofShort, 200)
		time.Sleep(time.Second)
		is("with the credential", ofShort, 303)
		time.Sleep(11*time.Hour - time.Second)
		is("just before 12 h", ofLong, 200)
		time.Sleep(time.Second)
		is("after 12 h", ofLong, 303)

		again := f.signIn(long)
		is("signed in again", again, 200)
		c.Revoked = time.Now()
		f.store.put(c)
		time.Sleep(5 * time.Second)
		is("five seconds after the credential was revoked", again, 303)
	})
}

func TestSignOutEndsTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		other := setupWith(t, f.store, func(*auth.Options) {}) // another replica
		here, there := behind(f.Authenticator), behind(other.Authenticator)
		token, credential := f.store.token("op", access.Operator, nil)
		guest, _ := f.store.token("guest", access.Viewer, nil)
		first, second, third, guests := f.signIn(token), f.signIn(token), other.signIn(token), f.signIn(guest)
		are := func(when string, at *site, want ...int) {
			t.Helper()
			for i, c := range []*http.Cookie{first, second, third, guests} {
				if w := at.visit(page(t, "/", cookie(c))); w.Code != want[i] {
					t.Errorf("%s: session %d gets %d, want %d", when, i, w.Code, want[i])
				}
			}
		}
		are("signed in", here, 200, 200, 200, 200)
		are("signed in", there, 200, 200, 200, 200)

		if _, err := f.SignOut(t.Context(), page(t, "/logout", cookie(first))); err != nil {
			t.Fatal(err)
		}
		are("signed out", here, 303, 200, 200, 200)
		time.Sleep(5 * time.Second)
		are("signed out, at the other replica", there, 303, 200, 200, 200)
		are("five seconds later", here, 303, 200, 200, 200)

		who := access.Identity{Name: "op", Credential: credential.ID}
		if err := f.SignOutEverywhere(t.Context(), who); err != nil {
			t.Fatal(err)
		}
		are("signed out everywhere", here, 303, 303, 303, 200)
		time.Sleep(5 * time.Second)
		are("signed out everywhere, at the other replica", there, 303, 303, 303, 200)
		if w := here.visit(page(t, "/", bearer(token))); w.Code != 200 {
			t.Errorf("the token itself gets %d, want 200", w.Code)
		}

		f.store.fail(fmt.Errorf("dial db.internal:5432: %w", rules.ErrUnavailable))
		if c, err := f.SignOut(t.Context(), page(t, "/logout", cookie(guests))); c != nil || !errors.Is(err, rules.ErrUnavailable) || strings.Contains(err.Error(), "db.internal") {
			t.Errorf("database away: %v, %v, want an ErrUnavailable and that the cookie stays", c, err)
		}
		if err := f.SignOutEverywhere(t.Context(), who); !errors.Is(err, rules.ErrUnavailable) {
			t.Errorf("database away: %v, want an ErrUnavailable", err)
		}
	})
}

func TestOpenAnswerLearnsThatItsCallerIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		token, c := f.store.token("op", access.Operator, nil)
		requests := map[string]*http.Request{
			"session": page(t, "/events", cookie(f.signIn(token))),
			"token":   page(t, "/events", bearer(token)),
		}
		are := func(when string, known bool) {
			t.Helper()
			for what, r := range requests {
				if err := f.StillKnown(t.Context(), r); (err == nil) != known || err != nil && !errors.Is(err, rules.ErrUnauthenticated) {
					t.Errorf("%s, %s: got %v, want known: %v", when, what, err, known)
				}
			}
		}
		are("open", true)
		asked := f.store.questions()
		for range 100 {
			are("open", true)
		}
		if n := f.store.questions(); n != asked {
			t.Errorf("the store was asked %d times more", n-asked)
		}
		time.Sleep(6 * time.Second)
		f.store.fail(rules.ErrUnavailable)
		are("database away", true)
		f.store.fail(nil)
		c.Revoked = time.Now()
		f.store.put(c)
		are("revoked", false)

		off, err := auth.New(auth.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := off.StillKnown(t.Context(), page(t, "/events")); err != nil {
			t.Errorf("without authentication: %v", err)
		}
	})
}
