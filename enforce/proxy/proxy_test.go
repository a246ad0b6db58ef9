package proxy_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// decider answers with one decision, and keeps what it was asked.
type decider struct {
	answer enforce.Decision
	asked  []rules.Request
}

func (d *decider) Decide(_ context.Context, r *rules.Request) enforce.Decision {
	d.asked = append(d.asked, *r)
	return d.answer
}

func (d *decider) Malformed(_, detail string) enforce.Decision {
	return enforce.Decision{Reason: enforce.ReasonMalformed, Status: http.StatusBadRequest, Wait: enforce.Never, Detail: detail}
}

type bundle struct {
	decider  *decider
	door     *httptest.Server
	upstream *[]string // request URIs that reached it
}

func setup(t *testing.T, answer enforce.Decision, trusted ...string) bundle {
	t.Helper()
	b := bundle{decider: &decider{answer: answer}, upstream: new([]string)}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*b.upstream = append(*b.upstream, r.RequestURI)
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	}))
	t.Cleanup(up.Close)
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := proxy.Options{Domain: "d", Upstream: target, Log: slog.New(slog.DiscardHandler)}
	for _, p := range trusted {
		o.TrustedProxies = append(o.TrustedProxies, netip.MustParsePrefix(p))
	}
	b.door = httptest.NewServer(proxy.New(b.decider, o))
	t.Cleanup(b.door.Close)
	return b
}

// answer is what a call through the door got.
type answer struct {
	status int
	header http.Header
	body   string
}

func (b bundle) get(t *testing.T, path string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.door.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Opaque = path // as written, nothing cleaned
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := b.door.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

func TestAllowedIsForwardedAsItWasMatched(t *testing.T) {
	t.Parallel()
	b := setup(t, enforce.Decision{Allowed: true})
	if got := b.get(t, "/v1//./%6cogin?next=%2F"); got.status != http.StatusOK {
		t.Fatalf("status %d, want 200", got.status)
	}
	if got := b.decider.asked[0].Path; got != "/v1/login" {
		t.Errorf("matched %q, want /v1/login", got)
	}
	if diff := cmp.Diff([]string{"/v1/login?next=%2F"}, *b.upstream); diff != "" {
		t.Errorf("forwarded (-want +got):\n%s", diff)
	}
}

func TestPathThatCannotBeKnownIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, enforce.Decision{Allowed: true})
	for _, path := range []string{"/a%2fb", "/a%00"} {
		if got := b.get(t, path); got.status != http.StatusBadRequest {
			t.Errorf("%s: status %d, want 400", path, got.status)
		}
	}
	if len(*b.upstream) > 0 {
		t.Errorf("%q reached the upstream", *b.upstream)
	}
}

// A target that is no path was matched as one thing and forwarded as another.
func TestTargetsThatAreNoPathAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, enforce.Decision{Allowed: true})
	for _, line := range []string{
		"POST x:http://h/v1/login", "GET *", "CONNECT h:80", "post /v1/login", "GET http:v1",
	} {
		conn, err := net.Dial("tcp", b.door.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", line); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
			t.Errorf("%s: answer %.40q, want 400", line, answer)
		}
		_ = conn.Close()
	}
	if len(*b.upstream) > 0 {
		t.Errorf("%q reached the upstream", *b.upstream)
	}
}

func TestQueryIsForwardedAsSent(t *testing.T) {
	t.Parallel()
	b := setup(t, enforce.Decision{Allowed: true})
	b.get(t, "/x?b=2&a=1;c&%zz")
	if diff := cmp.Diff([]string{"/x?b=2&a=1;c&%zz"}, *b.upstream); diff != "" {
		t.Errorf("forwarded (-want +got):\n%s", diff)
	}
}

func TestRefusedIsAnsweredAndNotForwarded(t *testing.T) {
	t.Parallel()
	b := setup(t, enforce.Decision{
		Rule: "api-key-plan", Reason: enforce.ReasonOverLimit, Status: http.StatusTooManyRequests, Wait: 6*time.Second + 1,
	})
	resp := b.get(t, "/v1/x")
	if resp.status != http.StatusTooManyRequests || resp.header.Get("Retry-After") != "7" {
		t.Errorf("status %d, Retry-After %q; want 429 and 7", resp.status, resp.header.Get("Retry-After"))
	}
	if len(*b.upstream) > 0 {
		t.Error("a refused request reached the upstream")
	}
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	const chain = "192.0.2.1, 198.51.100.7, 203.0.113.9"
	for name, c := range map[string]struct {
		trusted []string
		header  string
		want    string
	}{
		"untrusted peer":           {nil, chain, "127.0.0.1"},
		"over the trusted proxies": {[]string{"127.0.0.0/8", "203.0.113.0/24"}, chain, "198.51.100.7"},
		"spoofed left entry":       {[]string{"127.0.0.0/8"}, chain, "203.0.113.9"},
		"mapped and with a port":   {[]string{"127.0.0.0/8"}, "[::ffff:192.0.2.4]:8080", "192.0.2.4"},
		"no usable entry":          {[]string{"127.0.0.0/8"}, "unknown", "127.0.0.1"},
		"no header":                {[]string{"127.0.0.0/8"}, "", "127.0.0.1"},
		"only trusted":             {[]string{"127.0.0.0/8"}, "127.0.0.2", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, enforce.Decision{Allowed: true}, c.trusted...)
			var header []string
			if c.header != "" {
				header = []string{"X-Forwarded-For", c.header}
			}
			b.get(t, "/", header...)
			if got := b.decider.asked[0].IP.String(); got != c.want {
				t.Errorf("client %s, want %s", got, c.want)
			}
		})
	}
}

// traefik#8052: an empty client address put every caller into one shared bucket.
func TestC26DepthOfTheChain(t *testing.T) {
	t.Parallel()
	for hops, want := range map[int]string{1: "203.0.113.9", 3: "198.51.100.1", 5: "127.0.0.1"} {
		d := &decider{answer: enforce.Decision{Status: http.StatusTooManyRequests}}
		reg := prometheus.NewRegistry()
		p := proxy.New(d, proxy.Options{Domain: "d", Upstream: &url.URL{}, TrustedHops: hops, Log: slog.New(slog.DiscardHandler), Registerer: reg})
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.RemoteAddr = "127.0.0.1:1234"
		req.Header.Set("X-Forwarded-For", "192.0.2.1, 198.51.100.1, 203.0.113.1, 203.0.113.9")
		p.ServeHTTP(httptest.NewRecorder(), req)
		if got := d.asked[0].IP.String(); got != want {
			t.Errorf("%d hops: client %s, want %s", hops, got, want)
		}
		fallbacks := 0
		if hops == 5 {
			fallbacks = 1
		}
		wantMetric := fmt.Sprintf(`
			# HELP headgate_client_address_fallback_total Requests of trusted proxies without a usable X-Forwarded-For entry; the address of the proxy counts as the client's.
			# TYPE headgate_client_address_fallback_total counter
			headgate_client_address_fallback_total %d
		`, fallbacks)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(wantMetric), "headgate_client_address_fallback_total"); err != nil {
			t.Errorf("%d hops: %v", hops, err)
		}
	}
}

func TestForwardedForIsKeptOnlyFromTrustedPeers(t *testing.T) {
	t.Parallel()
	for want, trusted := range map[string][]string{
		"127.0.0.1":            nil,
		"192.0.2.1, 127.0.0.1": {"127.0.0.0/8"},
	} {
		b := setup(t, enforce.Decision{Allowed: true}, trusted...)
		if got := b.get(t, "/", "X-Forwarded-For", "192.0.2.1").body; got != want {
			t.Errorf("trusted %v: forwarded %q, want %q", trusted, got, want)
		}
	}
}
