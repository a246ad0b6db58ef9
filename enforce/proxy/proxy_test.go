package proxy_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

func TestRefusal(t *testing.T) {
	t.Parallel()
	b := setup(t, enforce.Decision{
		Rule: "api-key-plan", Reason: enforce.ReasonOverLimit, Status: http.StatusTooManyRequests, Wait: 6*time.Second + 1,
	})
	resp := b.get(t, "/v1/x")
	if resp.status != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", resp.status)
	}
	for name, want := range map[string]string{
		"Retry-After": "7", "Cache-Control": "no-store", "Content-Type": "application/problem+json",
	} {
		if got := resp.header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(resp.body), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type":  "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title": "Too many requests", "status": 429.0, "detail": "Retry in 7 seconds.",
		"violated-policies": []any{"api-key-plan"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if len(*b.upstream) > 0 {
		t.Error("a refused request reached the upstream")
	}
}

func TestRefusalWithoutRetryAfterWhenWaitingCannotHelp(t *testing.T) {
	t.Parallel()
	b := setup(t, enforce.Decision{Rule: "r", Status: http.StatusTooManyRequests, Wait: enforce.Never})
	if got := b.get(t, "/").header.Get("Retry-After"); got != "" {
		t.Errorf("Retry-After %q, want none", got)
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
