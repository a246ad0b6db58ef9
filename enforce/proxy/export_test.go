package proxy

import "net/http"

// SetTransport replaces the way to the service.
func (p *Proxy) SetTransport(t http.RoundTripper) { p.upstream.Transport = t }
