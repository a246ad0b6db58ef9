package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/push"
)

// Plane is a control plane with one domain.
type Plane struct {
	Addr    string
	store   *stamped
	service *rollout.Service
	stop    func()
}

// stamped is a store that notes when a change was acknowledged.
type stamped struct {
	rollout.Store
	mu sync.Mutex
	at map[int64]time.Time // by revision
}

func (s *stamped) Commit(ctx context.Context, domain string, decide func(rollout.Tx) (*rollout.Change, error)) (int64, error) {
	revision, err := s.Store.Commit(ctx, domain, decide)
	at := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[revision] = at
	return revision, err
}

func (s *stamped) committed(revision int64) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[revision]
}

var who = access.Local("fanout")

// NewPlane serves a store that is empty, on a loopback port, and puts n rules in force in one revision.
func NewPlane(ctx context.Context, store rollout.Store, n int) (*Plane, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Plane{Addr: listener.Addr().String(), store: &stamped{Store: store, at: map[int64]time.Time{}}}
	p.service = rollout.NewService(p.store, time.Now)

	log := slog.New(slog.DiscardHandler)
	cache := push.NewCache(push.CacheOptions{Log: log})
	fleet, err := push.NewFleet(p.store, cache, push.FleetOptions{Feed: p.store, BreakGlass: p.service.BreakGlass, Log: log})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := grpc.NewServer(append(push.ServerOptions(), grpc.StreamInterceptor(everybody))...)
	streams, endStreams := context.WithCancel(context.Background())
	push.Register(streams, server, cache, fleet)
	feed, endFeed := context.WithCancel(context.Background())
	saving, endSaving := context.WithCancel(context.Background())
	var serving, saved sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	serving.Go(func() { _ = cache.Run(feed, p.store, time.Second) })
	saved.Go(func() { _ = fleet.Run(saving) })
	p.stop = sync.OnceFunc(func() {
		endStreams()
		server.Stop()
		endFeed()
		serving.Wait()
		endSaving()
		saved.Wait()
	})
	if err := p.fill(ctx, n, cache); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// everybody may do everything, as on loopback without authentication.
func everybody(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, identified{stream})
}

type identified struct{ grpc.ServerStream }

func (s identified) Context() context.Context { return access.With(s.ServerStream.Context(), who) }

// Stop ends the control plane; the store is left open.
func (p *Plane) Stop() { p.stop() }

// fill returns when the rules are served.
func (p *Plane) fill(ctx context.Context, n int, cache *push.Cache) error {
	specs, err := decode(ruleFile(n))
	if err != nil {
		return err
	}
	out, err := p.service.Apply(ctx, Domain, rollout.Proposal{Rules: specs, Enforce: true, Confirmed: true}, rollout.Why{Who: who})
	if err != nil {
		return fmt.Errorf("put %d rules in force: %w", n, err)
	}
	for {
		if _, head, _ := cache.Head(); head == out.Revision {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// Try puts another spec of a rule in shadow, so that it can be changed by [Plane.Change].
func (p *Plane) Try(ctx context.Context, rule int) (revision int64, err error) {
	specs, err := decode(header + ruleText(rule, 700))
	if err != nil {
		return 0, err
	}
	out, err := p.service.Apply(ctx, Domain, rollout.Proposal{Rules: specs}, rollout.Why{Who: who})
	return out.Revision, err
}

// Change changes the rule, which has a candidate, and returns its revision and when that was acknowledged.
func (p *Plane) Change(ctx context.Context, rule int, to rules.Percent) (revision int64, at time.Time, err error) {
	out, err := p.service.Promote(ctx, Domain, ruleName(rule), to, rollout.Why{Who: who})
	return out.Revision, p.store.committed(out.Revision), err
}

// Head is the version of the domain at the head, and its revision.
func (p *Plane) Head(ctx context.Context) (version string, revision int64, err error) {
	head, err := p.store.Head(ctx)
	return xds.DomainVersion(head.Lineage, head.Revision), head.Revision, err
}

// AwaitNodes returns when all n nodes are written down as connected, with the revision acknowledged, or all of those
// known as disconnected.
func (p *Plane) AwaitNodes(ctx context.Context, n int, connected bool, revision int64) error {
	late := time.After(patience)
	for {
		nodes, err := p.store.Nodes(ctx, Domain)
		if err != nil {
			return err
		}
		are := 0
		for _, node := range nodes {
			if node.Connected == connected && (!connected || node.Acked == revision) {
				are++
			}
		}
		if are == n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("%d of %d nodes came to connected=%v with revision %d", are, n, connected, revision)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
