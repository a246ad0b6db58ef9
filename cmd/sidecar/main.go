// Command sidecar stands beside a service: it decides each request by the rules that the control plane pushes, and
// counts in Redis.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/internal/ending"
	"github.com/headgate/headgate/cmd/internal/traces"
	"github.com/headgate/headgate/cmd/sidecar/app"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := ending.Context()
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sidecar:", err)
		return 1
	}
	return 0
}

func command() *cobra.Command {
	config := app.DefaultConfig()
	fromEnvironment := env.ParseWithOptions(&config, env.Options{Prefix: "HEADGATE_"})
	c := &cobra.Command{
		Use:   "sidecar --domain DOMAIN --upstream URL",
		Short: "Enforce rate limits in front of a service",
		Long: "Sidecar enforces the rules of a domain: as a reverse proxy in front of one service, as Envoy's rate limit service,\n" +
			"and as a check that nginx, Caddy, HAProxy or Traefik asks before they forward (/check on the operations port).\n\n" +
			"Every flag can be set in the environment as well: --node-id as HEADGATE_NODE_ID.\n\n" + traces.Help,
		Args:          cobra.NoArgs,
		Version:       app.Version(),
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
	f.StringVar(&config.NodeID, "node-id", config.NodeID, "identity in the fleet; by default the name of the host and the port of the proxy")
	f.StringSliceVar(&config.Domains, "domain", config.Domains, "domain whose rules to hold; the proxy enforces those of the first")
	f.StringVar(&config.ControlPlane, "controlplane", config.ControlPlane, "address of the control plane")
	f.StringVar(&config.Trust.CA, "controlplane-ca", config.Trust.CA, "PEM file of the authorities that the control plane's certificate must come from; without it there is no TLS")
	f.StringVar(&config.Trust.ServerName, "controlplane-server-name", config.Trust.ServerName, "name in the control plane's certificate; by default the host of --controlplane")
	f.StringVar(&config.Trust.Cert, "controlplane-cert", config.Trust.Cert, "PEM file of the sidecar's certificate, which proves who it is")
	f.StringVar(&config.Trust.Key, "controlplane-key", config.Trust.Key, "PEM file of its key")
	f.StringVar(&config.Trust.TokenFile, "controlplane-token-file", config.Trust.TokenFile, "file with a token, which proves who the sidecar is")
	f.StringVar(&config.Store, "store", config.Store, `where counters live: redis://[USER:PASSWORD@]HOST:PORT[/DB], or "memory" for this sidecar alone`)
	f.Lookup("store").DefValue = app.DefaultConfig().Store // one from the environment may hold a password
	f.DurationVar(&config.StoreBudget, "store-budget", config.StoreBudget, "how long a decision may wait for the store before the rule's failure mode decides")
	f.StringVar(&config.Upstream, "upstream", config.Upstream, "URL of the service behind the proxy")
	f.DurationVar(&config.UpstreamTimeout, "upstream-timeout", config.UpstreamTimeout, "how long the service may take to begin its answer; 0 for as long as it likes")
	f.StringVar(&config.ProxyListen, "listen", config.ProxyListen, "address of the proxy, or off")
	f.StringVar(&config.RLSListen, "rls-listen", config.RLSListen, "address of Envoy's rate limit service: HOST:PORT or unix:PATH, or off")
	f.StringVar(&config.OpsListen, "ops-listen", config.OpsListen, "address of /check, /metrics, /livez and /readyz")
	f.StringVar(&config.LastGood, "last-good", config.LastGood, "file that keeps the last good rules, to start without the control plane")
	f.StringSliceVar(&config.TrustedProxies, "trusted-proxy", config.TrustedProxies, "address or CIDR of a proxy whose X-Forwarded-For is believed")
	f.IntVar(&config.TrustedHops, "trusted-hops", config.TrustedHops, "believe every peer, and take the client from that many entries from the right of X-Forwarded-For")
	f.StringSliceVar(&config.TrustedHeaders, "trusted-header", config.TrustedHeaders, "header that a gateway sets (a plan, a tenant): believed from trusted proxies alone, and taken out of what others send")
	f.IntVar(&config.RefusalLogRate, "refusal-log-rate", config.RefusalLogRate, "how many refusals are logged in a second, the others being counted; 0 for none")
	f.BoolVar(&config.RefusalLogWould, "refusal-log-would", config.RefusalLogWould, "log what would have been refused as well")
	f.BoolVar(&config.Insecure, "insecure", config.Insecure, "listen on addresses that others reach, and send a token without TLS")
	return c
}
