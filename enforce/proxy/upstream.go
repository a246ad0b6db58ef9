package proxy

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/enforce/answer"
	"github.com/headgate/headgate/enforce/forwarded"
)

// upstream is the service behind the proxy.
type upstream struct {
	httputil.ReverseProxy
	via    transport
	log    *slog.Logger
	failed *prometheus.CounterVec // by status
	told   atomic.Int64           // when a failure was logged, in nanoseconds
}

func newUpstream(o Options, trust *forwarded.Trust) *upstream {
	u := &upstream{log: o.Log.With("component", "proxy"), failed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_upstream_errors_total",
		Help: "Requests that were allowed and that the service behind the proxy did not answer: 502, or 504 where it took too long.",
	}, []string{"status"})}
	for _, status := range []int{http.StatusBadGateway, http.StatusGatewayTimeout} {
		u.failed.WithLabelValues(strconv.Itoa(status))
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(u.failed)
	}
	target := *o.Upstream
	u.via = newTransport(target.Scheme, o.UpstreamTimeout)
	u.Transport = u.via
	if target.Scheme == "h2c" {
		target.Scheme = "http"
	}
	u.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(&target)
		r.Out.URL.RawQuery = r.In.URL.RawQuery // as sent: what a service reads of it is not ours to correct
		r.Out.Host = r.In.Host
		setTrailer(r, trust)
		setForwarded(r, trust)
	}
	u.ModifyResponse = func(resp *http.Response) error {
		answer.Add(resp.Header, sentOf(resp.Request).decision)
		return nil
	}
	u.ErrorLog = slog.NewLogLogger(u.log.Handler(), slog.LevelDebug)
	return u
}

// setForwarded tells the service where the request came from. What trusted proxies said of that is kept, and added to;
// what others say is dropped.
func setForwarded(r *httputil.ProxyRequest, trust *forwarded.Trust) {
	if !trust.Believes(r.In) {
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

// setTrailer hands on the trailers that the caller announced, but for those that a header says: some services put both
// together, and would take what came behind the body for what a proxy said, and the rules saw, before it.
func setTrailer(r *httputil.ProxyRequest, trust *forwarded.Trust) {
	announced := map[string]bool{}
	for name := range r.In.Trailer {
		if httpguts.ValidTrailerHeader(name) && !trust.Reserves(name) {
			announced[name] = true
		}
	}
	r.Out.Trailer = nil
	if len(announced) == 0 {
		return
	}
	b := &trailed{ReadCloser: r.Out.Body, trailer: r.In.Trailer, announced: announced}
	b.strip()
	r.Out.Body, r.Out.Trailer = b, b.trailer // one map: its values come with the end of the body, and others with them
}

// trailed is a body with trailers.
type trailed struct {
	io.ReadCloser
	trailer   http.Header
	announced map[string]bool
}

func (b *trailed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.strip()
	}
	return n, err
}

func (b *trailed) strip() {
	maps.DeleteFunc(b.trailer, func(name string, _ []string) bool { return !b.announced[name] })
}

// connectTimeout bounds how long a service that is not there keeps callers waiting.
const connectTimeout = 5 * time.Second

// transport chooses by which protocol a request reaches the service.
type transport struct {
	usual, grpc *http.Transport
}

// newTransport connects to the one service behind: directly, keeping as many idle connections as a busy service needs, and
// handing bodies on as they are.
func newTransport(scheme string, timeout time.Duration) transport {
	usual := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is one
	usual.Proxy = nil
	usual.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	usual.DisableCompression = true
	usual.MaxIdleConns, usual.MaxIdleConnsPerHost = 0, 512
	usual.ResponseHeaderTimeout = timeout
	if scheme == "https" {
		return transport{usual, usual} // the handshake agrees on the protocol
	}
	http2 := usual.Clone()
	http2.Protocols = new(http.Protocols)
	http2.Protocols.SetUnencryptedHTTP2(true)
	if scheme == "h2c" {
		return transport{http2, http2}
	}
	return transport{usual, http2}
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if answer.IsGRPC(r) {
		return t.grpc.RoundTrip(r)
	}
	return t.usual.RoundTrip(r)
}

func (t transport) closeIdle() {
	t.usual.CloseIdleConnections()
	t.grpc.CloseIdleConnections()
}

// tellEvery bounds how often failures are logged. All are counted.
const tellEvery = 10 * time.Second

// fail answers for a service that does not. Where its caller has gone, that says nothing of the service.
func (u *upstream) fail(w http.ResponseWriter, err error, gone bool) {
	status, text := http.StatusBadGateway, "The service behind this proxy does not answer."
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		status, text = http.StatusGatewayTimeout, "The service behind this proxy takes too long to answer."
	}
	answer.Fail(w, status, text)
	if gone {
		return
	}
	u.failed.WithLabelValues(strconv.Itoa(status)).Inc()
	if now, told := time.Now().UnixNano(), u.told.Load(); now-told >= int64(tellEvery) && u.told.CompareAndSwap(told, now) {
		u.log.Warn("the service behind the proxy does not answer", "status", status, "err", err)
	}
}
