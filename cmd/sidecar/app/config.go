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
	"os"
	"time"

	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/rules"
)

// InMemory as Config.Store counts in the process, for this sidecar alone.
const InMemory = "memory"

// Config are the settings of a sidecar. In the environment their names begin with HEADGATE_.
type Config struct {
	NodeID         string        `env:"NODE_ID"`      // identity in the fleet; the host's name by default
	Domains        []string      `env:"DOMAIN"`       // whose rules it holds; the proxy enforces those of the first
	ControlPlane   string        `env:"CONTROLPLANE"` // address of the control plane's gRPC port
	Store          string        `env:"STORE"`        // redis://HOST:PORT, or "memory"
	StoreBudget    time.Duration `env:"STORE_BUDGET"`
	Upstream       string        `env:"UPSTREAM"` // URL of the service behind the proxy
	ProxyListen    string        `env:"LISTEN"`
	OpsListen      string        `env:"OPS_LISTEN"`
	LastGood       string        `env:"LAST_GOOD"`     // file of the last good set; "" keeps none
	TrustedProxies []string      `env:"TRUSTED_PROXY"` // addresses and CIDRs whose X-Forwarded-For is believed
	Insecure       bool          `env:"INSECURE"`      // listen on addresses that others reach
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	host, err := os.Hostname()
	if err != nil {
		host = "" // Validate asks for a name then
	}
	return Config{
		NodeID:       host,
		ControlPlane: "127.0.0.1:18000",
		Store:        "redis://127.0.0.1:6379",
		StoreBudget:  redislimit.DefaultBudget,
		Upstream:     "http://127.0.0.1:9000",
		ProxyListen:  "127.0.0.1:8080",
		OpsListen:    "127.0.0.1:8082",
	}
}

// Validate returns every bad setting, by the name of its flag.
func (c Config) Validate() error {
	var problems []error
	bad := func(flag, format string, args ...any) {
		problems = append(problems, fmt.Errorf("--%s: "+format, append([]any{flag}, args...)...))
	}
	if c.NodeID == "" {
		bad("node-id", "is missing")
	}
	if len(c.Domains) == 0 {
		bad("domain", "is missing: name at least one domain")
	}
	for _, d := range c.Domains {
		if problem := rules.CheckName(d); problem != "" {
			bad("domain", "%s", problem)
		}
	}
	if _, err := c.redisAddr(); err != nil {
		bad("store", "%w", err)
	}
	if _, err := c.trusted(); err != nil {
		bad("trusted-proxy", "%w", err)
	}
	if c.StoreBudget <= 0 {
		bad("store-budget", "%v is not a positive duration", c.StoreBudget)
	}
	if u, err := url.Parse(c.Upstream); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		bad("upstream", "%q is not an http:// or https:// URL", c.Upstream)
	}
	if !c.Insecure {
		for flag, address := range map[string]string{"listen": c.ProxyListen, "ops-listen": c.OpsListen} {
			if !isLoopback(address) {
				bad(flag, "%s is not a loopback address; --insecure allows it", address)
			}
		}
	}
	return errors.Join(problems...)
}

// redisAddr returns the Redis of Store; "" for InMemory.
func (c Config) redisAddr() (string, error) {
	if c.Store == InMemory {
		return "", nil
	}
	u, err := url.Parse(c.Store)
	if err != nil || u.Scheme != "redis" || u.Host == "" || u.Path != "" && u.Path != "/" {
		return "", fmt.Errorf("%q is neither redis://HOST:PORT nor %q", c.Store, InMemory)
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "6379"), nil
	}
	return u.Host, nil
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

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
