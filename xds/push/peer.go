package push

import (
	"context"
	"errors"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"

	"github.com/headgate/headgate/rules/rollout/access"
)

// peer is one stream, between go-control-plane's server and what is here: the server asks it for responses, and shows it
// each message. Everything is called in the goroutine of the stream, in the order of the wire.
type peer struct {
	cache    *Cache
	fleet    *Fleet
	identity access.Identity // who opened the stream
	stream   *stream         // nil before the first request, and when that was refused
	outgoing *message        // between the server's taking it and its sending it

	// What follows is guarded by the cache's lock.

	waiting *watch
	good    map[string][]lastGood // to be sent, by domain
}

var (
	_ cache.ConfigWatcher = (*peer)(nil)
	_ delta.Callbacks     = (*peer)(nil)
)

func newPeer(c *Cache, f *Fleet) *peer {
	return &peer{cache: c, fleet: f, good: map[string][]lastGood{}}
}

// CreateDeltaWatch asks the cache, except while a response has no answer yet: the next one goes on that answer, and not on
// whatever else the client says.
func (p *peer) CreateDeltaWatch(req *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	if p.fleet.awaits(p) {
		return func() {}, nil
	}
	return p.cache.watch(p, req, sub, out)
}

// CreateWatch refuses: it belongs to the state-of-the-world protocol.
func (p *peer) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, errors.New("only delta xDS is served here: use DeltaAggregatedResources")
}

// OnDeltaStreamOpen takes down who opened the stream. It has no name before its first request.
func (p *peer) OnDeltaStreamOpen(ctx context.Context, _ int64, _ string) error {
	p.identity = access.From(ctx)
	return nil
}

// OnDeltaStreamClosed ends what is known of the stream.
func (p *peer) OnDeltaStreamClosed(int64, *core.Node) { p.fleet.onClosed(p) }

// OnStreamDeltaRequest sees every request before the cache does. An error ends the stream.
func (p *peer) OnStreamDeltaRequest(_ int64, req *discovery.DeltaDiscoveryRequest) error {
	return p.fleet.onRequest(p, req)
}

// OnStreamDeltaResponse sees every response just before it is sent.
func (p *peer) OnStreamDeltaResponse(_ int64, _ *discovery.DeltaDiscoveryRequest, response *discovery.DeltaDiscoveryResponse) {
	p.fleet.onResponse(p, response)
}
