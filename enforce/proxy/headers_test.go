package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/rules"
)

var sixPerMinute = rules.Rate{Amount: 6, Window: time.Minute, Burst: 6}

// raw sends a request as written, and returns what the rules and the service saw of it.
func raw(t *testing.T, request string, change ...func(*proxy.Options)) (asked rules.Request, got *http.Request, resp reply) {
	t.Helper()
	d := &decider{answer: enforce.Decision{Allowed: true}}
	seen := make(chan *http.Request, 1)
	p := open(t, d, service(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		seen <- r
	}), change...)
	conn, in := p.dial(t)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp = receive(t, in)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return d.asked[0], <-seen, resp
}

// What a client says is for this hop alone, the service does not get: so the rules must not see it either, or a client
// could have a new budget with each call.
func TestHopByHopHeadersAreSeenByNobody(t *testing.T) {
	t.Parallel()
	asked, got, resp := raw(t, "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, X-Api-Key\r\nX-Api-Key: fresh\r\nKeep-Alive: 5\r\n"+
		"Proxy-Authorization: p\r\nX-Other: kept\r\n\r\n")
	if keys := asked.Header["X-Api-Key"]; keys != nil {
		t.Errorf("the rules saw X-Api-Key: %q", keys)
	}
	for _, name := range []string{"X-Api-Key", "Keep-Alive", "Proxy-Authorization", "Connection"} {
		if v := got.Header.Get(name); v != "" {
			t.Errorf("the service got %s: %q", name, v)
		}
	}
	if got.Header.Get("X-Other") != "kept" {
		t.Error("a header that is for the service did not reach it")
	}
	if resp.Header.Get("X-Hop") != "" {
		t.Error("a header of the service for its own hop reached the caller")
	}
}

// A proxy that hands on its caller's Connection must not be made to take back what it says of that caller: by it a caller
// would get the proxy's address, or no plan.
func TestConnectionTakesNothingAwayThatATrustedProxySays(t *testing.T) {
	t.Parallel()
	asked, got, _ := raw(t, "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, X-Forwarded-For, x-plan, X-Other\r\n"+
		"X-Forwarded-For: 198.51.100.7\r\nX-Plan: pro\r\nX-Other: 1\r\n\r\n", func(o *proxy.Options) {
		o.TrustedHeaders, o.TrustedProxies = []string{"x-plan"}, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	seen := []string{asked.IP.String(), fmt.Sprint(asked.Header["X-Plan"], asked.Header["X-Other"])}
	forwarded := []string{got.Header.Get("X-Forwarded-For"), fmt.Sprint(got.Header["X-Plan"], got.Header["X-Other"])}
	if diff := cmp.Diff([]string{"198.51.100.7", "[pro] []"}, seen); diff != "" {
		t.Errorf("the rules saw (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"198.51.100.7, 127.0.0.1", "[pro] []"}, forwarded); diff != "" {
		t.Errorf("the service got (-want +got):\n%s", diff)
	}
}

// What comes behind the body no rule has seen, and no proxy has set: a service that puts trailers beside the headers would
// be told a plan, an address or a length.
func TestTrailersSayNothingThatHeadersDo(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(*http.Protocols, bool){"HTTP/1.1": http1, "HTTP/2": h2c} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trailer := make(chan http.Header, 1)
			d := open(t, always{Allowed: true}, service(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				trailer <- r.Trailer
			}), func(o *proxy.Options) {
				o.TrustedHeaders, o.TrustedProxies = []string{"x-plan"}, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			})
			r := d.request(t, http.MethodPost, "/", io.MultiReader(strings.NewReader("body")))
			r.Trailer = http.Header{
				"X-Sum": {"42"}, "X-Plan": {"pro"}, "X_plan": {"pro"}, "X-Forwarded-For": {"198.51.100.7"},
			}
			if name == "HTTP/1.1" { // of HTTP/2 the server takes none of these
				r.Trailer["Host"], r.Trailer["Authorization"] = []string{"h"}, []string{"a"}
			}
			do(t, client(t, protocol), r)
			if diff := cmp.Diff(http.Header{"X-Sum": {"42"}}, <-trailer); diff != "" {
				t.Errorf("the service got (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrailersThatAreNotAnnouncedGoNowhere(t *testing.T) {
	t.Parallel()
	for announced, want := range map[string]http.Header{"X-Sum": {"X-Sum": {"42"}}, "X-Plan": nil} {
		trailer := make(chan http.Header, 1)
		d := open(t, always{Allowed: true}, service(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			trailer <- r.Trailer
		}), func(o *proxy.Options) { o.TrustedHeaders = []string{"x-plan"} })
		conn, in := d.dial(t)
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: "+announced+"\r\n\r\n"+
			"1\r\na\r\n0\r\nX-Sum: 42\r\nX-Plan: pro\r\nContent-Length: 7\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		receive(t, in)
		if diff := cmp.Diff(want, <-trailer); diff != "" {
			t.Errorf("of those announced as %s the service got (-want +got):\n%s", announced, diff)
		}
	}
}

func TestAbsoluteTargetIsMatchedAndForwardedByItsParts(t *testing.T) {
	t.Parallel()
	asked, got, _ := raw(t, "GET http://Shop.example:80/v1//x?q=1 HTTP/1.1\r\nHost: other\r\n\r\n")
	seen := []string{asked.Host, asked.Path, asked.RawQuery, got.Host, got.RequestURI}
	if diff := cmp.Diff([]string{"shop.example", "/v1/x", "q=1", "Shop.example:80", "/v1/x?q=1"}, seen); diff != "" {
		t.Errorf("matched and forwarded (-want +got):\n%s", diff)
	}
}

func TestUpgradeToHTTP2IsNotForwarded(t *testing.T) {
	t.Parallel()
	_, got, _ := raw(t, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
	if got.Header.Get("Upgrade") != "" || got.Header.Get("Http2-Settings") != "" {
		t.Errorf("the service was asked to upgrade to %q", got.Header.Get("Upgrade"))
	}
}

// What cannot be forwarded is the caller's fault, not that of a service which was never asked.
func TestUpgradeToWhatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	d := &decider{answer: enforce.Decision{Allowed: true}}
	p := open(t, d, service(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the service") }))
	conn, in := p.dial(t)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: \xff\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if resp := receive(t, in); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d, want 400", resp.StatusCode)
	}
}

// Only a gateway says which plan a caller has.
func TestTrustedHeadersAreBelievedOnlyFromTrustedProxies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trusted []netip.Prefix
		want    string
	}{
		"from anybody":         {nil, "[] [] [] []"},
		"from a trusted proxy": {[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "[pro] [pro] [/x] [198.51.100.7]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, got, _ := raw(t, "GET / HTTP/1.1\r\nHost: h\r\nX-Plan: pro\r\nX_Plan: pro\r\nX-Forwarded-Prefix: /x\r\nX-Real-IP: 198.51.100.7\r\n\r\n",
				func(o *proxy.Options) { o.TrustedHeaders, o.TrustedProxies = []string{"x-plan"}, c.trusted })
			for what, h := range map[string]http.Header{"rules": asked.Header, "service": got.Header} {
				if seen := fmt.Sprint(h["X-Plan"], h["X_plan"], h["X-Forwarded-Prefix"], h["X-Real-Ip"]); seen != c.want {
					t.Errorf("the %s saw %s, want %s", what, seen, c.want)
				}
			}
		})
	}
}

func TestAllowedIsToldItsLimit(t *testing.T) {
	t.Parallel()
	d := open(t, always{Allowed: true, Rule: "r", Rate: sixPerMinute, Left: 5, Wait: 9500 * time.Millisecond},
		service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Ratelimit", `"own";r=1`)
			w.WriteHeader(http.StatusEarlyHints) // an answer before the answer must not use them up
			w.WriteHeader(http.StatusTeapot)
		}))
	resp := do(t, client(t, http1), d.request(t, http.MethodGet, "/", nil))
	if resp.StatusCode != http.StatusTeapot {
		t.Errorf("status %d, want the service's", resp.StatusCode)
	}
	limits := slices.Sorted(slices.Values(resp.Header["Ratelimit"])) // a list, in which the order says nothing
	want := map[string][]string{"Ratelimit": {`"own";r=1`, `"r";r=5;t=10`}, "Ratelimit-Policy": {`"r";q=6;w=60`}}
	got := map[string][]string{"Ratelimit": limits, "Ratelimit-Policy": resp.Header["Ratelimit-Policy"]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// What is put around a request, such as its trace, believes what it finds there.
func TestWhatIsAroundARequestSeesOnlyWhatItsPeerMaySay(t *testing.T) {
	t.Parallel()
	var seen http.Header
	asked, got, _ := raw(t, "GET / HTTP/1.1\r\nHost: h\r\nTraceparent: forged\r\nX-Other: kept\r\n\r\n", func(o *proxy.Options) {
		o.TrustedHeaders = []string{"traceparent"}
		o.Around = func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen = r.Header.Clone()
				r.Header.Set("Traceparent", "ours")
				h.ServeHTTP(w, r)
			})
		}
	})
	if seen.Get("Traceparent") != "" || seen.Get("X-Other") != "kept" {
		t.Errorf("what is around saw %v", seen)
	}
	for what, h := range map[string]http.Header{"rules": asked.Header, "service": got.Header} {
		if h.Get("Traceparent") != "ours" {
			t.Errorf("the %s saw %q, want what was put there", what, h.Get("Traceparent"))
		}
	}
}
