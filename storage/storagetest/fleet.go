package storagetest

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

func node(id, domain string, seen time.Duration) rollout.Node {
	return rollout.Node{ID: id, Domain: domain, Program: "sidecar 0.1", Connected: true, Seen: at.Add(seen), Sent: 7, Acked: 6, Nacked: 5}
}

func saveNodes(t *testing.T, s storage.Store, nodes ...rollout.Node) {
	t.Helper()
	if err := s.SaveNodes(t.Context(), nodes); err != nil {
		t.Fatalf("save nodes: %v", err)
	}
}

func wantNodes(t *testing.T, s storage.Store, domain string, want ...rollout.Node) {
	t.Helper()
	got, err := s.Nodes(t.Context(), domain)
	if err != nil {
		t.Fatalf("nodes of %q: %v", domain, err)
	}
	for _, n := range got {
		if n.Seen.Location() != time.UTC {
			t.Errorf("node %s was seen at %v, want UTC", n.ID, n.Seen)
		}
	}
	wantSame(t, "nodes of "+domain, append([]rollout.Node{}, got...), append([]rollout.Node{}, want...))
}

func nodesAreKeptByNewestSight(t *testing.T, f *fixture) {
	other := f.another(t)
	saveNodes(t, f.store)
	wantNodes(t, f.store, "")

	first, web := node("n1", "api", 0), node("n1", "web", time.Hour)
	first.NackReason = "rule plan: unknown field\x00"
	saveNodes(t, f.store, first, web)
	first.NackReason = "rule plan: unknown field\uFFFD" // a database cannot hold a NUL, and the node must not be lost
	wantNodes(t, other, "api", first)

	newer := node("n1", "api", time.Microsecond) // the smallest step of the clock counts
	newer.Acked, newer.Connected, newer.Departed = 7, false, true
	saveNodes(t, other, newer)
	wantNodes(t, f.store, "", newer, web)

	older := node("n1", "api", -time.Microsecond)
	saveNodes(t, f.store, older, web)
	wantNodes(t, f.store, "", newer, web)

	// At the same instant the later word counts, as in one list.
	again := newer
	again.Acked = 8
	saveNodes(t, f.store, again)
	wantNodes(t, f.store, "api", again)
	newest, dup := node("n1", "api", 3*time.Second), node("n1", "api", 2*time.Second)
	saveNodes(t, f.store, newest, dup)
	wantNodes(t, f.store, "api", newest)

	zoned := node("n2", "api", 0)
	zoned.Seen = zoned.Seen.In(time.FixedZone("", -3600)).Add(999)
	saveNodes(t, f.store, zoned)
	zoned.Seen = at
	wantNodes(t, f.store, "api", newest, zoned)
}

func nodesAreSorted(t *testing.T, f *fixture) {
	saveNodes(t, f.store, node("b", "api", 0), node("a-1", "web", 0), node("B", "api", 0), node("a", "web", 0), node("a0", "api", 0), node("a", "api", 0))
	wantNodes(t, f.store, "", node("B", "api", 0), node("a", "api", 0), node("a", "web", 0), node("a-1", "web", 0), node("a0", "api", 0), node("b", "api", 0))
	wantNodes(t, f.store, "web", node("a", "web", 0), node("a-1", "web", 0))
	wantNodes(t, f.store, "Web")
}

// Replicas save overlapping sets of nodes at the same time: none may fail over the other's locks, and the newest wins.
func nodesSavedByManyAtOnce(t *testing.T, f *fixture) {
	const savers, nodes, rounds = 8, 101, 5
	stores := []storage.Store{f.store, f.another(t)}
	var g errgroup.Group
	for s := range savers {
		g.Go(func() error {
			list := make([]rollout.Node, nodes)
			for i := range list {
				n := (i*(2*s+1) + s*13) % nodes // each in another order: 101 is prime
				list[i] = node(fmt.Sprintf("n%03d", n), "api", time.Duration(s)*time.Second)
			}
			for range rounds {
				if err := stores[s%2].SaveNodes(t.Context(), list); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("save nodes: %v", err)
	}
	want := make([]rollout.Node, nodes)
	for i := range want {
		want[i] = node(fmt.Sprintf("n%03d", i), "api", (savers-1)*time.Second)
	}
	wantNodes(t, f.store, "api", want...)
}
