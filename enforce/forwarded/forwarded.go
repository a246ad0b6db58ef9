// Package forwarded tells what proxies in front of a door say of a request, and what of it is believed: who sent it, and
// the headers that only a gateway may set.
//
// Whoever is not trusted is the client, whatever its headers say; what it says there is taken out before anything reads
// it.
package forwarded

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/realclientip/realclientip-go"
)

// Options say who is believed.
type Options struct {
	TrustedProxies []netip.Prefix
	// TrustedHops above 0 believes every peer, and takes the client from that many entries from the right of
	// X-Forwarded-For: for a fixed chain of proxies whose addresses are not known.
	TrustedHops int
	// TrustedHeaders are set by the gateway, such as the plan or the tenant.
	TrustedHeaders []string
	Registerer     prometheus.Registerer // nil: no metrics
}

// Trust tells who sent a request: over the trusted proxies, from the right of X-Forwarded-For, the first address that is
// none of theirs; or, with a number of hops, that many entries from the right. What an untrusted peer writes there
// changes nothing. It is safe for concurrent use.
type Trust struct {
	proxies  []netip.Prefix
	hops     int
	headers  map[string]bool       // canonical
	strategy realclientip.Strategy // nil: nobody is trusted
	fallback prometheus.Counter
}

// New returns the trust that the options describe. Doors with the same Registerer share the metric.
func New(o Options) *Trust {
	t := &Trust{proxies: o.TrustedProxies, hops: o.TrustedHops, headers: map[string]bool{}}
	for _, name := range o.TrustedHeaders {
		t.headers[plain(name)] = true
	}
	t.fallback = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "headgate_client_address_fallback_total",
		Help: "Requests of trusted proxies without a usable X-Forwarded-For entry; the address of the proxy counts as the client's.",
	})
	if o.Registerer != nil {
		err := o.Registerer.Register(t.fallback)
		if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			t.fallback = there.ExistingCollector.(prometheus.Counter) //nolint:errcheck // only this package makes it
		}
	}
	// The constructors fail only without a header name, or with a count below 1.
	switch {
	case t.hops > 0:
		t.strategy = realclientip.Must(realclientip.NewRightmostTrustedCountStrategy("X-Forwarded-For", t.hops))
	case len(t.proxies) > 0:
		ranges := make([]net.IPNet, len(t.proxies))
		for i, p := range t.proxies {
			ranges[i] = net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		}
		t.strategy = realclientip.Must(realclientip.NewRightmostTrustedRangeStrategy("X-Forwarded-For", ranges))
	}
	return t
}

// peer is the address at the other end of the connection; invalid on a Unix socket.
func peer(r *http.Request) netip.Addr {
	p, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap().WithZone("")
}

// Believes reports whether the request's peer is trusted.
func (t *Trust) Believes(r *http.Request) bool {
	if t.hops > 0 {
		return true
	}
	from := peer(r)
	for _, p := range t.proxies {
		if p.Contains(from) {
			return true
		}
	}
	return false
}

// Address of the client. Where the header has no usable entry it is the peer's: never an empty one.
func (t *Trust) Address(r *http.Request) netip.Addr {
	if !t.Believes(r) {
		return peer(r)
	}
	ip, err := netip.ParseAddr(t.strategy.ClientIP(r.Header, r.RemoteAddr))
	if err != nil {
		t.fallback.Inc()
		return peer(r)
	}
	return ip.Unmap().WithZone("")
}

// Strip takes out of the request of an untrusted peer what only a trusted one may say.
func (t *Trust) Strip(r *http.Request) {
	if t.Believes(r) {
		return
	}
	for name := range r.Header {
		if t.Reserves(name) {
			delete(r.Header, name)
		}
	}
}

// Reserves reports whether only a trusted peer may say a header of that name, or of one that a service may take for it.
func (t *Trust) Reserves(name string) bool {
	said := plain(name)
	return t.headers[said] || saysOfProxies(said)
}

// saysOfProxies reports whether a header is by convention set by proxies. X-Rewrite-Url, like X-Original-Url, stands for
// the target of the request in some frameworks.
func saysOfProxies(name string) bool {
	return name == "Forwarded" || name == "X-Real-Ip" || name == "X-Forwarded" || name == "X-Rewrite-Url" ||
		strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Original-")
}

// plain returns the canonical name with "-" for all that is neither letter nor digit: a service that reads headers as
// variables (CGI, WSGI, Rack) finds X-Plan, X_Plan and, in some, X.Plan in HTTP_X_PLAN.
func plain(name string) string {
	if !strings.ContainsFunc(name, odd) {
		return http.CanonicalHeaderKey(name)
	}
	return http.CanonicalHeaderKey(strings.Map(func(c rune) rune {
		if odd(c) {
			return '-'
		}
		return c
	}, name))
}

func odd(c rune) bool {
	return c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}
