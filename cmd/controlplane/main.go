// Command controlplane keeps the rules and pushes them to the sidecars. `controlplane dev` runs everything in one
// process, to try it.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/controlplane/app"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		return 1
	}
	return 0
}

func command() *cobra.Command {
	config := app.DefaultConfig()
	fromEnvironment := env.ParseWithOptions(&config, env.Options{Prefix: "HEADGATE_"})
	c := &cobra.Command{
		Use:   "controlplane",
		Short: "Keep rules and push them to the sidecars",
		Long: "Controlplane keeps versioned, audited rules in Postgres or SQLite and pushes them to the sidecars.\n\n" +
			"Every flag can be set in the environment as well: --database-url as HEADGATE_DATABASE_URL.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if fromEnvironment != nil {
				return fmt.Errorf("environment: %w", fromEnvironment)
			}
			a, err := app.New(c.Context(), config, slog.New(slog.NewTextHandler(os.Stderr, nil)))
			if err != nil {
				return err
			}
			return a.Run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&config.Database, "database-url", config.Database, "postgres:// URL, or the path of a SQLite file")
	f.Lookup("database-url").DefValue = app.DefaultConfig().Database // one from the environment may hold a password
	f.StringVar(&config.GRPCListen, "grpc-listen", config.GRPCListen, "address of the gRPC port: xDS and admin API")
	f.StringVar(&config.HTTPListen, "http-listen", config.HTTPListen, "address of /metrics, /livez and /readyz")
	f.DurationVar(&config.Poll, "poll", config.Poll, "how often to look for changes beside notifications; 0 relies on those alone")
	f.BoolVar(&config.NoListen, "no-listen", config.NoListen, "use no notifications of the database, only --poll")
	f.BoolVar(&config.Insecure, "insecure", config.Insecure, "listen on addresses that others reach, though nobody is asked who they are")
	c.AddCommand(devCommand())
	return c
}
