package forwarded

import (
	"net/http"
	"net/netip"
	"testing"
)

// FuzzClientAddress: whatever is forwarded, there is an address, in one notation; and what a client puts to the left of
// what the trusted proxies wrote changes nothing.
func FuzzClientAddress(f *testing.F) {
	for _, seed := range []string{
		"", "192.0.2.1", "192.0.2.1, 10.0.0.9", "unknown, 192.0.2.1:80", "[2001:db8::1%eth0]:443", "::ffff:192.0.2.4", ",,,", "10.0.0.1",
		"\x00", "192.0.2.1,\xff",
	} {
		f.Add(seed)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	trust := New(Options{TrustedProxies: trusted})
	from := func(forwarded string) netip.Addr {
		return trust.Address(&http.Request{RemoteAddr: "10.0.0.1:1234", Header: http.Header{"X-Forwarded-For": {forwarded}}})
	}
	f.Fuzz(func(t *testing.T, forwarded string) {
		ip := from(forwarded)
		if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() {
			t.Errorf("%q gives %q", forwarded, ip)
		}
		chain := forwarded + ", 192.0.2.77, 10.0.0.9"
		if got := from(chain).String(); got != "192.0.2.77" {
			t.Errorf("%q gives %s, want what the last proxy saw", chain, got)
		}
	})
}
