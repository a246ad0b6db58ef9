package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/xds/subscribe"
)

// drainTime is how long requests under way may take to end on stop.
const drainTime = 10 * time.Second

// App is a sidecar.
type App struct {
	log       *slog.Logger
	client    *subscribe.Client
	stopping  atomic.Bool
	proxyAt   net.Listener
	opsAt     net.Listener
	proxyHTTP *http.Server
	opsHTTP   *http.Server
	release   []func() error // in the order of acquisition
}

// New puts a sidecar together and binds its listeners. It neither waits for Redis nor for the control plane.
func New(config Config, log *slog.Logger) (_ *App, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	a := &App{}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if err := a.listen(config); err != nil {
		return nil, err
	}
	if config.NodeID == "" {
		config.NodeID = a.defaultNodeID()
	}
	a.log = log.With("component", "sidecar", "node", config.NodeID)
	if len(config.Domains) > 1 {
		a.log.Warn("the proxy enforces the rules of the first domain only", "enforced", config.Domains[0], "held", config.Domains[1:])
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	limiter, err := a.openLimiter(config, registry)
	if err != nil {
		return nil, err
	}
	counts := meter.New(registry)
	engine := enforce.NewEngine(limiter, counts, log, enforce.WithLocal(memlimit.New()))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_store_up", Help: "1 while the store of counters answers; 0 while the failure modes of the rules decide.",
	}, func() float64 {
		if engine.StoreUp() {
			return 1
		}
		return 0
	}))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_freezes", Help: "Freezes in force: those of the control plane, and those made at this sidecar.",
	}, func() float64 { return float64(len(engine.Freezes())) }))
	glass := newBreakGlass(engine, breakGlassFile(config.LastGood), a.log)
	if err := a.subscribe(config, inForce{engine: engine, meter: counts}, glass, registry, log); err != nil {
		return nil, err
	}
	upstream, err := url.Parse(config.Upstream)
	if err != nil {
		return nil, fmt.Errorf("--upstream: %w", err)
	}
	trusted, err := config.trusted()
	if err != nil {
		return nil, fmt.Errorf("--trusted-proxy: %w", err)
	}
	door := proxy.New(engine, proxy.Options{
		Domain: config.Domains[0], Upstream: upstream, TrustedProxies: trusted, TrustedHops: config.TrustedHops,
		Log: log, Registerer: registry,
	})
	a.proxyHTTP = &http.Server{Handler: door, ReadHeaderTimeout: 10 * time.Second}
	operations := a.operations(registry)
	(&freezeDoor{glass: glass, domains: config.Domains}).register(operations)
	a.opsHTTP = &http.Server{Handler: operations, ReadHeaderTimeout: 10 * time.Second}
	return a, nil
}

func (a *App) openLimiter(config Config, reg prometheus.Registerer) (enforce.Limiter, error) {
	if config.Store == InMemory {
		return memlimit.New(), nil
	}
	options, err := redislimit.ParseURL(config.Store)
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	options.Budget = config.StoreBudget
	limiter := redislimit.New(options)
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "headgate_stale_states_total",
		Help: "Counters dropped because they were more than one window ahead of Redis's clock: a failover to a server with an older one.",
	}, func() float64 { return float64(limiter.Stale()) }))
	a.release = append(a.release, limiter.Close)
	return limiter, nil
}

func (a *App) subscribe(config Config, sink subscribe.Sink, glass *breakGlass, reg prometheus.Registerer, log *slog.Logger) error {
	conn, err := dial(config, reg, log)
	if err != nil {
		return err
	}
	a.release = append(a.release, conn.Close)
	o := subscribe.Options{
		Conn: conn, Node: config.NodeID, Program: "headgate-sidecar", Version: programVersion(), Domains: config.Domains,
		Sink: sink, BreakGlass: glass.Reports, Log: log, Registerer: reg,
	}
	if config.LastGood != "" {
		o.File = subscribe.NewFile(config.LastGood)
	}
	if a.client, err = subscribe.New(o); err != nil {
		return err
	}
	glass.changed = a.client.ReportBreakGlass
	return nil
}

// defaultNodeID tells the sidecars of one host apart by the port of their proxy.
func (a *App) defaultNodeID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	_, port, err := net.SplitHostPort(a.proxyAt.Addr().String())
	if err != nil {
		return host
	}
	return host + "-" + port
}

func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (a *App) listen(config Config) (err error) {
	if a.proxyAt, err = net.Listen("tcp", config.ProxyListen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	a.release = append(a.release, ignoreClosed(a.proxyAt.Close))
	if a.opsAt, err = net.Listen("tcp", config.OpsListen); err != nil {
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

// ProxyAddr is the address of the proxy.
func (a *App) ProxyAddr() net.Addr { return a.proxyAt.Addr() }

// OpsAddr is the address of the operations port.
func (a *App) OpsAddr() net.Addr { return a.opsAt.Addr() }

// operations serves metrics and probes. Readiness depends on having rules, never on Redis or the control plane: where
// the sidecar's readiness is its pod's, an outage of either must not take every service down.
func (a *App) operations(gatherer prometheus.Gatherer) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	ready := func(w http.ResponseWriter, stopping bool) {
		switch {
		case stopping:
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		case !a.client.Ready():
			http.Error(w, "no rules yet: neither from the control plane nor from the last good file", http.StatusServiceUnavailable)
		}
	}
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /startupz", func(w http.ResponseWriter, _ *http.Request) { ready(w, false) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { ready(w, a.stopping.Load()) })
	return mux
}

// Run serves until ctx ends or a server fails. The last good rules are in force before the first request is answered.
func (a *App) Run(ctx context.Context) error {
	a.client.Restore()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return a.client.Run(running) })
	group.Go(func() error { return serve(a.proxyHTTP, a.proxyAt) })
	group.Go(func() error { return serve(a.opsHTTP, a.opsAt) })
	group.Go(func() error {
		<-running.Done()
		return a.drain(context.WithoutCancel(ctx))
	})
	a.log.Info("sidecar started", "proxy", a.ProxyAddr(), "operations", a.OpsAddr())
	err := group.Wait()
	a.log.Info("sidecar stopped")
	return errors.Join(err, a.Close())
}

func serve(s *http.Server, l net.Listener) error {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// drain reports not ready, lets requests under way end, and then ends those that have not.
func (a *App) drain(ctx context.Context) error {
	a.stopping.Store(true)
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	if err := a.proxyHTTP.Shutdown(ctx); err != nil {
		a.log.Warn("requests were cut off", "err", err)
		_ = a.proxyHTTP.Close()
	}
	return a.opsHTTP.Close()
}

// Close releases what New acquired, the last first. Run does it at its end; only an App that never ran needs it.
func (a *App) Close() error {
	var errs []error
	for i := len(a.release) - 1; i >= 0; i-- {
		errs = append(errs, a.release[i]())
	}
	a.release = nil
	return errors.Join(errs...)
}
