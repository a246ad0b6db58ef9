package subscribe

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/headgate/headgate/xds"
)

// window is how much may come before it is read: what is sent in parts comes in such of half the size.
const window = 4 << 20

// Dial returns a connection to the control plane for a [Client]; nothing is sent before the client runs. The options
// hold at least the credentials, and win over those set here.
func Dial(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, append([]grpc.DialOption{
		// The client waits between streams itself; gRPC's own wait comes on top, and is two minutes at most by default.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: xds.FirstWait, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A part of a first sync comes in one go. Windows that are not fixed are fitted by pings, with every change.
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		// A control plane that vanished without a word is noticed within 30 + 10 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}, options...)...)
}
