package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/check"
	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/enforce/rls"
	"github.com/headgate/headgate/xds/rpcstatus"
)

// drainTime is how long requests under way may take to end on stop.
const drainTime = 10 * time.Second

// maxOpsHeader bounds what a call of the operations port may say: a gateway's check repeats the headers of its caller.
const maxOpsHeader = 64 << 10

// doors are where requests come in. The proxy and the rate limit service can be off: nil.
type doors struct {
	proxy   *proxy.Server
	proxyAt net.Listener
	rls     *rls.Door
	rlsAt   net.Listener
	ops     *http.Server
	opsAt   net.Listener
}

func (a *App) listen(ctx context.Context, config Config) (err error) {
	var tcp net.ListenConfig
	if config.ProxyListen != Off {
		if a.proxyAt, err = tcp.Listen(ctx, "tcp", config.ProxyListen); err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		a.release = append(a.release, ignoreClosed(a.proxyAt.Close))
	}
	if config.RLSListen != Off {
		if a.rlsAt, err = rls.Listen(ctx, config.RLSListen); err != nil {
			return fmt.Errorf("--rls-listen: %w", err)
		}
		a.release = append(a.release, ignoreClosed(a.rlsAt.Close))
	}
	if a.opsAt, err = tcp.Listen(ctx, "tcp", config.OpsListen); err != nil {
		return fmt.Errorf("--ops-listen: %w", err)
	}
	a.release = append(a.release, ignoreClosed(a.opsAt.Close))
	return nil
}

// ignoreClosed is for listeners that a server has closed before.
func ignoreClosed(closeIt func() error) func() error {
	return func() error {
		if err := closeIt(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

func (a *App) openDoors(config Config, engine *enforce.Engine, glass *breakGlass, reg *prometheus.Registry, log *slog.Logger) error {
	trusted, err := config.trusted()
	if err != nil {
		return fmt.Errorf("--trusted-proxy: %w", err)
	}
	decisions := a.spans.decisions(engine)
	if a.proxyAt != nil {
		upstream, err := url.Parse(config.Upstream)
		if err != nil {
			return fmt.Errorf("--upstream: %w", err)
		}
		a.proxy = proxy.NewServer(proxy.New(decisions, proxy.Options{
			Domain: config.Domains[0], Upstream: upstream, UpstreamTimeout: config.UpstreamTimeout,
			TrustedProxies: trusted, TrustedHops: config.TrustedHops, TrustedHeaders: config.TrustedHeaders,
			Around: a.spans.requests,
			Log:    log, Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"door": "proxy"}, reg),
		}))
	}
	if a.rlsAt != nil {
		refused := rpcstatus.NewRefused()
		reg.MustRegister(refused)
		a.rls = rls.New(decisions, rpcstatus.UnaryServer(log, refused), reg, a.spans.calls()...)
	}
	mux := a.operations(reg)
	(&freezeDoor{glass: glass, domains: config.Domains}).register(mux)
	(&inspectDoor{engine: engine, domains: config.Domains}).register(mux)
	mux.Handle("/check", a.spans.requests(check.New(decisions, check.Options{
		Domains: config.Domains, TrustedProxies: trusted, TrustedHops: config.TrustedHops,
		Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"door": "check"}, reg),
	})))
	a.ops = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxOpsHeader}
	return nil
}

// ready returns what is called when a domain's set is in force: with all of them, the rate limit service's health says
// that it serves.
func (a *App) ready(domains int) func(domain string) {
	in := map[string]bool{}
	return func(domain string) {
		in[domain] = true
		if a.rls != nil && len(in) == domains {
			a.rls.SetServing(true)
		}
	}
}

// ProxyAddr is the address of the proxy; nil where there is none.
func (a *App) ProxyAddr() net.Addr {
	if a.proxyAt == nil {
		return nil
	}
	return a.proxyAt.Addr()
}

// OpsAddr is the address of the operations port.
func (a *App) OpsAddr() net.Addr { return a.opsAt.Addr() }

// address is for the log.
func address(l net.Listener) string {
	if l == nil {
		return Off
	}
	return l.Addr().String()
}

// profile serves Go's profiles to this machine alone: a heap holds the secrets of domains, and keys of callers.
func profile(w http.ResponseWriter, r *http.Request) {
	switch {
	case !fromHere(r) || !namedByAddress(r):
		http.Error(w, "profiles are for this machine only", http.StatusForbidden)
	case r.URL.Path == "/debug/pprof/profile":
		pprof.Profile(w, r)
	case r.URL.Path == "/debug/pprof/trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r) // the others by name
	}
}

// lost says why there is no stream to the control plane; "" where there is one.
func (a *App) lost() string {
	err := a.client.Trouble()
	if err == nil {
		return ""
	}
	text := err.Error()
	if _, dialed, found := strings.Cut(text, "Error while dialing: "); found { // in gRPC's words, which come before it
		text = strings.TrimSuffix(dialed, `"`)
	}
	return fmt.Sprintf("no stream to the control plane at %s: %s", a.controlPlane, text)
}

// operations serves metrics and probes. Readiness depends on having rules, never on Redis or the control plane: where
// the sidecar's readiness is its pod's, an outage of either must not take every service down. An outage is said all the same.
func (a *App) operations(gatherer prometheus.Gatherer) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	ready := func(w http.ResponseWriter, stopping bool) {
		lost := a.lost()
		switch {
		case stopping:
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		case !a.client.Ready():
			http.Error(w, "no rules yet: "+cmp.Or(lost, "neither from the control plane nor from the last good file"), http.StatusServiceUnavailable)
		case lost != "":
			_, _ = io.WriteString(w, "the last rules stay in force: "+lost+"\n")
		}
	}
	mux.HandleFunc("/debug/pprof/", profile)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /startupz", func(w http.ResponseWriter, _ *http.Request) { ready(w, false) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { ready(w, a.stopping.Load()) })
	return mux
}

// serve has the group serve every door.
func (d *doors) serve(group *errgroup.Group) {
	unlessClosed := func(err error, l net.Listener) error {
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	if d.proxy != nil {
		group.Go(func() error { return unlessClosed(d.proxy.Serve(d.proxyAt), d.proxyAt) })
	}
	if d.rls != nil {
		group.Go(func() error { return d.rls.Serve(d.rlsAt) })
	}
	group.Go(func() error { return unlessClosed(d.ops.Serve(d.opsAt), d.opsAt) })
}

// drain lets requests under way end, and then ends those that have not. The operations port closes last: until then it
// tells that the sidecar is not ready.
func (d *doors) drain(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	var closing errgroup.Group
	if d.proxy != nil {
		closing.Go(func() error { return d.proxy.Shutdown(ctx) })
	}
	if d.rls != nil {
		closing.Go(func() error { return d.rls.Shutdown(ctx) })
	}
	if err := closing.Wait(); err != nil {
		log.Warn("requests were cut off", "err", err)
	}
	return d.ops.Close()
}
