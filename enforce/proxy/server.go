package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Server serves a Proxy: HTTP/1.1, and HTTP/2 without TLS.
type Server struct {
	proxy *Proxy
	http  http.Server
}

// Bounds on what a caller may hold open or send before a decision. Bodies and answers have none: how long those may take
// is between the caller and the service.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10 // bytes
)

// NewServer returns a server that is not serving yet.
func NewServer(p *Proxy) *Server {
	s := &Server{proxy: p, http: http.Server{
		Handler: p, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: p.upstream.ErrorLog, Protocols: new(http.Protocols),
	}}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// Serve answers the listener's connections until Shutdown; then it returns [http.ErrServerClosed], before the requests
// under way have ended.
func (s *Server) Serve(l net.Listener) error { return s.http.Serve(l) }

// Shutdown takes no more requests, and lets those under way end, upgraded connections among them. Those that have not
// ended with ctx are cut off, which is the error.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.proxy.upstream.via.closeIdle()
	defer s.proxy.endUpgraded()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	ended := make(chan struct{})
	go func() {
		s.proxy.upgraded.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.proxy.endUpgraded()
	<-ended
	return ctx.Err()
}
