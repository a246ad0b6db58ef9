package load

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/push"
)

// Linear serves the same resources from go-control-plane's LinearCache, for comparison. Its revision is the number in the
// cache's version, 1 at first.
type Linear struct {
	Addr     string
	cache    *cache.LinearCache
	list     []rules.Rule
	revision int64
	stop     func()
}

// NewLinear serves the rules of a control plane.
func NewLinear(ctx context.Context, p *Plane) (*Linear, error) {
	list, err := p.service.Rules(ctx, Domain)
	if err != nil {
		return nil, err
	}
	resources := make(map[string]types.Resource, len(list))
	for i := range list {
		if resources[list[i].ID()], err = linearResource(&list[i]); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Linear{
		Addr: listener.Addr().String(), list: list, revision: 1,
		cache: cache.NewLinearCache(xds.TypeURL, cache.WithVersionPrefix("linear@")),
	}
	l.cache.SetResources(resources)
	streams, endStreams := context.WithCancel(context.Background())
	s := grpc.NewServer(push.ServerOptions()...)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, linearService{delta: delta.NewServer(streams, l.cache, nil)})
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(listener) })
	l.stop = func() { endStreams(); s.Stop(); serving.Wait() }
	return l, nil
}

func linearResource(r *rules.Rule) (types.Resource, error) {
	resource, err := xds.EncodeRule(r)
	if err != nil {
		return nil, err
	}
	return xds.Unwrap(resource)
}

type linearService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	delta delta.Server
}

func (s linearService) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(stream, resource.AnyType)
}

// Stop ends the server.
func (l *Linear) Stop() { l.stop() }

// Change changes the rule, as [Plane.Change] does, and returns when it began: there is no database to wait for.
func (l *Linear) Change(_ context.Context, rule int, to rules.Percent) (revision int64, at time.Time, err error) {
	r := l.list[rule]
	r.Candidate, r.Percent = r.Stable, to
	changed, err := linearResource(&r)
	if err != nil {
		return 0, time.Time{}, err
	}
	at = time.Now()
	if err := l.cache.UpdateResource(r.ID(), changed); err != nil {
		return 0, time.Time{}, fmt.Errorf("change %s in the linear cache: %w", r.ID(), err)
	}
	l.revision++
	return l.revision, at, nil
}
