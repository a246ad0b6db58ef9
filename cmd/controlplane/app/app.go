package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/cmd/internal/traces"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/storage"
	"github.com/headgate/headgate/storage/postgres"
	"github.com/headgate/headgate/storage/sqlite"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/notify"
	"github.com/headgate/headgate/web/ui"
	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/push"
	"github.com/headgate/headgate/xds/report"
)

// drainTime is how long calls under way may take to end on stop. xDS streams never end by themselves.
const drainTime = 5 * time.Second

// pageTime is how long pages and forms under way may take to end after that: none takes longer.
const pageTime = 2 * time.Second

// App is a control plane.
type App struct {
	config   Config
	log      *slog.Logger
	certs    *certs.Server // nil: no TLS
	store    storage.Store
	cache    *push.Cache
	fleet    *push.Fleet
	reports  *report.Server
	plans    *rollout.Runner
	watcher  *alert.Watcher
	notifier *notify.Notifier
	traces   *traces.Provider // nil: none
	admin    *api.Server
	grpc     *grpc.Server
	grpcAt   net.Listener
	http     *http.Server
	pages    *ui.UI
	httpAt   net.Listener
	streams  context.Context // of xDS and reports; ended before the gRPC server
	end      context.CancelFunc
	stopping atomic.Bool
	metrics  *prometheus.Registry
	release  []func() error // in the order of acquisition
}

// New opens the database, bringing its schema up to date, and binds the listeners.
func New(ctx context.Context, config Config, log *slog.Logger) (_ *App, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	a := &App{config: config, log: log.With("component", "controlplane")}
	a.streams, a.end = context.WithCancel(context.Background())
	a.release = append(a.release, func() error { a.end(); return nil })
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	registry := prometheus.NewRegistry()
	a.metrics = registry
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := a.openTraces(ctx, log); err != nil {
		return nil, err
	}
	// Ports and certificates first: a program that cannot have them leaves no new database behind.
	if err := a.listen(); err != nil {
		return nil, err
	}
	if err := a.openCertificates(registry, log); err != nil {
		return nil, err
	}
	if a.store, err = OpenStore(ctx, config, log); err != nil {
		return nil, err
	}
	a.release = append(a.release, a.store.Close)
	service := rollout.NewService(a.store, time.Now).WithTallies(a.store)
	a.plans = rollout.NewRunner(service, log)
	if err := a.openAlerts(registry, log); err != nil {
		return nil, err
	}
	door, err := a.door(service, registry, log)
	if err != nil {
		return nil, err
	}
	a.admin = api.NewServer(service, api.Options{Program: Version(), Tallies: a.store, Alerts: a.store, Notifier: a.notifier})
	if err := a.serveHTTP(door, registry, log); err != nil {
		return nil, err
	}
	//nolint:contextcheck // its interceptors take each call's context
	if err := a.serveGRPC(door, service, registry, log); err != nil {
		return nil, err
	}
	return a, nil
}

// OpenStore opens the database of the settings, bringing its schema up to date.
func OpenStore(ctx context.Context, config Config, log *slog.Logger) (store storage.Store, err error) {
	if config.IsPostgres() {
		store, err = postgres.Open(ctx, config.Database, postgres.Options{NoListen: config.NoListen, Log: log})
	} else {
		if _, err := os.Stat(config.Database); errors.Is(err, fs.ErrNotExist) {
			log.Info("the database file does not exist: a new one, without rules", "database", config.Database)
		}
		store, err = sqlite.Open(ctx, config.Database)
	}
	if err != nil {
		return nil, fmt.Errorf("--database-url: %w", err)
	}
	return store, nil
}

func (a *App) listen() (err error) {
	if a.grpcAt, err = net.Listen("tcp", a.config.GRPCListen); err != nil {
		return fmt.Errorf("--grpc-listen: %w", err)
	}
	a.release = append(a.release, ignoreClosed(a.grpcAt.Close))
	if a.httpAt, err = net.Listen("tcp", a.config.HTTPListen); err != nil {
		return fmt.Errorf("--http-listen: %w", err)
	}
	a.release = append(a.release, ignoreClosed(a.httpAt.Close))
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

// GRPCAddr is the address of the gRPC port.
func (a *App) GRPCAddr() net.Addr { return a.grpcAt.Addr() }

// HTTPAddr is the address of the HTTP port.
func (a *App) HTTPAddr() net.Addr { return a.httpAt.Addr() }

// Metrics are what /metrics serves.
func (a *App) Metrics() *prometheus.Registry { return a.metrics }

// Pushed is the revision that sidecars are sent; 0 before the database has been read.
func (a *App) Pushed() int64 {
	_, revision, _ := a.cache.Head()
	return revision
}

// Run serves until ctx ends or a part fails.
func (a *App) Run(ctx context.Context) error {
	// Two parts outlive the servers: the fleet writes the nodes as disconnected once their streams have ended, and what was
	// reported is stored.
	afterServers, stopWriters := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriters()
	var writers errgroup.Group
	writers.Go(func() error { return a.fleet.Run(afterServers) })
	writers.Go(func() error { return a.reports.Run(afterServers) })

	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return a.cache.Run(running, a.store, a.config.Poll) })
	group.Go(func() error {
		// A stop that comes before this makes it say so.
		if err := a.grpc.Serve(a.grpcAt); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve %s: %w", a.GRPCAddr(), err)
		}
		return nil
	})
	group.Go(func() error {
		serve := a.http.Serve
		if a.certs != nil {
			serve = func(l net.Listener) error { return a.http.ServeTLS(l, "", "") }
		}
		if err := serve(a.httpAt); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", a.HTTPAddr(), err)
		}
		return nil
	})
	group.Go(func() error { return a.lead(running) })
	group.Go(func() error {
		<-running.Done()
		return a.drain(context.WithoutCancel(running))
	})
	a.log.Info("control plane started", "grpc", a.GRPCAddr(), "http", a.HTTPAddr(), "database", a.config.databaseName(),
		"auth", a.config.Auth, "tls", a.certs != nil)
	err := group.Wait()
	stopWriters()
	err = errors.Join(err, writers.Wait())
	a.log.Info("control plane stopped")
	return errors.Join(err, a.Close())
}

// lead does what one control plane of all on the database does, whenever that is this one, until ctx ends.
func (a *App) lead(ctx context.Context) error {
	err := a.store.Lead(ctx, func(ctx context.Context) error {
		group, leading := errgroup.WithContext(ctx)
		for _, run := range []func(context.Context) error{a.plans.Run, a.watcher.Run, a.notifier.Run, a.prune} {
			group.Go(func() error { return run(leading) })
		}
		return group.Wait()
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("lead: %w", err)
	}
	return nil
}

// drain reports not ready, ends the streams of sidecars and browsers, lets calls and pages under way end, and then ends those
// that have not.
func (a *App) drain(ctx context.Context) error {
	a.stopping.Store(true)
	a.end()
	a.pages.Stop()
	cut := time.AfterFunc(drainTime, a.grpc.Stop)
	defer cut.Stop()
	a.grpc.GracefulStop()
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	if a.http.Shutdown(ctx) != nil {
		return a.http.Close()
	}
	return nil
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
