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

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
)

// store keeps the newest state of each node. While err is set it fails.
type store struct {
	mu    sync.Mutex
	err   error
	saves int
	tries int
	nodes map[recordKey]rollout.Node
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

func hello(node string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{
		TypeUrl: xds.TypeURL, Node: &core.Node{Id: node}, ResourceNamesSubscribe: []string{"api"},
	}
}

func push(f *Fleet, stream, revision int64) string {
	nonce := fmt.Sprint(revision)
	f.onResponse(stream, &discovery.DeltaDiscoveryResponse{
		Nonce: nonce, Resources: []*discovery.Resource{{Name: "api", Version: xds.DomainVersion("one", revision)}},
	})
	return nonce
}

func ack(t *testing.T, f *Fleet, stream int64, nonce string) {
	t.Helper()
	if err := f.onRequest(stream, &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResponseNonce: nonce}); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, f *Fleet, stream int64, node string) {
	t.Helper()
	if err := f.onRequest(stream, hello(node)); err != nil {
		t.Fatal(err)
	}
}

func TestNewerStreamOfANodeWins(t *testing.T) {
	t.Parallel()
	s := newStore()
	f := NewFleet(s, NewCache(CacheOptions{}), nil)
	open(t, f, 1, "n1")
	late := push(f, 1, 3)
	open(t, f, 2, "n1")
	ack(t, f, 2, push(f, 2, 4))
	ack(t, f, 1, late)
	f.onClosed(1)
	if err := f.save(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if n := s.node("n1"); !n.Connected || n.Acked != 4 || n.Sent != 4 {
		t.Errorf("the old stream changed the node: %+v", n)
	}
	f.onClosed(2)
	if err := f.save(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if n := s.node("n1"); n.Connected {
		t.Errorf("still connected: %+v", n)
	}
	if len(f.records)+len(f.streams)+len(f.current)+len(f.dirty) != 0 {
		t.Errorf("a node that left leaves %d records, %d streams, %d current, %d dirty", len(f.records), len(f.streams), len(f.current), len(f.dirty))
	}
}

func TestSavesTheNewestStateWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		f := NewFleet(s, NewCache(CacheOptions{}), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = f.Run(ctx); close(done) }()

		s.fail(errors.New("database is away"))
		open(t, f, 1, "n1")
		for revision := int64(1); revision <= 50; revision++ {
			ack(t, f, 1, push(f, 1, revision))
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
		f.onClosed(1)
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
		f := NewFleet(s, NewCache(CacheOptions{}), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = f.Run(ctx); close(done) }()
		open(t, f, 1, "stays")
		open(t, f, 2, "leaves")
		time.Sleep(15 * time.Second)
		f.onClosed(2)
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
		f := NewFleet(s, NewCache(CacheOptions{}), nil)
		for i := range int64(1000) {
			open(t, f, i, fmt.Sprintf("n%d", i))
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
