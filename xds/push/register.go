package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// Register serves cache over the aggregated discovery service of s, and lets fleet follow the streams. The streams end
// when ctx does: end it before a graceful stop of the server, which would wait for them for ever.
//
// Whose stream it is must be in the stream's context (package access): an interceptor of s puts it there. Without it, no
// domain can be subscribed to.
//
// Only the delta protocol is there. The other, state of the world, can tell neither single rules nor deletions; a client
// that tries it is told that it is not implemented.
func Register(ctx context.Context, s grpc.ServiceRegistrar, cache *Cache, fleet *Fleet) {
	discovery.RegisterAggregatedDiscoveryServiceServer(s, &service{ctx: ctx, cache: cache, fleet: fleet})
}

type service struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	ctx   context.Context // of the service, not of a call: its end ends the streams
	cache *Cache
	fleet *Fleet
}

// DeltaAggregatedResources gives each stream a server of its own, so that a watch and a message are known by their stream:
// what go-control-plane shares between streams is a counter. A stream ends when the credential does that opened it.
func (s *service) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, who := s.ctx, access.From(stream.Context())
	if !who.Expires.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, who.Expires)
		defer cancel()
	}
	p := newPeer(s.cache, s.fleet)
	// Without the option a first request that names nothing would be a subscription to everything.
	server := delta.NewServer(ctx, p, p, delta.DeactivateLegacyWildcard())
	if err := server.DeltaStreamHandler(sharing{stream, p}, resource.AnyType); err != nil {
		return err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return s.fleet.refuse(refusedForbidden, fmt.Errorf("%w: the credential %s of %s has expired", rules.ErrUnauthenticated, who.Credential, who.Name))
	}
	return nil
}

// window is how much a client may send before it is read: a request with everything it offers, or a file of rules.
const window = 1 << 20

// ServerOptions are those a gRPC server needs for long quiet streams: a sidecar that vanished without a word is noticed
// within 30 + 10 s, and sidecars may ask as often themselves. And for many of them: what is sent to all is marshalled once.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.ForceServerCodecV2(newCodec()),
		// Windows that are not fixed are fitted by pings, one for each change and client in each direction.
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}
