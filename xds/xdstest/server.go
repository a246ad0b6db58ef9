package xdstest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate/xds/push"
)

// Server is a control plane's push on real gRPC streams, over a connection in memory.
type Server struct {
	Cache    *push.Cache
	Fleet    *push.Fleet
	listener *bufconn.Listener
	stop     func()
}

// Options of a server. The zero value works.
type Options struct {
	PartLimit int
	Poll      time.Duration
}

// Start runs a server on the ledger until Stop or the end of the test.
func Start(tb testing.TB, ledger *Ledger, o Options) *Server {
	tb.Helper()
	cache := push.NewCache(push.CacheOptions{PartLimit: o.PartLimit})
	s := &Server{Cache: cache, Fleet: push.NewFleet(ledger, cache, nil), listener: bufconn.Listen(1 << 20)}
	g := grpc.NewServer(push.ServerOptions()...)
	streams, endStreams := context.WithCancel(context.Background())
	push.Register(streams, g, s.Cache, s.Fleet)

	feed, endFeed := context.WithCancel(context.Background())
	fleet, endFleet := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(s.listener) })
	wg.Go(func() { _ = s.Cache.Run(feed, ledger, o.Poll) })
	var saved sync.WaitGroup
	saved.Go(func() { _ = s.Fleet.Run(fleet) })
	s.stop = sync.OnceFunc(func() {
		endStreams()
		g.Stop()
		endFeed()
		wg.Wait()
		endFleet() // after the streams, so that the nodes are written as disconnected
		saved.Wait()
	})
	tb.Cleanup(s.Stop)
	return s
}

// Stop ends the server and waits until it has. It can be called again.
func (s *Server) Stop() { s.stop() }

// Conn returns a connection to the server; options add to those that make it one.
func (s *Server) Conn(tb testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient("passthrough:///memory", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }),
	}, options...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}
