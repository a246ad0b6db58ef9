package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate/cmd/controlplane/app"
	sidecar "github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/rpcstatus"
)

//go:embed demo.yaml
var demoRules []byte

const demoDomain = "demo"

// devConfig are the settings of `controlplane dev`: everything on loopback, counters in the process.
type devConfig struct {
	controlPlane app.Config
	sidecar      sidecar.Config
	dataDir      string // "": a temporary one, removed at the end
	quiet        bool
	insecure     bool
}

func defaultDevConfig() devConfig {
	c := devConfig{controlPlane: app.DefaultConfig(), sidecar: sidecar.DefaultConfig()}
	c.sidecar.NodeID, c.sidecar.Domains, c.sidecar.Store = "dev", []string{demoDomain}, sidecar.InMemory
	return c
}

func devCommand() *cobra.Command {
	config := defaultDevConfig()
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run control plane, sidecar, a demo service and demo rules in one process",
		Long: "Dev runs the whole path in one process on loopback: a control plane on SQLite, a sidecar with counters in\n" +
			"memory, a service behind it, and the rules of the domain demo in shadow. Nothing needs to be installed.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runDev(c.Context(), config, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&config.controlPlane.GRPCListen, "grpc-listen", config.controlPlane.GRPCListen, "address of the gRPC port")
	f.StringVar(&config.controlPlane.HTTPListen, "http-listen", config.controlPlane.HTTPListen, "address of the control plane's HTTP port")
	f.StringVar(&config.sidecar.ProxyListen, "listen", config.sidecar.ProxyListen, "address of the sidecar's proxy")
	f.StringVar(&config.sidecar.RLSListen, "rls-listen", config.sidecar.RLSListen, "address of the sidecar's rate limit service for Envoy, or off")
	f.StringVar(&config.sidecar.OpsListen, "ops-listen", config.sidecar.OpsListen, "address of the sidecar's operations port")
	f.StringVar(&config.dataDir, "data-dir", "", "folder that keeps rules between runs; a temporary one by default")
	f.BoolVar(&config.quiet, "quiet", false, "log only warnings and errors")
	f.BoolVar(&config.insecure, "insecure", false, "listen on addresses that others reach, though nobody is asked who they are")
	return c
}

func runDev(ctx context.Context, config devConfig, stdout, stderr io.Writer) (err error) {
	level := slog.LevelInfo
	if config.quiet {
		level = slog.LevelWarn
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if config.dataDir == "" {
		if config.dataDir, err = os.MkdirTemp("", "headgate-dev-"); err != nil {
			return fmt.Errorf("make a folder for the database: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(config.dataDir)) }()
	}
	if err := os.MkdirAll(config.dataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	config.controlPlane.Insecure, config.sidecar.Insecure = config.insecure, config.insecure
	config.controlPlane.Database = filepath.Join(config.dataDir, "headgate.db")
	config.sidecar.LastGood = filepath.Join(config.dataDir, "last-good")

	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the demo service: %w", err)
	}
	service := &http.Server{Handler: http.HandlerFunc(hello), ReadHeaderTimeout: time.Second}
	plane, err := app.New(ctx, config.controlPlane, log)
	if err != nil {
		return errors.Join(err, upstream.Close())
	}
	config.sidecar.Upstream = "http://" + upstream.Addr().String()
	config.sidecar.ControlPlane = plane.GRPCAddr().String()
	gate, err := sidecar.New(ctx, config.sidecar, log)
	if err != nil {
		return errors.Join(err, plane.Close(), upstream.Close())
	}

	group, running := errgroup.WithContext(ctx)
	// The control plane stops last: what the sidecar counted until its end is stored.
	serving, stopServing := context.WithCancel(context.WithoutCancel(running))
	group.Go(func() error { return plane.Run(serving) })
	applied := make(chan struct{})
	group.Go(func() error {
		defer stopServing()
		select { // a sidecar that comes first would warn that its domain is not there
		case <-applied:
		case <-running.Done():
		}
		return gate.Run(running)
	})
	group.Go(func() error {
		if err := service.Serve(upstream); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the demo service: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-running.Done()
		return service.Close()
	})
	group.Go(func() error {
		fresh, err := applyDemo(running, plane.GRPCAddr().String(), func(revision int64) {
			awaitPushed(running, plane, revision)
			close(applied)
		})
		if err != nil {
			if running.Err() != nil {
				return nil // stopped before it was up
			}
			return err
		}
		welcome(stdout, plane, gate, fresh)
		return nil
	})
	return group.Wait()
}

func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "hello from the demo service: %s %q\n", r.Method, r.URL.Path) //nolint:gosec // plain text
}

// applyDemo applies the demo rules as rulectl would, tells that they are there, and waits until the sidecar has them;
// unless an earlier run has: fresh is false then.
func applyDemo(ctx context.Context, address string, applied func(revision int64)) (fresh bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(rpcstatus.UnaryClient()),
		grpc.WithStreamInterceptor(rpcstatus.StreamClient()),
	)
	if err != nil {
		return false, fmt.Errorf("apply the demo rules: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx = metadata.AppendToOutgoingContext(ctx, adminpb.ActorKey, adminpb.EscapeActor(app.OperatingSystemUser()))
	admin := adminpb.NewAdminServiceClient(conn)
	known, err := admin.ListRules(ctx, &adminpb.ListRulesRequest{Domain: demoDomain}, grpc.WaitForReady(true))
	if err != nil {
		return false, fmt.Errorf("look for the demo rules: %w", err)
	}
	if len(known.GetRules()) > 0 {
		applied(0)
		return false, nil
	}
	resp, err := admin.Apply(ctx, &adminpb.ApplyRequest{
		Files: []*adminpb.File{{Name: "demo.yaml", Content: demoRules}}, Why: &adminpb.Why{Message: "demo rules"},
	})
	if err != nil {
		return false, fmt.Errorf("apply the demo rules: %w", err)
	}
	applied(resp.GetOutcomes()[0].GetRevision()) // the file has one domain
	for _, o := range resp.GetOutcomes() {
		if err := awaitSidecar(ctx, admin, o); err != nil {
			return false, fmt.Errorf("wait for the sidecar: %w", err)
		}
	}
	return true, nil
}

// awaitPushed waits until the control plane sends sidecars the revision: it reads a change a little after it is stored.
func awaitPushed(ctx context.Context, plane *app.App, revision int64) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for plane.Pushed() < revision && ctx.Err() == nil {
		<-again.C
	}
}

// awaitSidecar waits until a sidecar has what was applied. While there is none, nobody is waited for, and Await ends at once.
func awaitSidecar(ctx context.Context, admin adminpb.AdminServiceClient, o *adminpb.Outcome) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var last *adminpb.AwaitResponse
		stream, err := admin.Await(ctx, &adminpb.AwaitRequest{Domain: o.GetDomain(), Revision: o.GetRevision()})
		for err == nil {
			var next *adminpb.AwaitResponse
			if next, err = stream.Recv(); err == nil {
				last = next
			}
		}
		switch {
		case !errors.Is(err, io.EOF):
			return err
		case len(last.GetNodes()) > 0:
			return nil
		}
		<-again.C
	}
}

func welcome(w io.Writer, plane *app.App, gate *sidecar.App, fresh bool) {
	state := "The demo rules are in shadow: they count what they would refuse, and refuse nothing."
	if !fresh {
		state = "The rules stand as the last run left them: see rulectl get rules."
	}
	_, _ = fmt.Fprintf(w, `
headgate is running. %[4]s

  dashboard                    http://%[5]s
  service behind the sidecar   http://%[1]s/v1/hello
  sidecar metrics              http://%[2]s/metrics
  control plane                %[3]s

Try it in another terminal, in this folder:

  export RULECTL_SERVER=%[3]s     # which the commands that pages show want, too
  for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%%{http_code}\n' -H 'x-api-key: k1' http://%[1]s/v1/hello; done
  curl -s http://%[2]s/metrics | grep would_refuse     # 2 calls over the limit of 5, none refused
  go run ./cmd/rulectl promote demo/api-key --to 100%% --wait
  curl -i -H 'x-api-key: k1' http://%[1]s/v1/hello     # 429
  go run ./cmd/rulectl rollback demo/api-key --wait

Stop it with Ctrl-C.
`, gate.ProxyAddr(), gate.OpsAddr(), plane.GRPCAddr(), state, plane.HTTPAddr())
}
