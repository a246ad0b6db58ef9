package proxy

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/realclientip/realclientip-go"
)

// clients tells who sent a request: over the trusted proxies, from the right of X-Forwarded-For, the first address that
// is none of theirs. What an untrusted peer writes there changes nothing.
type clients struct {
	trusted  []netip.Prefix
	strategy realclientip.Strategy // nil: nobody is trusted
}

func newClients(trusted []netip.Prefix) clients {
	c := clients{trusted: trusted}
	if len(trusted) == 0 {
		return c
	}
	ranges := make([]net.IPNet, len(trusted))
	for i, p := range trusted {
		ranges[i] = net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	}
	// The constructor fails only without a header name.
	c.strategy = realclientip.Must(realclientip.NewRightmostTrustedRangeStrategy("X-Forwarded-For", ranges))
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
		return peer(r)
	}
	return ip.Unmap().WithZone("")
}
