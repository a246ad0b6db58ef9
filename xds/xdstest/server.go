package xdstest

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/xds/push"
	"github.com/headgate/headgate/xds/rpcstatus"
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
	// Identity is whose streams they are; nil: everybody's, as on a loopback without authentication.
	Identity *access.Identity
	Fleet    push.FleetOptions // Feed: the ledger when nil
}

// Start runs a server on the ledger until Stop or the end of the test.
func Start(tb testing.TB, ledger *Ledger, o Options) *Server {
	tb.Helper()
	cache := push.NewCache(push.CacheOptions{PartLimit: o.PartLimit})
	if o.Fleet.Feed == nil {
		o.Fleet.Feed = ledger
	}
	identity := access.Local("test")
	if o.Identity != nil {
		identity = *o.Identity
	}
	nodes, err := push.NewFleet(ledger, cache, o.Fleet)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Cache: cache, Fleet: nodes, listener: bufconn.Listen(1 << 20)}
	g := grpc.NewServer(append(push.ServerOptions(), grpc.WaitForHandlers(true), grpc.ChainStreamInterceptor(
		rpcstatus.StreamServer(slog.New(slog.DiscardHandler), nil), identify(identity)))...)
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

// identify says of every stream whose it is.
func identify(i access.Identity) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		return handle(srv, identified{ServerStream: stream, ctx: access.With(stream.Context(), i)})
	}
}

type identified struct {
	grpc.ServerStream
	ctx context.Context
}

func (s identified) Context() context.Context { return s.ctx }

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
