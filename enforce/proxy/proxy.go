// Package proxy is the sidecar's door for HTTP: a reverse proxy in front of one service, which forwards what the rules
// allow and answers what they refuse.
//
// What is matched is what is forwarded: the path is normalised once, for both. Forwarded addresses are believed only
// from the proxies that are trusted.
package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// Decider decides requests; [enforce.Engine] is one.
type Decider interface {
	Decide(ctx context.Context, req *rules.Request) enforce.Decision
}

// Options say what the proxy stands before.
type Options struct {
	Domain         string
	Upstream       *url.URL
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed
	Log            *slog.Logger
}

// Proxy is the handler. It is safe for concurrent use.
type Proxy struct {
	decider Decider
	domain  string
	clients clients
	forward *httputil.ReverseProxy
}

// New returns the handler.
func New(decider Decider, o Options) *Proxy {
	log := o.Log.With("component", "proxy")
	p := &Proxy{decider: decider, domain: o.Domain, clients: newClients(o.TrustedProxies)}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(o.Upstream)
			r.Out.Host = r.In.Host
			if p.clients.trusts(r.In) {
				r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			}
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the caller has gone
			}
			log.Warn("upstream failed", "err", err)
			w.WriteHeader(http.StatusBadGateway)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p
}

// ServeHTTP decides the request, and forwards or answers it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, err := rules.NormalizePath(r.URL.EscapedPath())
	if err != nil {
		http.Error(w, "bad request: "+err.Error(), http.StatusBadRequest)
		return
	}
	d := p.decider.Decide(r.Context(), &rules.Request{
		Domain: p.domain, Method: r.Method, Path: path, IP: p.clients.address(r), Header: r.Header,
	})
	if !d.Allowed {
		refuse(w, &d)
		return
	}
	if decoded, err := url.PathUnescape(path); err == nil {
		r.URL.Path, r.URL.RawPath = decoded, path
	}
	p.forward.ServeHTTP(w, r)
}
