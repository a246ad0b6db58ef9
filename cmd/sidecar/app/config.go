// Package app is the sidecar put together: the door in front of one service, the engine, and the stream of rules from
// the control plane.
//
// Listeners bind in [New], so that a taken port is an error there and port 0 works in tests. [App.Run] serves until its
// context ends, then reports not ready, drains and closes in the reverse order of acquisition.
package app

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/rules"
)

// Off as Config.ProxyListen or Config.RLSListen leaves that door out.
const Off = "off"

// InMemory as Config.Store counts in the process, for this sidecar alone.
const InMemory = "memory"

// maxRefusalLogRate is for a log that people read; counts are what metrics and reports are for.
const maxRefusalLogRate = 1000

// Config are the settings of a sidecar. In the environment their names begin with HEADGATE_.
type Config struct {
	NodeID          string        `env:"NODE_ID"`      // identity in the fleet; "": the host's name and the proxy's port
	Domains         []string      `env:"DOMAIN"`       // whose rules it holds; the proxy enforces those of the first
	ControlPlane    string        `env:"CONTROLPLANE"` // address of the control plane's gRPC port
	Trust           Trust         `envPrefix:"CONTROLPLANE_"`
	Store           string        `env:"STORE"` // a redis:// URL, or "memory"
	StoreBudget     time.Duration `env:"STORE_BUDGET"`
	Upstream        string        `env:"UPSTREAM"`         // URL of the service behind the proxy
	UpstreamTimeout time.Duration `env:"UPSTREAM_TIMEOUT"` // how long it may take to begin its answer; 0: as long as it likes
	ProxyListen     string        `env:"LISTEN"`           // or "off"
	RLSListen       string        `env:"RLS_LISTEN"`       // HOST:PORT or unix:PATH of Envoy's rate limit service, or "off"
	OpsListen       string        `env:"OPS_LISTEN"`
	LastGood        string        `env:"LAST_GOOD"`         // file of the last good set; "" keeps none
	TrustedProxies  []string      `env:"TRUSTED_PROXY"`     // addresses and CIDRs whose X-Forwarded-For is believed
	TrustedHops     int           `env:"TRUSTED_HOPS"`      // above 0: take the client from that many entries from the right
	TrustedHeaders  []string      `env:"TRUSTED_HEADER"`    // believed from trusted proxies alone, and stripped from what others send
	RefusalLogRate  int           `env:"REFUSAL_LOG_RATE"`  // refusals logged in a second; 0: none
	RefusalLogWould bool          `env:"REFUSAL_LOG_WOULD"` // those that would be, too
	Insecure        bool          `env:"INSECURE"`          // listen on addresses that others reach, and send a token without TLS
}

// Trust says how the sidecar and the control plane know each other. The files are followed as they change.
type Trust struct {
	CA         string `env:"CA"`          // PEM of the authorities that the control plane's certificate must come from; "": no TLS
	ServerName string `env:"SERVER_NAME"` // in that certificate; "": the host of the address
	Cert       string `env:"CERT"`        // PEM of the sidecar's own certificate
	Key        string `env:"KEY"`
	TokenFile  string `env:"TOKEN_FILE"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		ControlPlane: "127.0.0.1:18000",
		Store:        "redis://127.0.0.1:6379",
		StoreBudget:  redislimit.DefaultBudget,
		Upstream:     "http://127.0.0.1:9000",
		ProxyListen:  "127.0.0.1:8080",
		RLSListen:    "127.0.0.1:8081",
		OpsListen:    "127.0.0.1:8082",

		RefusalLogRate: 5,
	}
}

// Validate returns every bad setting, by the name of its flag.
func (c Config) Validate() error {
	var problems []error
	bad := func(flag, format string, args ...any) {
		problems = append(problems, fmt.Errorf("--%s: "+format, append([]any{flag}, args...)...))
	}
	if len(c.Domains) == 0 {
		bad("domain", "is missing: name at least one domain")
	}
	for _, d := range c.Domains {
		if problem := rules.CheckName(d); problem != "" {
			bad("domain", "%s", problem)
		}
	}
	if c.Store != InMemory {
		if _, err := redislimit.ParseURL(c.Store); err != nil {
			bad("store", "neither %q nor a Redis: %w", InMemory, err)
		}
	}
	if _, err := c.trusted(); err != nil {
		bad("trusted-proxy", "%w", err)
	}
	if c.TrustedHops < 0 || c.TrustedHops > 0 && len(c.TrustedProxies) > 0 {
		bad("trusted-hops", "is a number from 1, and takes the place of --trusted-proxy")
	}
	if c.StoreBudget <= 0 {
		bad("store-budget", "%v is not a positive duration", c.StoreBudget)
	}
	if u, err := url.Parse(c.Upstream); err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c" || u.Host == "" {
		bad("upstream", "%q is not an http://, https:// or h2c:// URL", c.Upstream)
	}
	if c.UpstreamTimeout < 0 {
		bad("upstream-timeout", "%v is negative", c.UpstreamTimeout)
	}
	if c.RefusalLogRate < 0 || c.RefusalLogRate > maxRefusalLogRate {
		bad("refusal-log-rate", "%d is not a number from 0 to %d", c.RefusalLogRate, maxRefusalLogRate)
	}
	for flag, address := range map[string]string{"listen": c.ProxyListen, "rls-listen": c.RLSListen, "ops-listen": c.OpsListen} {
		if address == Off && flag != "ops-listen" || flag == "rls-listen" && strings.HasPrefix(address, "unix:") {
			continue
		}
		if err := checkListen(address, c.Insecure); err != nil {
			bad(flag, "%w", err)
		}
	}
	host, port, err := net.SplitHostPort(c.ControlPlane)
	if err != nil || strings.Trim(port, "0123456789") != "" {
		bad("controlplane", "%q is not HOST:PORT", c.ControlPlane)
	}
	c.checkTrust(host, bad)
	return errors.Join(problems...)
}

func (c Config) checkTrust(host string, bad func(flag, format string, args ...any)) {
	for flag, value := range map[string]string{"cert": c.Trust.Cert, "key": c.Trust.Key, "server-name": c.Trust.ServerName} {
		if value != "" && c.Trust.CA == "" {
			bad("controlplane-"+flag, "needs --controlplane-ca: without it the connection has no TLS")
		}
	}
	if (c.Trust.Cert == "") != (c.Trust.Key == "") {
		bad("controlplane-cert", "goes together with --controlplane-key")
	}
	if c.Trust.TokenFile != "" && c.Trust.CA == "" && !isLoopback(host) && !c.Insecure {
		bad("controlplane-token-file", "%s is not a loopback address, and the token would travel in the clear: use --controlplane-ca; --insecure allows it", c.ControlPlane)
	}
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// checkListen says why an address is not listened on: others reach it, and nobody said that they may.
func checkListen(address string, insecure bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", address)
	}
	if !insecure && !isLoopback(host) {
		return fmt.Errorf("%s is not a loopback address; --insecure allows it", address)
	}
	return nil
}

// trusted returns TrustedProxies as prefixes; an address is the prefix that holds only it.
func (c Config) trusted() ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range c.TrustedProxies {
		if addr, err := netip.ParseAddr(text); err == nil {
			list = append(list, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a CIDR", text)
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}
