package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"os/user"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/auth"
	"github.com/headgate/headgate/web/ui"
	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/push"
	"github.com/headgate/headgate/xds/report"
	"github.com/headgate/headgate/xds/rpcstatus"
)

// openCertificates reads the files for TLS, where there are any.
func (a *App) openCertificates(reg prometheus.Registerer, log *slog.Logger) (err error) {
	if a.config.TLSCert == "" {
		return nil
	}
	files := certs.Files{Cert: a.config.TLSCert, Key: a.config.TLSKey, CA: a.config.TLSClientCA}
	if a.certs, err = certs.NewServer(files, certs.Options{Log: log, Registerer: reg}); err != nil {
		return fmt.Errorf("--tls-cert, --tls-key, --tls-client-ca: %w", err)
	}
	return nil
}

// door returns what finds out who calls.
func (a *App) door(service *rollout.Service, reg prometheus.Registerer, log *slog.Logger) (*auth.Authenticator, error) {
	o := auth.Options{
		Refused: service.Refused, Log: log, Registerer: reg,
		TLS:   a.https(),
		Local: OperatingSystemUser(), AnyHost: a.config.Insecure,
	}
	if a.config.Auth == AuthToken {
		o.Store = a.store
	}
	return auth.New(o)
}

// https reports whether browsers reach the HTTP port by it: a proxy may speak it for us.
func (a *App) https() bool {
	return a.certs != nil || strings.HasPrefix(a.config.Alerts.ExternalURL, "https://")
}

// OperatingSystemUser is whose program this is. Where nobody is asked who they are, that is the best guess.
func OperatingSystemUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	return "unknown"
}

// serveGRPC registers the admin API, the streams of sidecars, health and reflection. Errors become statuses outermost, so that those
// of the door do too.
func (a *App) serveGRPC(door *auth.Authenticator, service *rollout.Service, reg prometheus.Registerer, log *slog.Logger) (err error) {
	a.cache = push.NewCache(push.CacheOptions{Log: log})
	a.fleet, err = push.NewFleet(a.store, a.cache, push.FleetOptions{
		Feed: a.store, BreakGlass: service.BreakGlass, Log: log, Registerer: reg,
	})
	if err != nil {
		return err
	}
	a.reports, err = report.NewServer(report.ServerOptions{Store: a.store, Fleet: a.fleet, Nodes: a.store, Log: log, Registerer: reg})
	if err != nil {
		return err
	}
	refused := rpcstatus.NewRefused()
	reg.MustRegister(refused)
	options := append(push.ServerOptions(),
		grpc.MaxRecvMsgSize(api.MaxRequestBytes),
		grpc.ChainUnaryInterceptor(rpcstatus.UnaryServer(log, refused), door.UnaryServer()),
		grpc.ChainStreamInterceptor(rpcstatus.StreamServer(log, refused), door.StreamServer()),
	)
	if a.certs != nil {
		options = append(options, grpc.Creds(a.certs.Credentials()))
	}
	if a.traces != nil {
		options = append(options, grpc.StatsHandler(calls(a.traces)))
	}
	a.grpc = grpc.NewServer(options...)
	push.Register(a.streams, a.grpc, a.cache, a.fleet)
	a.reports.Register(a.streams, a.grpc)
	adminpb.RegisterAdminServiceServer(a.grpc, a.admin)
	grpc_health_v1.RegisterHealthServer(a.grpc, health.NewServer())
	reflection.Register(a.grpc)
	return nil
}

// Version is that of the program.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// profile serves Go's profiles to admins: a heap holds the secrets of domains. Where nobody is asked who they are, the
// caller must name this port by an address, or as localhost: another name may be one that a foreign page has let point to
// here, so that a browser lets the page read the answer.
func profile(w http.ResponseWriter, r *http.Request) {
	who := access.From(r.Context())
	if err := who.May(access.Admin, ""); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if who.Local && !auth.NamedByAddress(r) {
		http.Error(w, "without authentication, profiles are read from an address or localhost, not from another name", http.StatusForbidden)
		return
	}
	switch r.URL.Path {
	case "/debug/pprof/profile":
		pprof.Profile(w, r)
	case "/debug/pprof/trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r) // the others by name
	}
}

// serveHTTP prepares the dashboard for people, and metrics, profiles and probes for machines. It is ready once the database
// has been read.
func (a *App) serveHTTP(door *auth.Authenticator, gatherer prometheus.Gatherer, log *slog.Logger) error {
	machines := http.NewServeMux()
	machines.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	machines.HandleFunc("/debug/pprof/", profile)
	machines.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	machines.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch _, _, loaded := a.cache.Head(); {
		case a.stopping.Load():
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		case !loaded:
			http.Error(w, "the database has not been read yet", http.StatusServiceUnavailable)
		}
	})
	mux := http.NewServeMux()
	for _, path := range []string{"/metrics", "/debug/pprof/", "/livez", "/readyz"} {
		mux.Handle(path, door.HTTP(machines))
	}
	var err error
	if a.pages, err = a.dashboard(door, log); err != nil {
		return err
	}
	mux.Handle("/", a.pages.Behind(door.Browser))
	// What takes longer to write, such as an export or the stream of a page, has deadlines of its own, and so has the body of
	// a form.
	a.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	if a.certs != nil {
		a.http.TLSConfig = a.certs.Config()
	}
	return nil
}

// dashboard is what people see in a browser.
func (a *App) dashboard(door *auth.Authenticator, log *slog.Logger) (*ui.UI, error) {
	o := ui.Options{API: door.InProcess(a.admin), TLS: a.https(), Log: log, Answers: answers}
	if a.config.Auth == AuthToken {
		o.Door = door
	}
	return ui.New(o)
}
