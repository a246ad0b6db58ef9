package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/certs"
)

// proof is how rulectl and the control plane prove to each other who they are.
type proof struct {
	tokenFile  string
	ofContext  bool   // the file is that of the context, which login writes
	token      string // the token itself, from the environment only: a flag would show it to everybody on the machine
	tls        bool
	ca         string
	cert, key  string
	serverName string
	insecure   bool
}

// flags registers the flags, each with a default from the environment.
func (p *proof) flags(flags *pflag.FlagSet, getenv func(string) string) {
	yes := func(name string) bool {
		is, err := strconv.ParseBool(getenv(name))
		return err == nil && is
	}
	p.token = getenv("HEADGATE_TOKEN")
	flags.StringVar(&p.tokenFile, "token-file", getenv("RULECTL_TOKEN_FILE"), "file with the token that says who you are; also RULECTL_TOKEN_FILE, or the token itself in HEADGATE_TOKEN")
	flags.BoolVar(&p.tls, "tls", yes("RULECTL_TLS"), "connect with TLS, and trust the authorities this machine trusts; also RULECTL_TLS=1")
	flags.StringVar(&p.ca, "tls-ca", getenv("RULECTL_TLS_CA"), "connect with TLS, and trust the authorities in this file; also RULECTL_TLS_CA")
	flags.StringVar(&p.cert, "tls-cert", getenv("RULECTL_TLS_CERT"), "certificate that says who you are; also RULECTL_TLS_CERT")
	flags.StringVar(&p.key, "tls-key", getenv("RULECTL_TLS_KEY"), "key of that certificate; also RULECTL_TLS_KEY")
	flags.StringVar(&p.serverName, "tls-server-name", getenv("RULECTL_TLS_SERVER_NAME"), "name in the server's certificate, where it is not the host of --server; also RULECTL_TLS_SERVER_NAME")
	flags.BoolVar(&p.insecure, "insecure", yes("RULECTL_INSECURE"), "send a token without TLS, for everybody on the way to read; also RULECTL_INSECURE=1")
}

func (p *proof) usesTLS() bool {
	return p.tls || p.ca != "" || p.cert != "" || p.key != "" || p.serverName != ""
}

// dialOptions refuse to send a token in the clear to another machine.
func (p *proof) dialOptions(server string) ([]grpc.DialOption, error) {
	var options []grpc.DialOption
	if !p.usesTLS() {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if p.hasToken() && !p.insecure && !isLoopback(server) {
			return nil, usagef("a token would travel to %s in the clear, where everybody on the way can read and use it: "+
				"add --tls, or --tls-ca FILE, or when it is meant --insecure", server)
		}
	} else {
		client, err := certs.NewClient(certs.Files{Cert: p.cert, Key: p.key, CA: p.ca}, p.serverName, certs.Options{})
		if err != nil {
			return nil, usagef("--tls-ca, --tls-cert, --tls-key: %w", err)
		}
		options = append(options, grpc.WithTransportCredentials(client.Credentials()))
	}
	token, err := p.perCall()
	if err != nil {
		return nil, err
	}
	if token != nil {
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	return options, nil
}

func (p *proof) hasToken() bool { return p.tokenFile != "" || p.token != "" }

// perCall is what sends the token with each call; nil without one. A file goes before the environment's token.
func (p *proof) perCall() (credentials.PerRPCCredentials, error) {
	switch {
	case p.tokenFile != "":
		file, err := certs.NewTokenFile(p.tokenFile, !p.usesTLS(), nil)
		if errors.Is(err, fs.ErrNotExist) && p.ofContext {
			return nil, fmt.Errorf("%w: nobody has logged in here", rules.ErrUnauthenticated)
		}
		if err != nil {
			return nil, usagef("--token-file: %w", err)
		}
		return file, nil
	case p.token == "":
		return nil, nil //nolint:nilnil // no token is no credentials
	}
	token := strings.TrimSpace(p.token)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, usagef("HEADGATE_TOKEN holds no token, or something beside it")
	}
	return bearer{token: token, plain: !p.usesTLS()}, nil
}

// bearer sends a token that is in no file.
type bearer struct {
	token string
	plain bool
}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return !b.plain }

// isLoopback reports that nothing leaves this machine on the way to the server. What it cannot read does.
func isLoopback(server string) bool {
	if strings.HasPrefix(server, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
