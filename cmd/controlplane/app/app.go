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
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
	"github.com/headgate/headgate/storage/postgres"
	"github.com/headgate/headgate/storage/sqlite"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/push"
	"github.com/headgate/headgate/xds/rpcstatus"
)

// drainTime is how long calls under way may take to end on stop. xDS streams never end by themselves.
const drainTime = 5 * time.Second

// App is a control plane.
type App struct {
	config   Config
	log      *slog.Logger
	store    storage.Store
	cache    *push.Cache
	fleet    *push.Fleet
	grpc     *grpc.Server
	grpcAt   net.Listener
	http     *http.Server
	httpAt   net.Listener
	streams  context.Context // of xDS; ended before the gRPC server
	end      context.CancelFunc
	stopping atomic.Bool
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
	// The ports first: a program that cannot have them leaves no new database behind.
	if err := a.listen(); err != nil {
		return nil, err
	}
	if err := a.open(ctx, log); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.http = &http.Server{Handler: a.operations(registry), ReadHeaderTimeout: 10 * time.Second}
	a.grpc = a.serveGRPC(log) //nolint:contextcheck // its interceptors take each call's context
	return a, nil
}

func (a *App) open(ctx context.Context, log *slog.Logger) (err error) {
	if a.config.isPostgres() {
		a.store, err = postgres.Open(ctx, a.config.Database, postgres.Options{NoListen: a.config.NoListen, Log: log})
	} else {
		if _, err := os.Stat(a.config.Database); errors.Is(err, fs.ErrNotExist) {
			a.log.Info("the database file does not exist: a new one, without rules", "database", a.config.Database)
		}
		a.store, err = sqlite.Open(ctx, a.config.Database)
	}
	if err != nil {
		return fmt.Errorf("--database-url: %w", err)
	}
	a.release = append(a.release, a.store.Close)
	return nil
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

// serveGRPC registers the admin API, the stream, health and reflection.
func (a *App) serveGRPC(log *slog.Logger) *grpc.Server {
	a.cache = push.NewCache(push.CacheOptions{Log: log})
	a.fleet = push.NewFleet(a.store, a.cache, log)
	s := grpc.NewServer(append(push.ServerOptions(),
		grpc.MaxRecvMsgSize(api.MaxRequestBytes),
		grpc.ChainUnaryInterceptor(rpcstatus.UnaryServer(log)),
		grpc.ChainStreamInterceptor(rpcstatus.StreamServer(log)),
	)...)
	push.Register(a.streams, s, a.cache, a.fleet)
	adminpb.RegisterAdminServiceServer(s, api.NewServer(rollout.NewService(a.store, a.store, time.Now)))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	return s
}

// operations serves metrics and probes. It is ready once the database has been read.
func (a *App) operations(gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch _, _, loaded := a.cache.Head(); {
		case a.stopping.Load():
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		case !loaded:
			http.Error(w, "the database has not been read yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// GRPCAddr is the address of the gRPC port.
func (a *App) GRPCAddr() net.Addr { return a.grpcAt.Addr() }

// HTTPAddr is the address of the HTTP port.
func (a *App) HTTPAddr() net.Addr { return a.httpAt.Addr() }

// Run serves until ctx ends or a part fails.
func (a *App) Run(ctx context.Context) error {
	// The fleet outlives the servers: it writes the nodes as disconnected once their streams have ended.
	afterServers, stopFleet := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFleet()
	saved := make(chan error, 1)
	go func() { saved <- a.fleet.Run(afterServers) }()

	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return a.cache.Run(running, a.store, a.config.Poll) })
	group.Go(func() error {
		if err := a.grpc.Serve(a.grpcAt); err != nil {
			return fmt.Errorf("serve %s: %w", a.GRPCAddr(), err)
		}
		return nil
	})
	group.Go(func() error {
		if err := a.http.Serve(a.httpAt); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", a.HTTPAddr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-running.Done()
		return a.drain()
	})
	a.log.Info("control plane started", "grpc", a.GRPCAddr(), "http", a.HTTPAddr(), "database", a.config.databaseName())
	err := group.Wait()
	stopFleet()
	err = errors.Join(err, <-saved)
	a.log.Info("control plane stopped")
	return errors.Join(err, a.Close())
}

// drain reports not ready, ends the xDS streams, lets calls under way end, and then ends those that have not.
func (a *App) drain() error {
	a.stopping.Store(true)
	a.end()
	cut := time.AfterFunc(drainTime, a.grpc.Stop)
	defer cut.Stop()
	a.grpc.GracefulStop()
	return a.http.Close()
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
