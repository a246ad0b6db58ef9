package app_test

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func config() app.Config {
	c := app.DefaultConfig()
	c.NodeID, c.Domains, c.Store = "n", []string{"d"}, app.InMemory
	c.ProxyListen, c.RLSListen, c.OpsListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	return c
}

func TestValidateNamesEveryBadSetting(t *testing.T) {
	t.Parallel()
	c := config()
	c.Domains, c.Store, c.StoreBudget, c.ControlPlane = []string{"Upper"}, "memcached://x", 0, "http://plane"
	c.Upstream, c.ProxyListen, c.OpsListen, c.TrustedProxies = "127.0.0.1:9000", ":8080", "8082", []string{"10.0.0.0/99"}
	c.RefusalLogRate = -1
	err := c.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, flag := range []string{
		"controlplane", "domain", "store", "store-budget", "upstream", "listen", "ops-listen", "trusted-proxy", "refusal-log-rate",
	} {
		if !strings.Contains(err.Error(), "--"+flag+": ") {
			t.Errorf("%v does not name --%s", err, flag)
		}
	}
}

func TestNewReleasesWhatItAcquiredWhenAPortIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	c := config()
	c.Store, c.OpsListen = "redis://127.0.0.1:1", taken.Addr().String()
	// Main fails the package if goroutines of the Redis client or the connection are left.
	if _, err := app.New(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--ops-listen") {
		t.Errorf("got %v, want an error that names --ops-listen", err)
	}
}

func TestTokenTravelsOverTLSOrOnThisHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*app.Config)
		want   string // part of the refusal; "": accepted
	}{
		{"this host", func(c *app.Config) { c.Trust.TokenFile = "t" }, ""},
		{"this host by name", func(c *app.Config) { c.Trust.TokenFile, c.ControlPlane = "t", "localhost:1" }, ""},
		{"another host", func(c *app.Config) { c.Trust.TokenFile, c.ControlPlane = "t", "plane:1" }, "--controlplane-token-file: plane:1 is not a loopback"},
		{"another host, TLS", func(c *app.Config) { c.Trust.TokenFile, c.ControlPlane, c.Trust.CA = "t", "plane:1", "ca" }, ""},
		{"another host, insecure", func(c *app.Config) { c.Trust.TokenFile, c.ControlPlane, c.Insecure = "t", "plane:1", true }, ""},
		{"certificate without TLS", func(c *app.Config) { c.Trust.Cert, c.Trust.Key = "c", "k" }, "--controlplane-cert: needs --controlplane-ca"},
		{"name without TLS", func(c *app.Config) { c.Trust.ServerName = "plane" }, "--controlplane-server-name: needs --controlplane-ca"},
		{"certificate without key", func(c *app.Config) { c.Trust.CA, c.Trust.Cert = "ca", "c" }, "goes together with --controlplane-key"},
	} {
		config := config()
		c.change(&config)
		err := config.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestFilesThatCannotBeReadAreNamedAtStart(t *testing.T) {
	t.Parallel()
	for flag, change := range map[string]func(*app.Config){
		"--controlplane-ca":         func(c *app.Config) { c.Trust.CA = "/nowhere/ca.crt" },
		"--controlplane-token-file": func(c *app.Config) { c.Trust.TokenFile = "/nowhere/token" },
	} {
		c := config()
		change(&c)
		if _, err := app.New(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "/nowhere/") {
			t.Errorf("got %v, want an error that names %s and the file", err, flag)
		}
	}
}
