package app_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/controlplane/app"
)

func TestDefaultConfigIsValid(t *testing.T) {
	t.Parallel()
	if err := app.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesEveryBadSetting(t *testing.T) {
	t.Parallel()
	c := app.DefaultConfig()
	c.Database, c.GRPCListen, c.HTTPListen, c.Poll = "mysql://db", ":18000", "0.0.0.0:7070", -1
	err := c.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--database-url: mysql://", "--grpc-listen: :18000", "--http-listen: 0.0.0.0:7070", "--poll: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	c = app.DefaultConfig()
	c.GRPCListen, c.HTTPListen, c.Insecure = ":18000", "[::1]:7070", true
	if err := c.Validate(); err != nil {
		t.Errorf("with --insecure: %v", err)
	}
}

func TestNobodyTellsOfChanges(t *testing.T) {
	t.Parallel()
	c := app.DefaultConfig()
	c.Poll, c.NoListen = 0, true
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--poll") {
		t.Errorf("neither notifications nor polling: got %v, want a refusal", err)
	}
}

func TestOnlyASafeAddressIsListenedOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*app.Config)
		want   string // part of the refusal; "": accepted
	}{
		{"loopback, nobody asked", func(*app.Config) {}, ""},
		{"others, nobody asked", func(c *app.Config) { c.GRPCListen = "0.0.0.0:1" }, "nobody is asked who they are: use --auth token"},
		{"others, nobody asked, with TLS", func(c *app.Config) {
			c.GRPCListen, c.TLSCert, c.TLSKey = "0.0.0.0:1", "c", "k"
		}, "nobody is asked who they are"},
		{"others, token, no TLS", func(c *app.Config) { c.HTTPListen, c.Auth = "0.0.0.0:1", app.AuthToken }, "tokens would travel in the clear"},
		{"others, token, no TLS, insecure", func(c *app.Config) {
			c.HTTPListen, c.Auth, c.Insecure = "0.0.0.0:1", app.AuthToken, true
		}, ""},
		{"loopback, token, no TLS", func(c *app.Config) { c.Auth = app.AuthToken }, ""},
		{"others, token, TLS", func(c *app.Config) {
			c.GRPCListen, c.HTTPListen, c.Auth, c.TLSCert, c.TLSKey, c.TLSClientCA = ":1", ":2", app.AuthToken, "c", "k", "ca"
		}, ""},
		{"another way", func(c *app.Config) { c.Auth = "oidc" }, `--auth: "oidc"`},
		{"no key", func(c *app.Config) { c.TLSCert = "c" }, "--tls-cert: goes together with --tls-key"},
		{"client CA without TLS", func(c *app.Config) { c.TLSClientCA, c.Auth = "ca", app.AuthToken }, "--tls-client-ca: needs --tls-cert"},
		{"client CA that nobody asks for", func(c *app.Config) {
			c.TLSCert, c.TLSKey, c.TLSClientCA = "c", "k", "ca"
		}, "--tls-client-ca: needs --auth token"},
	} {
		config := app.DefaultConfig()
		c.change(&config)
		err := config.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestFilesThatCannotBeReadLeaveNoDatabase(t *testing.T) {
	t.Parallel()
	c := app.DefaultConfig()
	c.GRPCListen, c.HTTPListen, c.Database = "127.0.0.1:0", "127.0.0.1:0", filepath.Join(t.TempDir(), "headgate.db")
	c.TLSCert, c.TLSKey = "/nowhere/tls.crt", "/nowhere/tls.key"
	if _, err := app.New(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("got %v, want an error that names --tls-cert", err)
	}
	if _, err := os.Stat(c.Database); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a database: %v", err)
	}
}
