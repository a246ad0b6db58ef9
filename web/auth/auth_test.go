package auth_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/auth"
)

func TestMain(m *testing.M) { harness.Main(m) }

// store holds credentials and sessions by hash, and counts the questions.
type store struct {
	mu       sync.Mutex
	known    map[string]access.Credential
	sessions map[string]access.Session
	err      error // every question fails with it
	asked    int
	wait     chan struct{} // when set, answers come once it is closed
}

// lock is for one question; it says whether there is an answer.
func (s *store) lock(ctx context.Context) (unlock func(), err error) {
	s.mu.Lock()
	s.asked++
	if wait := s.wait; wait != nil {
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return func() {}, ctx.Err()
		}
		s.mu.Lock()
	}
	return s.mu.Unlock, s.err
}

func (s *store) Credential(ctx context.Context, hash string) (access.Credential, error) {
	unlock, err := s.lock(ctx)
	defer unlock()
	if err != nil {
		return access.Credential{}, err
	}
	c, ok := s.known[hash]
	if !ok {
		return access.Credential{}, fmt.Errorf("credential: %w", rules.ErrNotFound)
	}
	return c, nil
}

func (s *store) put(c access.Credential) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[c.Hash] = c
}

func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *store) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// token adds one with the role.
func (s *store) token(name string, role access.Role, change func(*access.Credential)) (text string, c access.Credential) {
	text, c = access.NewToken()
	c.Name, c.Role = name, role
	if change != nil {
		change(&c)
	}
	s.put(c)
	return text, c
}

func (s *store) certificate(name string, role access.Role) access.Credential {
	c := access.NewCertificate(name)
	c.Role = role
	s.put(c)
	return c
}

type fixture struct {
	*auth.Authenticator
	t        *testing.T
	store    *store
	log      *bytes.Buffer
	registry *prometheus.Registry
	refusals []string
}

func setup(t *testing.T) *fixture { return setupWith(t, newStore(), func(*auth.Options) {}) }

func newStore() *store {
	return &store{known: map[string]access.Credential{}, sessions: map[string]access.Session{}}
}

func setupWith(t *testing.T, s *store, change func(*auth.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, store: s, log: &bytes.Buffer{}, registry: prometheus.NewRegistry()}
	o := auth.Options{
		Store: f.store, Log: slog.New(slog.NewTextHandler(f.log, nil)), Registerer: f.registry,
		Refused: func(_ context.Context, domain string, action rollout.Action, target string, why rollout.Why, refusal error) error {
			f.refusals = append(f.refusals, fmt.Sprintf("%s tried to %s %s in %q", why.Who.Name, action, target, domain))
			return refusal
		},
	}
	change(&o)
	var err error
	if f.Authenticator, err = auth.New(o); err != nil {
		t.Fatal(err)
	}
	return f
}

// failures returns the count of a reason.
func (f *fixture) failures(reason string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == reason {
			return m.GetCounter().GetValue()
		}
	}
	f.t.Fatalf("there is no reason %s", reason)
	return 0
}

// call returns the context of a call that shows a token ("": none) and a certificate (nil: none).
func call(ctx context.Context, token string, certificate *x509.Certificate) context.Context {
	if token != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
	}
	info := credentials.TLSInfo{}
	if certificate != nil {
		info.State.VerifiedChains = [][]*x509.Certificate{{certificate}}
	}
	return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}, AuthInfo: info})
}

func certificate(t *testing.T, name string, uris ...string) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

// unary makes a call, and returns whom its handler saw.
func (f *fixture) unary(ctx context.Context, method string, req any) (access.Identity, error) {
	f.t.Helper()
	var seen access.Identity
	_, err := f.UnaryServer()(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
		seen = access.From(ctx)
		return nil, nil
	})
	return seen, err
}

const whoAmI = adminpb.AdminService_WhoAmI_FullMethodName

func TestCallerIsWhoItProvesToBe(t *testing.T) {
	t.Parallel()
	f := setup(t)
	good, credential := f.store.token("ci", access.Editor, func(c *access.Credential) { c.Domains = []string{"a"} })
	stale, _ := f.store.token("old", access.Editor, func(c *access.Credential) { c.Expires = time.Now().Add(-time.Minute) })
	ended, _ := f.store.token("gone", access.Editor, func(c *access.Credential) { c.Revoked = time.Now() })
	unheard, _ := access.NewToken()
	f.store.certificate("spiffe://x/one", access.Sidecar)
	f.store.certificate("by-name", access.Sidecar)
	revoked := f.store.certificate("spiffe://x/revoked", access.Sidecar)
	revoked.Revoked = time.Now()
	f.store.put(revoked)
	past := certificate(t, "by-name")
	past.NotAfter = time.Now().Add(-time.Second)

	for _, c := range []struct {
		name        string
		token       string
		certificate *x509.Certificate
		want        string // whom; "": refused
		reason      string
		say         string
	}{
		{name: "token", token: good, want: "ci"},
		{name: "expired token", token: stale, reason: "expired", say: "of old expired on"},
		{name: "revoked token", token: ended, reason: "revoked", say: "was revoked"},
		{name: "unknown token", token: unheard, reason: "unknown", say: "not known here"},
		{name: "something else", token: "eyJhbGciOi", reason: "malformed", say: "Bearer hg_"},
		{name: "endless token", token: "hg_" + strings.Repeat("a", 1000), reason: "malformed", say: "Bearer hg_"},
		{name: "nothing", reason: "missing", say: "rulectl --token-file or HEADGATE_TOKEN"},
		{name: "URI", certificate: certificate(t, "", "spiffe://x/zero", "spiffe://x/one"), want: "spiffe://x/one"},
		{name: "URI before name", certificate: certificate(t, "by-name", "spiffe://x/one"), want: "spiffe://x/one"},
		{name: "name", certificate: certificate(t, "by-name", "spiffe://x/zero"), want: "by-name"},
		{name: "unknown certificate", certificate: certificate(t, "nobody"), reason: "unknown", say: `"nobody"`},
		{name: "expired certificate", certificate: past, reason: "expired", say: "has expired"},
		{name: "revoked URI with a known name", certificate: certificate(t, "by-name", "spiffe://x/revoked"), reason: "revoked", say: "was revoked"},
		{name: "certificate without a name", certificate: certificate(t, ""), reason: "missing", say: "rulectl --token-file"},
		{name: "token with an unknown certificate", token: good, certificate: certificate(t, "nobody"), want: "ci"},
		{name: "unknown token with a known certificate", token: unheard, certificate: certificate(t, "by-name"), reason: "unknown", say: "the token is not known"},
		{name: "a certificate's name is no token", token: "hg_by-name", reason: "unknown", say: "not known"},
	} {
		before := 0.0
		if c.reason != "" {
			before = f.failures(c.reason)
		}
		who, err := f.unary(call(t.Context(), c.token, c.certificate), whoAmI, nil)
		switch {
		case c.want != "" && (err != nil || who.Name != c.want || !who.Verified || who.Local):
			t.Errorf("%s: got %+v, %v, want %s", c.name, who, err, c.want)
		case c.want == "" && (!errors.Is(err, rules.ErrUnauthenticated) || !strings.Contains(err.Error(), c.say)):
			t.Errorf("%s: got %v, want an ErrUnauthenticated that says %q", c.name, err, c.say)
		case c.want == "" && f.failures(c.reason) != before+1:
			t.Errorf("%s: not counted as %s", c.name, c.reason)
		}
	}
	who, err := f.unary(call(t.Context(), good, nil), whoAmI, nil)
	if err != nil || who.Credential != credential.ID || who.Role != access.Editor || len(who.Domains) != 1 {
		t.Errorf("got %+v, %v, want all that the credential says", who, err)
	}
	if strings.Contains(f.log.String(), "hg_") {
		t.Errorf("a token is in the log: %s", f.log)
	}
	if n := strings.Count(f.log.String(), "not authenticated"); n == 0 || n > 5 {
		t.Errorf("%d failures are logged, want one a second", n)
	}
}

func TestCertificateThatNobodyVerifiedProvesNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.store.certificate("by-name", access.Admin)
	info := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate(t, "by-name")}}}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: info})
	if _, err := f.unary(ctx, whoAmI, nil); !errors.Is(err, rules.ErrUnauthenticated) {
		t.Errorf("got %v, want an ErrUnauthenticated", err)
	}
}

func TestOneAuthorizationIsSent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, _ := f.store.token("ci", access.Editor, nil)
	for _, c := range []struct {
		values []string
		ok     bool
	}{
		{[]string{"Bearer " + token}, true},
		{[]string{"bearer  " + token}, true},
		{[]string{"Bearer " + token, "Bearer " + token}, false},
		{[]string{token}, false},
		{[]string{"Basic " + token}, false},
		{[]string{""}, false},
	} {
		md := metadata.MD{"authorization": c.values}
		_, err := f.unary(metadata.NewIncomingContext(call(t.Context(), "", nil), md), whoAmI, nil)
		if (err == nil) != c.ok {
			t.Errorf("%q: got %v, want ok: %v", c.values, err, c.ok)
		}
	}
}

func TestAnswersOfTheStoreAreBelievedForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		token, c := f.store.token("fleet", access.Sidecar, nil)
		// A fleet that comes back at once asks once.
		f.store.wait = make(chan struct{})
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				if _, err := f.unary(call(t.Context(), token, nil), whoAmI, nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(f.store.wait)
		callers.Wait()
		if n := f.store.questions(); n != 1 {
			t.Errorf("the store was asked %d times, want once", n)
		}

		c.Revoked = time.Now()
		f.store.put(c)
		time.Sleep(4 * time.Second)
		if _, err := f.unary(call(t.Context(), token, nil), whoAmI, nil); err != nil {
			t.Errorf("after 4 s: %v, want what the store said before", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := f.unary(call(t.Context(), token, nil), whoAmI, nil); !errors.Is(err, rules.ErrUnauthenticated) {
			t.Errorf("after 6 s: got %v, want an ErrUnauthenticated", err)
		}
		asked := f.store.questions()
		unheard, _ := access.NewToken()
		for range 10 {
			if _, err := f.unary(call(t.Context(), unheard, nil), whoAmI, nil); !errors.Is(err, rules.ErrUnauthenticated) {
				t.Errorf("got %v, want an ErrUnauthenticated", err)
			}
		}
		if n := f.store.questions() - asked; n != 1 {
			t.Errorf("an unknown token was asked for %d times, want once", n)
		}
	})
}

func TestMadeUpTokensDoNotFillTheMemory(t *testing.T) {
	t.Parallel()
	f := setup(t)
	good, _ := f.store.token("ci", access.Editor, nil)
	for i := range 25_000 {
		if _, err := f.unary(call(t.Context(), fmt.Sprintf("hg_%d", i), nil), whoAmI, nil); err == nil {
			t.Fatal("a made-up token was accepted")
		}
	}
	if n := f.Answers(); n > 10_000 {
		t.Errorf("%d answers are kept", n)
	}
	if _, err := f.unary(call(t.Context(), good, nil), whoAmI, nil); err != nil {
		t.Error(err)
	}
}

func TestDatabaseThatIsAwayIsNotTheCallersFault(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, _ := f.store.token("ci", access.Editor, nil)
	f.store.certificate("n1", access.Sidecar)
	f.store.fail(fmt.Errorf("dial db.internal:5432: %w", rules.ErrUnavailable))
	for _, ctx := range []context.Context{call(t.Context(), token, nil), call(t.Context(), "", certificate(t, "n1"))} {
		_, err := f.unary(ctx, whoAmI, nil)
		if !errors.Is(err, rules.ErrUnavailable) || errors.Is(err, rules.ErrUnauthenticated) || strings.Contains(err.Error(), "db.internal") {
			t.Errorf("got %v, want an ErrUnavailable without the address", err)
		}
	}
	if !strings.Contains(f.log.String(), "db.internal") {
		t.Errorf("the log does not say what was the matter: %s", f.log)
	}
	if n := f.failures("unavailable"); n != 2 {
		t.Errorf("counted %v, want 2", n)
	}
	f.store.fail(nil)
	if _, err := f.unary(call(t.Context(), token, nil), whoAmI, nil); err != nil {
		t.Errorf("once the database is back: %v", err)
	}
}

func TestAttemptsToChangeWithoutTheRoleAreRecorded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, _ := f.store.token("vi", access.Viewer, nil)
	ctx := call(t.Context(), token, nil)
	try := func(method string, req any) {
		t.Helper()
		if _, err := f.unary(ctx, method, req); !errors.Is(err, rules.ErrForbidden) || !strings.Contains(err.Error(), "vi has the role viewer; this needs") {
			t.Errorf("%s: got %v, want an ErrForbidden that says what is missing", method, err)
		}
	}
	try(adminpb.AdminService_Promote_FullMethodName, &adminpb.PromoteRequest{Domain: "d", Rule: "r"})
	try(adminpb.AdminService_Freeze_FullMethodName, &adminpb.FreezeRequest{Domain: "d"})
	try(adminpb.AdminService_Apply_FullMethodName, &adminpb.ApplyRequest{})
	try(adminpb.AdminService_Promote_FullMethodName, &adminpb.PromoteRequest{Domain: "D\n", Rule: "r"})
	try(adminpb.AdminService_ListCredentials_FullMethodName, &adminpb.ListCredentialsRequest{})
	want := `vi tried to promote d/r in "d"; vi tried to freeze d in "d"; vi tried to apply  in ""; vi tried to promote  in ""`
	if got := strings.Join(f.refusals, "; "); got != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", got, want)
	}
}

func TestMethodOutsideTheTableIsRefusedToAll(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, _ := f.store.token("root", access.Admin, nil)
	if _, err := f.unary(call(t.Context(), token, nil), "/headgate.admin.v1.AdminService/DropEverything", nil); !errors.Is(err, rules.ErrForbidden) {
		t.Errorf("got %v, want an ErrForbidden", err)
	}
}

func TestWithoutAuthenticationEverybodyIsLocal(t *testing.T) {
	t.Parallel()
	a, err := auth.New(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, Authenticator: a}
	who, err := f.unary(call(t.Context(), "", nil), adminpb.AdminService_Promote_FullMethodName, nil)
	if err != nil || !who.Local || who.Verified || who.May(access.Admin, "") != nil {
		t.Errorf("got %+v, %v, want somebody local, unverified, who may do everything", who, err)
	}
	recorder := httptest.NewRecorder()
	a.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who = access.From(r.Context()) })).
		ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusOK || !who.Local {
		t.Errorf("got %d and %+v, want 200 and somebody local", recorder.Code, who)
	}
}

func TestHTTPAsksForAViewerOfEverything(t *testing.T) {
	t.Parallel()
	f := setup(t)
	viewer, _ := f.store.token("prometheus", access.Viewer, nil)
	some, _ := f.store.token("some", access.Viewer, func(c *access.Credential) { c.Domains = []string{"a"} })
	sidecar, _ := f.store.token("n1", access.Sidecar, nil)
	f.store.certificate("by-name", access.Viewer)
	handler := f.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get := func(path, token string, c *x509.Certificate) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		if c != nil {
			req.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		return w
	}
	for _, c := range []struct {
		path, token string
		certificate *x509.Certificate
		want        int
	}{
		{path: "/livez", want: 200},
		{path: "/readyz", want: 200},
		{path: "/metrics", want: 401},
		{path: "/readyz/", want: 401},
		{path: "/anything", want: 401},
		{path: "/metrics", token: "hg_unknown", want: 401},
		{path: "/metrics", token: viewer, want: 200},
		{path: "/metrics", certificate: certificate(t, "by-name"), want: 200},
		{path: "/metrics", token: some, want: 403},
		{path: "/metrics", token: sidecar, want: 403},
	} {
		if got := get(c.path, c.token, c.certificate); got.Code != c.want {
			t.Errorf("%s with %q: got %d %s, want %d", c.path, c.token, got.Code, got.Body, c.want)
		}
	}
	refused := get("/metrics", "", nil)
	if h := refused.Header(); h.Get("WWW-Authenticate") == "" || h.Get("Cache-Control") != "no-store" || h.Get("Connection") != "close" {
		t.Errorf("the refusal has the headers %v", h)
	}
	f.store.fail(rules.ErrUnavailable)
	if got := get("/metrics", "hg_other", nil); got.Code != http.StatusServiceUnavailable {
		t.Errorf("database away: got %d, want 503", got.Code)
	}
	if got := get("/livez", "", nil); got.Code != http.StatusOK {
		t.Errorf("database away: /livez answers %d", got.Code)
	}
}
