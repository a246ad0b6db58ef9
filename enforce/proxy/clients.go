package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/realclientip/realclientip-go"
)

// clients tells who sent a request: over the trusted proxies, from the right of X-Forwarded-For, the first address that
// is none of theirs; or, with a number of hops, that many entries from the right. What an untrusted peer writes there
// changes nothing.
type clients struct {
	trusted  []netip.Prefix
	hops     int
	strategy realclientip.Strategy // nil: nobody is trusted
	fallback prometheus.Counter
}

func newClients(o Options) clients {
	c := clients{trusted: o.TrustedProxies, hops: o.TrustedHops, fallback: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "headgate_client_address_fallback_total",
		Help: "Requests of trusted proxies without a usable X-Forwarded-For entry; the address of the proxy counts as the client's.",
	})}
	if o.Registerer != nil {
		o.Registerer.MustRegister(c.fallback)
	}
	// The constructors fail only without a header name, or with a count below 1.
	switch {
	case c.hops > 0:
		c.strategy = realclientip.Must(realclientip.NewRightmostTrustedCountStrategy("X-Forwarded-For", c.hops))
	case len(c.trusted) > 0:
		ranges := make([]net.IPNet, len(c.trusted))
		for i, p := range c.trusted {
			ranges[i] = net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		}
		c.strategy = realclientip.Must(realclientip.NewRightmostTrustedRangeStrategy("X-Forwarded-For", ranges))
	}
	return c
}

// peer is the address at the other end of the connection; invalid on a Unix socket.
func peer(r *http.Request) netip.Addr {
	p, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap().WithZone("")
}

func (c *clients) trusts(r *http.Request) bool {
	if c.hops > 0 {
		return true
	}
	from := peer(r)
	for _, p := range c.trusted {
		if p.Contains(from) {
			return true
		}
	}
	return false
}

// address of the client. Where the header has no usable entry it is the peer's: never an empty one.
func (c *clients) address(r *http.Request) netip.Addr {
	if !c.trusts(r) {
		return peer(r)
	}
	ip, err := netip.ParseAddr(c.strategy.ClientIP(r.Header, r.RemoteAddr))
	if err != nil {
		c.fallback.Inc()
		return peer(r)
	}
	return ip.Unmap().WithZone("")
}

// forward tells the service where the request came from. What trusted proxies said of that is kept, and added to; what
// others say is dropped.
func (c *clients) forward(r *httputil.ProxyRequest) {
	if !c.trusts(r.In) {
		r.SetXForwarded()
		return
	}
	r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	r.SetXForwarded()
	for _, name := range []string{"X-Forwarded-Proto", "X-Forwarded-Host"} {
		if said := r.In.Header[name]; len(said) > 0 {
			r.Out.Header[name] = said
		}
	}
}
