// Command controlplane keeps the rules and pushes them to the sidecars. `controlplane dev` runs everything in one
// process, to try it.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/cmd/internal/ending"
	"github.com/headgate/headgate/cmd/internal/traces"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := ending.Context()
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		return 1
	}
	return 0
}

// settings are those of the control plane: flags over the environment over defaults.
type settings struct {
	app.Config
	environment error // what could not be read of it
}

func command() *cobra.Command {
	config := &settings{Config: app.DefaultConfig()}
	config.environment = env.ParseWithOptions(&config.Config, env.Options{Prefix: "HEADGATE_"})
	c := &cobra.Command{
		Use:   "controlplane",
		Short: "Keep rules and push them to the sidecars",
		Long: "Controlplane keeps versioned, audited rules in Postgres or SQLite and pushes them to the sidecars.\n\n" +
			"Every flag can be set in the environment as well: --database-url as HEADGATE_DATABASE_URL.\n\n" + traces.Help,
		Args:          cobra.NoArgs,
		Version:       app.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if config.environment != nil {
				return fmt.Errorf("environment: %w", config.environment)
			}
			a, err := app.New(c.Context(), config.Config, slog.New(slog.NewTextHandler(os.Stderr, nil)))
			if err != nil {
				return err
			}
			return a.Run(c.Context())
		},
	}
	config.databaseFlag(c)
	f := c.Flags()
	f.StringVar(&config.GRPCListen, "grpc-listen", config.GRPCListen, "address of the gRPC port: xDS and admin API")
	f.StringVar(&config.HTTPListen, "http-listen", config.HTTPListen, "address of the dashboard, /metrics, /livez and /readyz")
	f.DurationVar(&config.Poll, "poll", config.Poll, "how often to look for changes beside notifications; 0 relies on those alone")
	f.BoolVar(&config.NoListen, "no-listen", config.NoListen, "use no notifications of the database, only --poll")
	f.StringVar(&config.Auth, "auth", config.Auth, `who may call: "off" asks nobody who they are, "token" asks for a token or a client certificate`)
	f.StringVar(&config.TLSCert, "tls-cert", config.TLSCert, "PEM file of the certificate for both ports; followed as it changes")
	f.StringVar(&config.TLSKey, "tls-key", config.TLSKey, "PEM file of its key")
	f.StringVar(&config.TLSClientCA, "tls-client-ca", config.TLSClientCA, "PEM file of the authorities that client certificates must come from")
	f.BoolVar(&config.Insecure, "insecure", config.Insecure, "listen on addresses that others reach, though nobody is asked who they are, or without TLS")
	alertFlags(f, &config.Alerts)
	c.AddCommand(devCommand(), tokenCommand(config), migrateCommand(config), renewLineageCommand(config))
	return c
}

// alertFlags say where alerts go. A URL from the environment may hold a password, which is not for --help.
func alertFlags(f *pflag.FlagSet, where *app.Alerts) {
	f.StringSliceVar(&where.Alertmanagers, "alertmanager", where.Alertmanagers, "URL of an Alertmanager that gets alerts; may be repeated, for all of a cluster")
	f.StringSliceVar(&where.Webhooks, "webhook", where.Webhooks, "URL that gets alerts as Alertmanager's webhooks do; may be repeated")
	f.StringVar(&where.WebhookSecretFile, "webhook-secret-file", where.WebhookSecretFile, "file with the key that signs calls to --webhook: X-Signature has the HMAC-SHA256 of the body")
	f.StringVar(&where.SlackWebhookFile, "slack-webhook-file", where.SlackWebhookFile, "file with the URL of an incoming webhook of Slack that gets alerts")
	f.StringVar(&where.ExternalURL, "external-url", where.ExternalURL, "URL under which people find the control plane, for links in alerts; by default the HTTP port. With https:// browsers send the cookie of a session by TLS only")
	for _, name := range []string{"alertmanager", "webhook"} {
		f.Lookup(name).DefValue = "[]"
	}
}

func (s *settings) databaseFlag(c *cobra.Command) {
	c.Flags().StringVar(&s.Database, "database-url", s.Database, "postgres:// URL, or the path of a SQLite file")
	c.Flags().Lookup("database-url").DefValue = app.DefaultConfig().Database // one from the environment may hold a password
}
