package forwarded

import (
	"net/http"
	"net/netip"
	"testing"
)

// However the name is spelt, in the settings or by the client: a service may read the one for the other.
func TestReservedHeadersAreStrippedInEverySpelling(t *testing.T) {
	t.Parallel()
	trust := New(Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, TrustedHeaders: []string{"x-plan", "x_tenant"},
	})
	reserved := []string{
		"X-Plan", "X_plan", "X.plan", "X_Plan", "x-plan", "X-Tenant", "X_tenant", "X_Tenant", "Forwarded", "X-Real-Ip", "X_real_ip", "X-Forwarded",
		"X-Forwarded-For", "X_forwarded_for", "X.forwarded.for", "X-Forwarded_Host", "X-Original-Url", "X_original_uri", "X-Rewrite-Url", "X_rewrite_url",
	}
	others := []string{"X-Plans", "X-Tenants", "Xplan", "Authorization", "X-Real-Ip-2", "Via", "Host"}
	for peer, stripped := range map[string]bool{"192.0.2.1:1": true, "10.0.0.1:1": false} {
		r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
		for _, name := range append(reserved, others...) {
			r.Header[name] = []string{"v"}
		}
		trust.Strip(r)
		for _, name := range reserved {
			if _, there := r.Header[name]; there == stripped {
				t.Errorf("from %s: %s is there: %v", peer, name, there)
			}
		}
		for _, name := range others {
			if r.Header[name] == nil {
				t.Errorf("from %s: %s is gone", peer, name)
			}
		}
	}
}
