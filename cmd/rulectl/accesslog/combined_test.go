package accesslog_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/cmd/rulectl/accesslog"
	"github.com/headgate/headgate/rules"
)

// at is the instant of the lines below: 17 May 2015, 10:05:03 UTC.
const at = 1431857103_000000

func request(ip, method, path string) *rules.Request {
	r := &rules.Request{Method: method, Path: path, Hits: 1, Header: map[string][]string{}}
	if ip != "" {
		r.IP = netip.MustParseAddr(ip)
	}
	return r
}

func with(r *rules.Request, change func(*rules.Request)) *rules.Request {
	change(r)
	return r
}

var equal = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()}

// combined is a line around a request and a user agent.
func combined(request, agent string) string {
	return `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "` + request + `" 200 12 "-" "` + agent + `"`
}

func TestCombinedLinesGiveTheRequestThatASidecarSaw(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, line string
		want       *rules.Request
	}{
		{
			"everything", `192.0.2.1 - frank [17/May/2015:12:05:03 +0200] "GET /a?b=c HTTP/1.1" 200 2326 "http://x/" "Mozilla/4.08"`,
			with(request("192.0.2.1", "GET", "/a"), func(r *rules.Request) {
				r.RawQuery = "b=c"
				r.Header = map[string][]string{"Referer": {"http://x/"}, "User-Agent": {"Mozilla/4.08"}}
			}),
		},
		{"nothing sent", combined("GET / HTTP/1.1", "-"), request("192.0.2.1", "GET", "/")},
		{"no bytes", `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "HEAD / HTTP/2.0" 304 - "-" "-"`, request("192.0.2.1", "HEAD", "/")},
		{"more fields behind", combined("GET / HTTP/1.1", "-") + ` "203.0.113.9" 17`, request("192.0.2.1", "GET", "/")},
		{"an empty header", combined("GET / HTTP/1.1", ""), with(request("192.0.2.1", "GET", "/"), func(r *rules.Request) {
			r.Header = map[string][]string{"User-Agent": {""}}
		})},
		{"escapes", combined("GET / HTTP/1.1", `a \"b\" \x41\\ \q`), with(request("192.0.2.1", "GET", "/"), func(r *rules.Request) {
			r.Header = map[string][]string{"User-Agent": {`a "b" A\ \q`}}
		})},
		{"a path to be normalised", combined("GET //a/./%7Eb/../%63?x=%7E HTTP/1.1", "-"), with(request("192.0.2.1", "GET", "/a/c"), func(r *rules.Request) {
			r.RawQuery = "x=%7E"
		})},
		{"a target with spaces", combined("GET /a b HTTP/1.1", "-"), request("192.0.2.1", "GET", "/a%20b")},
		{"a target in absolute form", combined("GET HTTP://u@Shop.example:80/a?b HTTP/1.1", "-"), with(request("192.0.2.1", "GET", "/a"), func(r *rules.Request) {
			r.Host, r.RawQuery = "shop.example", "b"
		})},
		{"a URL without a path", combined("GET http://shop.example?b HTTP/1.1", "-"), with(request("192.0.2.1", "GET", "/"), func(r *rules.Request) {
			r.Host, r.RawQuery = "shop.example", "b"
		})},
		{"IPv6", `2001:db8::1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, request("2001:db8::1", "GET", "/")},
		{"IPv4 in IPv6", `::ffff:192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, request("192.0.2.1", "GET", "/")},
		{"a host name", `pool-3.example.net - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, request("", "GET", "/")},
		{"a user with a space and a bracket", `192.0.2.1 - a [b c [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, request("192.0.2.1", "GET", "/")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e, err := accesslog.ParseCombined(test.line)
			if err != nil {
				t.Fatal(err)
			}
			if e.At != at {
				t.Errorf("at %d, want %d", e.At, at)
			}
			if diff := cmp.Diff(test.want, e.Request, equal); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestALineIsMalformedUnlessTheWholeFormatIsThere(t *testing.T) {
	t.Parallel()
	whole := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 "-" "agent"`
	for i := range whole {
		if _, err := accesslog.ParseCombined(whole[:i]); err == nil {
			t.Errorf("the first %d bytes pass: %s", i, whole[:i])
		}
	}
	replace := func(old, new string) string { return strings.Replace(whole, old, new, 1) }
	for name, line := range map[string]string{
		"not an address":         replace("192.0.2.1", "192.0.2.256"),
		"binary junk":            "\x16\x03\x01\x00\xff - -",
		"a virtual host before":  "shop.example:80 " + whole,
		"a space before":         " " + whole,
		"no user":                replace(" - - [", " - ["),
		"no such day":            replace("17/May", "31/Feb"),
		"a month by number":      replace("17/May", "17/05"),
		"no time zone":           replace(" +0000", ""),
		"before 1970":            replace("2015", "1969"),
		"after 2200":             replace("2015", "2201"),
		"no request":             replace("GET / HTTP/1.1", "-"),
		"an empty request":       replace("GET / HTTP/1.1", ""),
		"a handshake":            replace("GET / HTTP/1.1", `\x16\x03\x01`),
		"no version":             replace("GET / HTTP/1.1", "GET /"),
		"no target":              replace("GET / HTTP/1.1", "GET HTTP/1.1"),
		"an open quote":          replace(`"agent"`, `"agent\"`),
		"a quote not escaped":    replace(`"agent"`, `"the "agent""`),
		"two lines in one":       whole + whole,
		"a status of two digits": replace(" 200 ", " 20 "),
		"no status":              replace(" 200 ", " - "),
		"a negative size":        replace(" 12 ", " -12 "),
	} {
		if _, err := accesslog.ParseCombined(line); err == nil {
			t.Errorf("%s passes: %q", name, line)
		}
	}
}

func TestATargetThatASidecarAnswersWith400IsWellFormedAndSeenByNoRule(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"GET /a%2Fb", "GET /a%00", "GET /100%", "GET a", "GET mailto:x", "OPTIONS *", "CONNECT shop.example:443", "CONNECT /", "get /",
	} {
		e, err := accesslog.ParseCombined(combined(target+" HTTP/1.1", "-"))
		if err != nil || e.Request != nil || e.Invalid == nil || e.At != at {
			t.Errorf("%s: entry %+v, error %v; want an entry without a request", target, e, err)
		}
	}
}
