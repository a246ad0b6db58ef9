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
	"strings"

	"github.com/prometheus/client_golang/prometheus"

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
	// TrustedHops above 0 believes every peer, and takes the client from that many entries from the right: for a fixed
	// chain of proxies whose addresses are not known.
	TrustedHops int
	Log         *slog.Logger
	Registerer  prometheus.Registerer // nil: no metrics
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
	p := &Proxy{decider: decider, domain: o.Domain, clients: newClients(o)}
	p.forward = &httputil.ReverseProxy{
		Transport: newTransport(),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(o.Upstream)
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as sent: what a service reads of it is not ours to correct
			r.Out.Host = r.In.Host
			p.clients.forward(r)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the caller has gone
			}
			log.Warn("upstream failed", "err", err)
			http.Error(w, "the service behind this proxy does not answer", http.StatusBadGateway)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p
}

// newTransport connects to the one service behind: directly, keeping as many idle connections as a busy service needs, and
// handing bodies on as they are.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is one
	t.Proxy = nil
	t.DisableCompression = true
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 512
	return t
}

// ServeHTTP decides the request, and forwards or answers it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, problem := target(r)
	if problem != "" {
		http.Error(w, "bad request: "+problem, http.StatusBadRequest)
		return
	}
	d := p.decider.Decide(r.Context(), &rules.Request{
		Domain: p.domain, Method: r.Method, Host: rules.NormalizeHost(r.Host), Path: path, RawQuery: r.URL.RawQuery,
		IP: p.clients.address(r), Header: r.Header, Hits: 1,
	})
	if !d.Allowed {
		refuse(w, &d)
		return
	}
	if decoded, err := url.PathUnescape(path); err == nil {
		r.URL.Path, r.URL.RawPath = decoded, path
	}
	if strings.Contains(strings.ToLower(r.Header.Get("Upgrade")), "h2c") {
		// Behind the upgrade the service would see requests that no rule has.
		r.Header.Del("Upgrade")
		r.Header.Del("Http2-Settings")
	}
	p.forward.ServeHTTP(w, r)
}

// target returns the normalised path, or what keeps the request from being matched and forwarded as one and the same: a
// target that is no path, or a method that a service may read in another case.
func target(r *http.Request) (path, problem string) {
	switch {
	case r.Method == http.MethodConnect || r.URL.Opaque != "" || !strings.HasPrefix(r.URL.EscapedPath(), "/") && r.URL.Path != "":
		return "", "the target is not a path"
	case r.Method != strings.ToUpper(r.Method):
		return "", "the method is not in upper case"
	}
	path, err := rules.NormalizePath(r.URL.EscapedPath())
	if err != nil {
		return "", err.Error()
	}
	return path, ""
}
