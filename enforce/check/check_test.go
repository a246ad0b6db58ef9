package check_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/check"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
)

// decider answers with one decision, and keeps what it was asked.
type decider struct {
	answer    enforce.Decision
	asked     []rules.Request
	malformed []string // domains
}

func (d *decider) Decide(_ context.Context, r *rules.Request) enforce.Decision {
	d.asked = append(d.asked, *r)
	return d.answer
}

func (d *decider) Malformed(domain, detail string) enforce.Decision {
	d.malformed = append(d.malformed, domain)
	return enforce.Decision{Reason: enforce.ReasonMalformed, Status: http.StatusBadRequest, Wait: enforce.Never, Detail: detail}
}

var options = check.Options{Domains: []string{"shop", "pay"}}

// ask makes a check of a proxy on this machine.
func ask(door http.Handler, query string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://limiter/check?"+query, nil)
	r.RemoteAddr = "127.0.0.1:1234"
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	door.ServeHTTP(w, r)
	return w
}

// limits are RateLimit and RateLimit-Policy, spelt like this.
func limits(resp *httptest.ResponseRecorder) []string {
	var list []string
	for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
		list = append(list, resp.Header()[name]...)
	}
	return list
}

// seen is what the rules see of a request.
type seen struct{ Method, Host, Path, Query, IP, Key string }

func TestProxiesDescribeTheRequestInTheirOwnWays(t *testing.T) {
	t.Parallel()
	want := seen{"POST", "shop.example", "/v1/login", "a=%2F", "192.0.2.7", "k"}
	for proxy, header := range map[string][]string{
		"Caddy and Traefik": {
			"X-Forwarded-Method", "POST", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "Shop.example:443",
			"X-Forwarded-Uri", "/v1//./%6cogin?a=%2F", "X-Forwarded-For", "192.0.2.7",
		},
		"nginx": {
			"X-Original-Method", "POST", "X-Forwarded-Host", "shop.example", "X-Original-URI", "/v1/login?a=%2F",
			"X-Forwarded-For", "198.51.100.1, 192.0.2.7",
		},
		"nginx's ingress": {
			"X-Original-Method", "POST", "X-Original-URL", "https://shop.example/v1/login?a=%2F", "X-Forwarded-For", "192.0.2.7",
		},
		"both ways, the same": {
			"X-Original-Method", "POST", "X-Forwarded-Method", "POST", "X-Original-URL", "http://shop.example/v1/login?a=%2F",
			"X-Forwarded-Uri", "/v1/login?a=%2F", "X-Forwarded-Host", "shop.example, shop.example:80", "X-Forwarded-For", "192.0.2.7, 127.0.0.1",
		},
	} {
		t.Run(proxy, func(t *testing.T) {
			t.Parallel()
			d := &decider{answer: enforce.Decision{Allowed: true}}
			resp := ask(check.New(d, options), "", append(header, "X-Api-Key", "k")...)
			if resp.Code != http.StatusOK {
				t.Fatalf("status %d", resp.Code)
			}
			r := d.asked[0]
			got := seen{r.Method, r.Host, r.Path, r.RawQuery, r.IP.String(), http.Header(r.Header).Get("X-Api-Key")}
			if diff := cmp.Diff(want, got); diff != "" || r.Domain != "shop" || r.Hits != 1 {
				t.Errorf("asked of %s (-want +got):\n%s", r.Domain, diff)
			}
		})
	}
}

func TestTargetsOfAllForms(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"/":                         "limiter /",
		"/?":                        "limiter /",
		"?a=http://x/y":             "limiter / a=http://x/y",
		"/http://x/y":               "limiter /http:/x/y",
		"http://h.example":          "h.example /",
		"http://h.example?a=b":      "h.example / a=b",
		"https://h.example:8443/x/": "h.example /x/",
	} {
		d := &decider{answer: enforce.Decision{Allowed: true}}
		if resp := ask(check.New(d, options), "", "X-Original-Uri", uri); resp.Code != http.StatusOK {
			t.Errorf("%s: status %d", uri, resp.Code)
			continue
		}
		got := d.asked[0].Host + " " + d.asked[0].Path
		if q := d.asked[0].RawQuery; q != "" {
			got += " " + q
		}
		if got != want {
			t.Errorf("%s is seen as %s, want %s", uri, got, want)
		}
	}
}

// A client may send what the proxy does not set: then nobody knows which request will be forwarded.
func TestWhatCannotBeKnownIsRefusedAndCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query  string
		header []string
	}{
		"no target":             {"", []string{"X-Forwarded-Method", "GET"}},
		"two targets":           {"", []string{"X-Original-URI", "/v1/login", "X-Forwarded-Uri", "/livez"}},
		"a target twice":        {"", []string{"X-Forwarded-Uri", "/v1/login", "X-Forwarded-Uri", "/livez"}},
		"two methods":           {"", []string{"X-Forwarded-Uri", "/", "X-Forwarded-Method", "GET", "X-Original-Method", "POST"}},
		"two hosts":             {"", []string{"X-Original-URL", "http://a/", "X-Forwarded-Host", "b"}},
		"lower-case method":     {"", []string{"X-Forwarded-Uri", "/", "X-Forwarded-Method", "post"}},
		"a list of methods":     {"", []string{"X-Forwarded-Uri", "/", "X-Forwarded-Method", "GET, POST"}},
		"CONNECT":               {"", []string{"X-Forwarded-Uri", "/", "X-Forwarded-Method", "CONNECT"}},
		"an encoded slash":      {"", []string{"X-Forwarded-Uri", "/a%2fb"}},
		"a fragment":            {"", []string{"X-Original-URI", "/v1/login#x"}},
		"a list of targets":     {"", []string{"X-Forwarded-Uri", "/livez, /v1/login"}},
		"a user before a host":  {"", []string{"X-Original-URL", "http://u@h.example/"}},
		"a host with a path":    {"", []string{"X-Forwarded-Uri", "/", "X-Forwarded-Host", "h.example/x"}},
		"a host with two ports": {"", []string{"X-Forwarded-Uri", "/", "X-Forwarded-Host", "h.example:80:90"}},
		"an encoded host":       {"", []string{"X-Forwarded-Uri", "/", "X-Forwarded-Host", "h%2eexample"}},
		"no path":               {"", []string{"X-Forwarded-Uri", "*"}},
		"a domain nobody knows": {"domain=other", []string{"X-Forwarded-Uri", "/"}},
		"a status that is none": {"deny_status=200", []string{"X-Forwarded-Uri", "/"}},
		"a status out of words": {"deny_status=no", []string{"X-Forwarded-Uri", "/"}},
		"a broken query":        {"%zz", []string{"X-Forwarded-Uri", "/"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &decider{answer: enforce.Decision{Allowed: true}}
			if resp := ask(check.New(d, options), c.query, c.header...); resp.Code != http.StatusBadRequest {
				t.Errorf("status %d, want 400", resp.Code)
			}
			if len(d.asked) > 0 || len(d.malformed) != 1 || d.malformed[0] != "shop" {
				t.Errorf("asked %v, malformed %v; want one malformed of shop", d.asked, d.malformed)
			}
		})
	}
}

func TestOnlyTrustedProxiesMayAsk(t *testing.T) {
	t.Parallel()
	own := options
	own.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for name, c := range map[string]struct {
		options check.Options
		peer    string
		want    int
	}{
		"loopback by default":  {options, "127.0.0.1:1", http.StatusOK},
		"of IPv6 as well":      {options, "[::1]:1", http.StatusOK},
		"nobody else":          {options, "192.0.2.1:1", http.StatusBadRequest},
		"the proxies named":    {own, "10.1.2.3:1", http.StatusOK},
		"then not loopback":    {own, "127.0.0.1:1", http.StatusBadRequest},
		"any with known hops":  {check.Options{Domains: []string{"shop"}, TrustedHops: 1}, "192.0.2.1:1", http.StatusOK},
		"nobody without a way": {options, "@", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &decider{answer: enforce.Decision{Allowed: true}}
			r := httptest.NewRequest(http.MethodGet, "/check", nil)
			r.RemoteAddr = c.peer
			r.Header.Set("X-Forwarded-Uri", "/")
			w := httptest.NewRecorder()
			check.New(d, c.options).ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("status %d, want %d", w.Code, c.want)
			}
		})
	}
}

// nginx makes 500 of any refusal but 401 and 403. Where it then fails open, a malformed request must not be a way round
// the limits.
func TestDenyStatusReplacesThatOfEveryRefusal(t *testing.T) {
	t.Parallel()
	d := &decider{answer: enforce.Decision{
		Rule: "r", Reason: enforce.ReasonOverLimit, Status: http.StatusTooManyRequests, Wait: 6500 * time.Millisecond,
		Rate: rules.Rate{Amount: 6, Window: time.Minute, Burst: 6}, Reference: "REF",
	}}
	door := check.New(d, options)
	resp := ask(door, "deny_status=403", "X-Original-URI", "/")
	got := []string{strconv.Itoa(resp.Code), resp.Header().Get("Headgate-Status"), resp.Header().Get("Headgate-Reference"), resp.Header().Get("Retry-After"), fmt.Sprint(limits(resp))}
	if diff := cmp.Diff([]string{"403", "429", "REF", "7", `["r";r=0;t=7 "r";q=6;w=60]`}, got); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	for _, header := range [][]string{nil, {"X-Original-URI", "/a%2fb"}} {
		if resp := ask(door, "deny_status=403", header...); resp.Code != http.StatusForbidden {
			t.Errorf("%q: status %d, want 403", header, resp.Code)
		}
	}
	if resp := ask(door, "domain=other&deny_status=403", "X-Original-URI", "/"); resp.Code != http.StatusForbidden {
		t.Errorf("unknown domain: status %d, want 403", resp.Code)
	}
}

// End to end over an engine: the second call is refused, in the domain that was asked for, and all is counted.
func TestCheckOverAnEngine(t *testing.T) {
	t.Parallel()
	rate := rules.Rate{Amount: 1, Window: time.Hour, Burst: 1}
	rule := &rules.Rule{Domain: "pay", Name: "r", UID: "u", Stable: &rules.Version{Number: 1, Spec: rules.Spec{
		Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rate}},
	}}}
	reg := prometheus.NewRegistry()
	counts := meter.New(reg)
	engine := enforce.NewEngine(memlimit.New(), counts, slog.New(slog.DiscardHandler))
	engine.Swap(rules.NewIndex(rules.Domain{Name: "pay"}, []*rules.Rule{rule}))
	o := options
	o.Registerer = reg
	door := check.New(engine, o)
	check.New(engine, o) // a second door shares the metrics
	var got []string
	for range 2 {
		resp := ask(door, "domain=pay", "X-Forwarded-Uri", "/", "X-Forwarded-For", "192.0.2.1")
		got = append(got, fmt.Sprintln(resp.Code, limits(resp)[0], resp.Header().Get("Cache-Control")))
	}
	got = append(got, fmt.Sprint(ask(door, "domain=pay").Code))
	if diff := cmp.Diff([]string{"200 \"r\";r=0;t=3600 no-store\n", "429 \"r\";r=0;t=3600 no-store\n", "400"}, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "headgate_requests_total" {
			for _, m := range f.GetMetric() {
				counted[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"pay allowed": 1, "pay refused": 1, "pay malformed": 1, "pay exempt": 0, "pay unmatched": 0}, counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// FuzzCheck: whatever is asked, there is an answer, and what the rules see is in one notation.
func FuzzCheck(f *testing.F) {
	f.Add("domain=pay&deny_status=403", "GET", "/v1/%6c?x", "h:80", "192.0.2.1, 10.0.0.1", "/other")
	f.Add("", "post", "http://h/..;/%2f", "a,b", ",,", "")
	f.Add("%", "", "*", "", "\xff", "http://")
	d := &decider{}
	door := check.New(d, options)
	f.Fuzz(func(t *testing.T, query, method, uri, host, chain, original string) {
		d.asked, d.malformed, d.answer = nil, nil, enforce.Decision{Allowed: true}
		r := httptest.NewRequest(http.MethodGet, "/check", nil)
		r.URL.RawQuery, r.RemoteAddr = query, "127.0.0.1:1"
		r.Header = http.Header{
			"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Host": {host}, "X-Forwarded-For": {chain},
		}
		if original != "" {
			r.Header.Set("X-Original-Url", original)
		}
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		if len(d.asked)+len(d.malformed) != 1 || (w.Code == http.StatusOK) != (len(d.asked) == 1) || w.Code != http.StatusOK && w.Code < 400 {
			t.Fatalf("status %d, asked %d, malformed %d", w.Code, len(d.asked), len(d.malformed))
		}
		if len(d.asked) == 0 {
			return
		}
		got := d.asked[0]
		if again, err := rules.NormalizePath(got.Path); err != nil || again != got.Path || !got.IP.IsValid() || got.Method == "" {
			t.Errorf("%q path %q (%q, %v), client %v", got.Method, got.Path, again, err, got.IP)
		}
	})
}
