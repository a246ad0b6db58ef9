package push

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/xds"
)

// store keeps the newest state of each node. While err is set it fails.
type store struct {
	mu    sync.Mutex
	err   error
	saves int
	tries int
	nodes map[recordKey]rollout.Node

	forgot []time.Time
	taken  []rollout.Taken
}

func (s *store) SaveNodes(_ context.Context, nodes []rollout.Node) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.err != nil {
		return s.err
	}
	s.saves++
	for _, n := range nodes {
		key := recordKey{n.ID, n.Domain}
		if n.Seen.After(s.nodes[key].Seen) {
			s.nodes[key] = n
		}
	}
	return nil
}

func (s *store) Nodes(context.Context, string) ([]rollout.Node, error) { return nil, nil }

func (s *store) ForgetNodes(_ context.Context, seenBefore time.Time) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgot = append(s.forgot, seenBefore)
	return 0, s.err
}

func (s *store) SaveTaken(_ context.Context, taken []rollout.Taken) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, taken...)
	return s.err
}

func (s *store) Taken(context.Context, string) ([]rollout.Taken, error) { return nil, nil }

func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *store) node(id string) rollout.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[recordKey{id, "api"}]
}

// counts returns the attempts, the successful writes and the nodes known.
func (s *store) counts() (tries, saves, nodes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries, s.saves, len(s.nodes)
}

func newStore() *store { return &store{nodes: map[recordKey]rollout.Node{}} }

func newTestFleet(t testing.TB, s rollout.Fleet, o FleetOptions) *Fleet {
	t.Helper()
	f, err := NewFleet(s, NewCache(CacheOptions{}), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newTestPeer(f *Fleet) *peer {
	p := newPeer(f.cache, f)
	p.identity = access.Local("test")
	return p
}

func hello(node string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{
		TypeUrl: xds.TypeURL, Node: &core.Node{Id: node}, ResourceNamesSubscribe: []string{"api"},
	}
}

// push sends a revision on the stream and returns its nonce.
func (p *peer) push(revision int64) string {
	nonce := fmt.Sprint(revision)
	p.fleet.onResponse(p, &discovery.DeltaDiscoveryResponse{
		Nonce: nonce, Resources: []*discovery.Resource{{Name: "api", Version: xds.DomainVersion("one", revision)}},
	})
	return nonce
}

func (p *peer) ack(t *testing.T, nonce string) {
	t.Helper()
	if err := p.fleet.onRequest(p, &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResponseNonce: nonce}); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, f *Fleet, node string) *peer {
	t.Helper()
	p := newTestPeer(f)
	if err := f.onRequest(p, hello(node)); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewerStreamOfANodeWins(t *testing.T) {
	t.Parallel()
	s := newStore()
	f := newTestFleet(t, s, FleetOptions{})
	old := open(t, f, "n1")
	late := old.push(3)
	newer := open(t, f, "n1")
	newer.ack(t, newer.push(4))
	old.ack(t, late)
	f.onClosed(old)
	if err := f.save(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if n := s.node("n1"); !n.Connected || n.Acked != 4 || n.Sent != 4 {
		t.Errorf("the old stream changed the node: %+v", n)
	}
	f.onClosed(newer)
	if err := f.save(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if n := s.node("n1"); n.Connected {
		t.Errorf("still connected: %+v", n)
	}
	if len(f.records)+len(f.current)+len(f.dirty) != 0 {
		t.Errorf("a node that left leaves %d records, %d current, %d dirty", len(f.records), len(f.current), len(f.dirty))
	}
}

// A newer stream takes only the domains that it names. A late answer of the old one must not bring a domain back to it.
func TestNewerStreamLeavesTheOtherDomainsToTheOld(t *testing.T) {
	t.Parallel()
	s := newStore()
	f := newTestFleet(t, s, FleetOptions{})
	both := hello("n1")
	both.ResourceNamesSubscribe = []string{"api", "other"}
	old := newTestPeer(f)
	if err := f.onRequest(old, both); err != nil {
		t.Fatal(err)
	}
	if f.current[recordKey{"n1", "api"}] != f.current[recordKey{"n1", "other"}] {
		t.Fatal("two domains of one stream are two streams")
	}
	newer := open(t, f, "n1")
	old.ack(t, old.push(3))
	newer.ack(t, newer.push(4))
	f.onResponse(old, &discovery.DeltaDiscoveryResponse{
		Nonce: "x", Resources: []*discovery.Resource{{Name: "other", Version: xds.DomainVersion("one", 5)}},
	})
	old.ack(t, "x")
	if err := f.onRequest(old, hello("n1")); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("the old stream may claim the domain again: %v", err)
	}
	want := func(domain string, connected bool, acked int64) {
		t.Helper()
		if err := f.save(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if n := s.nodes[recordKey{"n1", domain}]; n.Connected != connected || n.Acked != acked {
			t.Errorf("%s: got %+v", domain, n)
		}
	}
	want("api", true, 4)
	want("other", true, 5)
	f.onClosed(old)
	want("api", true, 4)
	want("other", false, 5)
	f.onClosed(newer)
	want("api", false, 4)
	if len(f.records)+len(f.current) != 0 {
		t.Errorf("%d records, %d current are left", len(f.records), len(f.current))
	}
}

func TestSavesTheNewestStateWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		f := newTestFleet(t, s, FleetOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = f.Run(ctx); close(done) }()

		s.fail(errors.New("database is away"))
		p := open(t, f, "n1")
		for revision := int64(1); revision <= 50; revision++ {
			p.ack(t, p.push(revision))
			time.Sleep(time.Second) // of the bubble
		}
		if n, _, _ := s.counts(); n < 8 || n > 40 {
			t.Errorf("%d tries in 50 s, want one in about every 5 s at the end", n)
		}
		s.fail(nil)
		time.Sleep(10 * time.Second)
		if n := s.node("n1"); n.Acked != 50 || !n.Connected {
			t.Errorf("saved %+v", n)
		}
		f.onClosed(p)
		cancel()
		<-done
		if n := s.node("n1"); n.Connected || n.Acked != 50 {
			t.Errorf("saved at the end %+v", n)
		}
	})
}

func TestOpenStreamsAreSeenEveryTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		f := newTestFleet(t, s, FleetOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = f.Run(ctx); close(done) }()
		open(t, f, "stays")
		leaves := open(t, f, "leaves")
		time.Sleep(15 * time.Second)
		f.onClosed(leaves)
		time.Sleep(60 * time.Second)
		if silent := time.Since(s.node("stays").Seen); silent > seenEvery {
			t.Errorf("seen %v ago", silent)
		}
		if silent := time.Since(s.node("leaves").Seen); silent != 60*time.Second {
			t.Errorf("the node that left was seen %v ago", silent)
		}
		if _, saves, _ := s.counts(); saves > 11 {
			t.Errorf("%d writes in 75 s", saves)
		}
		cancel()
		<-done
	})
}

func TestChangesDuringAWriteShareTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		f := newTestFleet(t, s, FleetOptions{})
		for i := range int64(1000) {
			open(t, f, fmt.Sprintf("n%d", i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = f.Run(ctx); close(done) }()
		synctest.Wait()
		if _, saves, nodes := s.counts(); saves > 2 || nodes != 1000 {
			t.Errorf("%d writes for %d nodes", saves, nodes)
		}
		cancel()
		<-done
	})
}
