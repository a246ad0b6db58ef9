// Package app is the control plane put together: the admin API, the xDS stream and sidecars' reports on one gRPC port,
// metrics and probes on an HTTP port, and the database behind both.
//
// Listeners bind in [New], so that a taken port is an error there and port 0 works in tests. [App.Run] serves until its
// context ends, then closes in the reverse order of acquisition.
package app

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Config are the settings of a control plane. In the environment their names begin with HEADGATE_.
type Config struct {
	// Database is a postgres:// URL, or the path of a SQLite file.
	Database   string `env:"DATABASE_URL"`
	GRPCListen string `env:"GRPC_LISTEN"`
	HTTPListen string `env:"HTTP_LISTEN"`
	// Poll is how often the database is read for changes beside its notifications; 0 relies on those alone.
	Poll time.Duration `env:"POLL"`
	// NoListen turns notifications off: changes of other replicas are then seen by polling alone.
	NoListen bool `env:"NO_LISTEN"`
	// Auth is AuthOff or AuthToken.
	Auth string `env:"AUTH"`
	// Files in PEM, followed as they change; both ports speak TLS when there is a certificate.
	TLSCert     string `env:"TLS_CERT"`
	TLSKey      string `env:"TLS_KEY"`
	TLSClientCA string `env:"TLS_CLIENT_CA"` // whose certificates prove who a client is
	Insecure    bool   `env:"INSECURE"`      // listen on addresses that others reach, though it is not safe

	Alerts Alerts
}

// The ways to find out who calls.
const (
	AuthOff   = "off"   // not at all
	AuthToken = "token" // by a token, or by a client certificate where there is a TLSClientCA
)

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Database:   "headgate.db",
		GRPCListen: "127.0.0.1:18000",
		HTTPListen: "127.0.0.1:7070",
		Poll:       time.Second,
		Auth:       AuthOff,
	}
}

// Validate returns every bad setting, by the name of its flag.
func (c Config) Validate() error {
	var problems []error
	bad := func(flag, format string, args ...any) {
		problems = append(problems, fmt.Errorf("--%s: "+format, append([]any{flag}, args...)...))
	}
	if c.Database == "" {
		bad("database-url", "is missing: a postgres:// URL, or the path of a SQLite file")
	}
	if scheme, _, found := strings.Cut(c.Database, "://"); found && !c.IsPostgres() {
		bad("database-url", "%s:// is not known: a postgres:// URL, or the path of a SQLite file", scheme)
	}
	if c.Poll < 0 {
		bad("poll", "%v is negative", c.Poll)
	}
	if c.Poll == 0 && c.NoListen {
		bad("poll", "is off, and so are notifications: nothing would tell of changes")
	}
	if c.Auth != AuthOff && c.Auth != AuthToken {
		bad("auth", "%q is neither %s nor %s", c.Auth, AuthOff, AuthToken)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("tls-cert", "goes together with --tls-key")
	}
	if c.TLSClientCA != "" && c.TLSCert == "" {
		bad("tls-client-ca", "needs --tls-cert and --tls-key: without TLS no client shows a certificate")
	}
	if c.TLSClientCA != "" && c.Auth == AuthOff {
		bad("tls-client-ca", "needs --auth %s: with --auth %s a certificate says nothing, and everybody may do everything", AuthToken, AuthOff)
	}
	if len(c.Alerts.Webhooks) > 0 && c.Alerts.WebhookSecretFile == "" {
		bad("webhook", "needs --webhook-secret-file: calls are signed, so that who gets one knows whose it is")
	}
	for _, l := range []struct{ flag, address string }{{"grpc-listen", c.GRPCListen}, {"http-listen", c.HTTPListen}} {
		if err := c.checkListen(l.address); err != nil {
			bad(l.flag, "%w", err)
		}
	}
	return errors.Join(problems...)
}

// IsPostgres reports whether the database is one; otherwise it is SQLite.
func (c Config) IsPostgres() bool {
	return strings.HasPrefix(c.Database, "postgres://") || strings.HasPrefix(c.Database, "postgresql://")
}

// databaseName is the database without its password, for the log.
func (c Config) databaseName() string {
	if !c.IsPostgres() {
		return c.Database
	}
	u, err := url.Parse(c.Database)
	if err != nil {
		return "postgres"
	}
	return "postgres " + u.Host + u.Path
}

// checkListen says why an address is not listened on: others reach it, and it would not be safe.
func (c Config) checkListen(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", address)
	}
	ip, err := netip.ParseAddr(host)
	switch loopback := host == "localhost" || err == nil && ip.IsLoopback(); {
	case loopback, c.Insecure:
		return nil
	case c.Auth == AuthOff:
		return fmt.Errorf("%s is not a loopback address, and nobody is asked who they are: use --auth %s; --insecure allows it", address, AuthToken)
	case c.TLSCert == "":
		return fmt.Errorf("%s is not a loopback address, and tokens would travel in the clear: use --tls-cert and --tls-key; --insecure allows it", address)
	}
	return nil
}
