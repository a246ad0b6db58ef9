package push

import (
	"context"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Register serves cache over the aggregated discovery service of s, and lets fleet follow the streams. The streams end
// when ctx does: end it before a graceful stop of the server, which would wait for them for ever.
//
// Only the delta protocol is there. The other, state of the world, can tell neither single rules nor deletions; a client
// that tries it is told that it is not implemented.
func Register(ctx context.Context, s grpc.ServiceRegistrar, cache *Cache, fleet *Fleet) {
	// Without the option a first request that names nothing would be a subscription to everything.
	server := delta.NewServer(ctx, cache, callbacks{fleet}, delta.DeactivateLegacyWildcard())
	discovery.RegisterAggregatedDiscoveryServiceServer(s, &service{delta: server})
}

type service struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	delta delta.Server
}

func (s *service) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(stream, resource.AnyType)
}

// callbacks shows the streams to the fleet. Each is called in the goroutine of its stream, in the order of the wire.
type callbacks struct{ fleet *Fleet }

// OnDeltaStreamOpen has nothing to do: a stream has no name before its first request.
func (c callbacks) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

func (c callbacks) OnDeltaStreamClosed(stream int64, _ *core.Node) { c.fleet.onClosed(stream) }

func (c callbacks) OnStreamDeltaRequest(stream int64, req *discovery.DeltaDiscoveryRequest) error {
	return c.fleet.onRequest(stream, req)
}

func (c callbacks) OnStreamDeltaResponse(stream int64, _ *discovery.DeltaDiscoveryRequest, response *discovery.DeltaDiscoveryResponse) {
	c.fleet.onResponse(stream, response)
}

// ServerOptions are those a gRPC server needs for long quiet streams: a sidecar that vanished without a word is noticed
// within 30 + 10 s, and sidecars may ask as often themselves.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}
