// Package proxy is the sidecar's door for HTTP: a reverse proxy in front of one service, which forwards what the rules
// allow and answers what they refuse.
//
// What is matched is what is forwarded: the path is normalised once, for both, and headers that are for this hop alone,
// or that only a trusted proxy may set, are gone before the rules see them.
//
// Bodies are streamed both ways, of any size and at the same time; upgrades (WebSocket), server-sent events, trailers,
// HTTP/2 without TLS and gRPC pass. Inside an upgraded connection nothing is limited.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/answer"
	"github.com/headgate/headgate/enforce/forwarded"
	"github.com/headgate/headgate/rules"
)

// Decider decides requests; [enforce.Engine] is one.
type Decider interface {
	Decide(ctx context.Context, req *rules.Request) enforce.Decision
	Malformed(domain, detail string) enforce.Decision
}

// Options say what the proxy stands before.
type Options struct {
	Domain string
	// Upstream is http:// or https://. gRPC calls reach the former by HTTP/2 without TLS, all others by HTTP/1.1; h2c://
	// sends everything by HTTP/2.
	Upstream *url.URL
	// UpstreamTimeout is how long the service may take to begin its answer; 0 for as long as it likes.
	UpstreamTimeout time.Duration
	TrustedProxies  []netip.Prefix // whose X-Forwarded-* are believed
	// TrustedHops above 0 believes every peer, and takes the client from that many entries from the right: for a fixed
	// chain of proxies whose addresses are not known.
	TrustedHops int
	// TrustedHeaders are believed only from trusted proxies, and taken out of what others send.
	TrustedHeaders []string
	// Around is put around the handling of each request, once what its peer may not say is taken out of it; nil for nothing.
	Around     func(http.Handler) http.Handler
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Proxy is the handler. It is safe for concurrent use.
type Proxy struct {
	decider  Decider
	domain   string
	host     string // of the service
	trust    *forwarded.Trust
	upstream *upstream
	handler  http.Handler       // of a request that is stripped
	broken   prometheus.Counter // bodies

	upgraded    sync.WaitGroup // connections that the server does not know any more
	ending      context.Context
	endUpgraded context.CancelFunc
}

// New returns the handler. [NewServer] serves it.
func New(decider Decider, o Options) *Proxy {
	p := &Proxy{decider: decider, domain: o.Domain, host: o.Upstream.Host, trust: forwarded.New(forwarded.Options{
		TrustedProxies: o.TrustedProxies, TrustedHops: o.TrustedHops, TrustedHeaders: o.TrustedHeaders, Registerer: o.Registerer,
	})}
	p.ending, p.endUpgraded = context.WithCancel(context.Background())
	p.upstream = newUpstream(o, p.trust)
	p.upstream.ErrorHandler = p.fail
	p.broken = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "headgate_broken_bodies_total",
		Help: "Requests that were allowed and whose caller broke the body off, or did not encode it as its headers say: 400.",
	})
	if o.Registerer != nil {
		o.Registerer.MustRegister(p.broken)
	}
	p.handler = http.HandlerFunc(p.handle)
	if o.Around != nil {
		p.handler = o.Around(p.handler)
	}
	return p
}

// ServeHTTP decides the request, and forwards or answers it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.trust.Strip(r)
	p.stripHop(r)
	p.handler.ServeHTTP(w, r)
}

func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
	d := p.decide(r)
	if !d.Allowed {
		refuse(w, r, &d)
		return
	}
	p.forward(w, r, &d)
}

func refuse(w http.ResponseWriter, r *http.Request, d *enforce.Decision) {
	if answer.IsGRPC(r) {
		answer.RefuseGRPC(w, d)
		return
	}
	answer.Refuse(w, d)
}

func (p *Proxy) decide(r *http.Request) enforce.Decision {
	if r.Host == "" { // as HTTP/1.0 allows; the service is sent its own
		r.Host = p.host
	}
	path, problem := target(r)
	if problem != "" {
		return p.decider.Malformed(p.domain, problem)
	}
	if decoded, err := url.PathUnescape(path); err == nil {
		r.URL.Path, r.URL.RawPath = decoded, path
	}
	return p.decider.Decide(r.Context(), &rules.Request{
		Domain: p.domain, Method: r.Method, Host: rules.NormalizeHost(r.Host), Path: path, RawQuery: r.URL.RawQuery,
		IP: p.trust.Address(r), Header: r.Header, Hits: 1,
	})
}

// forward hands the request on. The decision goes with it, for the headers of the answer.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, d *enforce.Decision) {
	ctx, s := r.Context(), &sent{decision: d}
	if r.Header.Get("Upgrade") != "" {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(p.ending, end)() //nolint:contextcheck // the proxy's own end, beside the request's
		p.upgraded.Add(1)
		defer p.upgraded.Done()
	}
	// The service may answer while the caller still sends. HTTP/2 does so in any case, and has no such switch.
	_ = http.NewResponseController(w).EnableFullDuplex()
	p.upstream.ServeHTTP(w, s.with(ctx, r))
}

// fail answers a request that could not be forwarded. It was decided, and counted as that; what it spent is spent. A body
// that is at fault is counted by a metric of its own: a request has one decision.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	s, gone := sentOf(r), errors.Is(context.Cause(r.Context()), context.Canceled) // the caller, or the sidecar stops
	answer.Add(w.Header(), s.decision)
	if !s.body.isBroken(gone) {
		p.upstream.fail(w, err, gone)
		return
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // nobody knows where the next request begins
	}
	p.broken.Inc()
	refuse(w, r, &enforce.Decision{
		Reason: enforce.ReasonMalformed, Status: http.StatusBadRequest, Wait: enforce.Never,
		Detail: "The body ends early, or is not encoded as its headers say.",
	})
}

// target returns the normalised path, or what keeps the request from being matched and forwarded as one and the same.
func target(r *http.Request) (path, problem string) {
	if r.URL.Opaque != "" || !strings.HasPrefix(r.URL.EscapedPath(), "/") && r.URL.Path != "" {
		return "", "The target is not a path."
	}
	if problem := cmp.Or(rules.CheckMethod(r.Method), rules.CheckHost(r.Host), checkUpgrade(r.Header)); problem != "" {
		return "", problem
	}
	path, err := rules.NormalizePath(r.URL.EscapedPath())
	if err != nil {
		return "", "Bad target: " + err.Error() + "."
	}
	return path, ""
}

// checkUpgrade says why the protocol of an upgrade cannot be asked for: that is not the service's failure.
func checkUpgrade(h http.Header) (problem string) {
	if strings.ContainsFunc(h.Get("Upgrade"), func(c rune) bool { return c < ' ' || c > '~' }) {
		return "The protocol to upgrade to is not text."
	}
	return ""
}

// stripHop takes out the headers that Connection says are for this hop alone: the service does not get them, so rules must
// not see them. Not so what a trusted proxy says of its caller: some proxies hand a caller's Connection on, by which it
// would take back its own address. It leaves what an upgrade needs, but for one to HTTP/2: behind it the service would see
// requests that no rule has.
func (p *Proxy) stripHop(r *http.Request) {
	h := r.Header
	believed := p.trust.Believes(r)
	upgrades := false
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			switch name = http.CanonicalHeaderKey(strings.TrimSpace(name)); {
			case name == "Upgrade":
				upgrades = true
			case name == "Te", believed && p.trust.Reserves(name):
			default:
				delete(h, name)
			}
		}
	}
	delete(h, "Connection")
	if strings.Contains(strings.ToLower(h.Get("Upgrade")), "h2c") {
		delete(h, "Upgrade")
		delete(h, "Http2-Settings")
	}
	if upgrades && h.Get("Upgrade") != "" {
		h["Connection"] = []string{"Upgrade"}
	}
}
