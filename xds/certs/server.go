package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// Server is the serving side of TLS.
type Server struct {
	*follower
	refused prometheus.Counter
	logged  atomic.Int64 // Unix second of the last refusal that was logged
}

// NewServer reads the files; Cert and Key must be there. With a CA, clients may show a certificate: one that comes from
// no authority in it is refused, and none is fine, since a client may have a token instead.
func NewServer(files Files, o Options) (*Server, error) {
	if files.Cert == "" || files.Key == "" {
		return nil, errors.New("a server needs a certificate and its key")
	}
	f, err := follow(files, o)
	if err != nil {
		return nil, err
	}
	s := &Server{follower: f, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "headgate_tls_handshake_failures_total",
		Help: "gRPC connections that ended in the TLS handshake, such as those of clients with a foreign or expired certificate.",
	})}
	if o.Registerer != nil {
		if err := o.Registerer.Register(s.refused); err != nil {
			return nil, fmt.Errorf("certs: register metrics: %w", err)
		}
	}
	return s, nil
}

// Config is for servers that speak HTTP.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config(), nil },
	}
}

// config is for one handshake. There are no session tickets: with one, a client would come in on what was checked
// under the authorities of yesterday.
func (s *Server) config() *tls.Config {
	m := s.current()
	c := &tls.Config{
		MinVersion:             tls.VersionTLS12,
		Certificates:           []tls.Certificate{*m.own},
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
	}
	if m.authorities != nil {
		c.ClientCAs, c.ClientAuth = m.authorities, tls.VerifyClientCertIfGiven
	}
	return c
}

// Credentials are for a gRPC server.
func (s *Server) Credentials() credentials.TransportCredentials {
	return serverCredentials{TransportCredentials: credentials.NewTLS(s.Config()), server: s}
}

type serverCredentials struct {
	credentials.TransportCredentials
	server *Server
}

func (c serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		c.server.failed(raw, err)
		return nil, nil, err
	}
	if shown, ok := info.(credentials.TLSInfo); ok && len(shown.State.PeerCertificates) > 0 {
		conn = closeAt(conn, shown.State.PeerCertificates[0].NotAfter)
	}
	return conn, info, nil
}

func (c serverCredentials) Clone() credentials.TransportCredentials { return c }

// failed counts, and logs at most once a second; a connection without a word, such as a probe, is only counted.
func (s *Server) failed(raw net.Conn, err error) {
	s.refused.Inc()
	if now := time.Now().Unix(); !errors.Is(err, io.EOF) && s.logged.Swap(now) != now {
		s.log.Warn("TLS handshake failed", "peer", raw.RemoteAddr().String(), "err", err)
	}
}

// boundedConn is closed by a timer.
type boundedConn struct {
	net.Conn
	timer *time.Timer
}

func closeAt(conn net.Conn, end time.Time) net.Conn {
	return boundedConn{Conn: conn, timer: time.AfterFunc(time.Until(end), func() { _ = conn.Close() })}
}

func (c boundedConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
