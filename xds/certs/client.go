package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// Client is the dialling side of TLS.
type Client struct {
	*follower
	serverName string
}

// NewClient reads the files. Without a CA the server's certificate may come from any authority that the system trusts;
// without Cert and Key the client shows none. The certificate must be for serverName, or where that is "" for the host
// that is dialled.
func NewClient(files Files, serverName string, o Options) (*Client, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, errors.New("a certificate and its key go together")
	}
	f, err := follow(files, o)
	if err != nil {
		return nil, err
	}
	return &Client{follower: f, serverName: serverName}, nil
}

// config is for one handshake. The certificate is shown whatever authorities the server names: so one that it does not
// take is refused as such, and not missed.
func (c *Client) config() *tls.Config {
	m := c.current()
	own := m.own
	if own == nil {
		own = &tls.Certificate{}
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		RootCAs:              m.authorities,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil },
	}
}

// Credentials are for a gRPC connection.
func (c *Client) Credentials() credentials.TransportCredentials {
	named := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.serverName})
	return clientCredentials{TransportCredentials: named, client: c}
}

type clientCredentials struct {
	credentials.TransportCredentials // for all but the handshake
	client                           *Client
}

func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.client.config()).ClientHandshake(ctx, authority, raw)
}

func (c clientCredentials) Clone() credentials.TransportCredentials { return c }
