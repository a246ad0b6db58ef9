package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/cmd/internal/traces"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/xds/report"
	"github.com/headgate/headgate/xds/subscribe"
)

// App is a sidecar.
type App struct {
	log      *slog.Logger
	client   *subscribe.Client
	reports  *report.Client
	refusals *meter.RefusalLog // nil: none
	stopping atomic.Bool

	controlPlane string // its address
	doors
	spans   *spans // nil: none
	metrics *prometheus.Registry
	release []func() error // in the order of acquisition
}

// New puts a sidecar together and binds its listeners. It neither waits for Redis nor for the control plane.
func New(ctx context.Context, config Config, log *slog.Logger) (_ *App, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	a := &App{controlPlane: config.ControlPlane}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if err := a.listen(ctx, config); err != nil {
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
	a.metrics = registry
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := a.openTraces(ctx, config, log); err != nil {
		return nil, err
	}
	limiter, err := a.openLimiter(config, registry, log) //nolint:contextcheck // it outlives the start, and is closed
	if err != nil {
		return nil, err
	}
	counts := a.openMeter(config, registry)
	engine := enforce.NewEngine(limiter, counts, log, enforce.WithLocal(memlimit.NewBounded(memlimit.LocalCounters)))
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
	if err := a.openDoors(config, engine, glass, registry, log); err != nil {
		return nil, err
	}
	sink := inForce{engine: engine, meter: counts, ready: a.ready(len(config.Domains))}
	if err := a.follow(config, sink, glass, counts, registry, log); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *App) openTraces(ctx context.Context, config Config, log *slog.Logger) error {
	provider, err := traces.Open(ctx, log,
		semconv.ServiceName("headgate-sidecar"), semconv.ServiceVersion(Version()), semconv.ServiceInstanceID(config.NodeID))
	if err != nil || provider == nil {
		return err
	}
	a.release = append(a.release, provider.Close)
	a.spans = newSpans(provider)
	return nil
}

func (a *App) openMeter(config Config, reg prometheus.Registerer) *meter.Meter {
	if config.RefusalLogRate == 0 {
		return meter.New(reg)
	}
	a.refusals = meter.NewRefusalLog(meter.RefusalLogOptions{
		Log: a.log, Rate: config.RefusalLogRate, Would: config.RefusalLogWould, Registerer: reg,
	})
	return meter.New(reg, meter.WithRefusalLog(a.refusals))
}

func (a *App) openLimiter(config Config, reg prometheus.Registerer, log *slog.Logger) (enforce.Limiter, error) {
	if config.Store == InMemory {
		return memlimit.New(), nil
	}
	options, err := redislimit.ParseURL(config.Store)
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	options.Budget, options.Log, options.Registerer = config.StoreBudget, log, reg
	limiter := redislimit.New(options)
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "headgate_stale_states_total",
		Help: "Counters dropped because they were more than one window ahead of Redis's clock: a failover to a server with an older one.",
	}, func() float64 { return float64(limiter.Stale()) }))
	a.release = append(a.release, limiter.Close)
	return a.spans.store(limiter), nil
}

// follow prepares both streams to the control plane, on one connection: the rules, and what is counted of them.
func (a *App) follow(
	config Config, sink subscribe.Sink, glass *breakGlass, counts *meter.Meter, reg prometheus.Registerer, log *slog.Logger,
) error {
	conn, err := dial(config, reg, log)
	if err != nil {
		return err
	}
	a.release = append(a.release, conn.Close)
	o := subscribe.Options{
		Conn: conn, Node: config.NodeID, Program: "headgate-sidecar", Version: Version(), Domains: config.Domains,
		Sink: sink, BreakGlass: glass.Reports, Log: log, Registerer: reg,
	}
	if config.LastGood != "" {
		o.File = subscribe.NewFile(config.LastGood)
		if err := a.lock(o.File, config.LastGood); err != nil {
			return err
		}
	}
	if a.client, err = subscribe.New(o); err != nil {
		return err
	}
	glass.changed = a.client.ReportBreakGlass
	a.reports, err = report.NewClient(report.ClientOptions{
		Conn: conn, Node: config.NodeID, Domains: config.Domains, Counter: counts, Log: log, Registerer: reg,
	})
	return err
}

// lock takes the file of the last good rules for this sidecar alone. Where none can be made, nor can a lock: that the rules
// cannot be saved is told when they are, and holds nothing up.
func (a *App) lock(file *subscribe.File, path string) error {
	unlock, err := file.Lock()
	switch {
	case errors.Is(err, subscribe.ErrTaken):
		return fmt.Errorf("--last-good %s: %w: give each sidecar a file of its own", path, err)
	case err != nil:
		a.log.Warn("nothing keeps another sidecar from the file of the last good rules", "err", err)
		return nil
	}
	a.release = append(a.release, unlock)
	return nil
}

// defaultNodeID tells the sidecars of one host apart by the port of their proxy, or of their operations where there is none.
func (a *App) defaultNodeID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	at := a.opsAt
	if a.proxyAt != nil {
		at = a.proxyAt
	}
	_, port, err := net.SplitHostPort(at.Addr().String())
	if err != nil {
		return host
	}
	return host + "-" + port
}

// Version is that of the program.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// Metrics are what /metrics serves.
func (a *App) Metrics() *prometheus.Registry { return a.metrics }

// Run serves until ctx ends or a server fails. The last good rules are in force before the first request is answered.
func (a *App) Run(ctx context.Context) error {
	a.client.Restore()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return a.client.Run(running) })
	a.serve(group)
	drained, done := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer done()
		<-running.Done()
		a.stopping.Store(true)
		return a.drain(context.WithoutCancel(ctx), a.log)
	})
	group.Go(func() error { return a.reports.Run(drained) })
	if a.refusals != nil {
		group.Go(func() error { return a.refusals.Run(drained) })
	}
	a.log.Info("sidecar started", "proxy", address(a.proxyAt), "rls", address(a.rlsAt), "operations", address(a.opsAt))
	err := group.Wait()
	a.log.Info("sidecar stopped")
	return errors.Join(err, a.Close())
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
