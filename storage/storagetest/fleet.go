package storagetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

func node(id, domain string, seen time.Duration) rollout.Node {
	return rollout.Node{ID: id, Domain: domain, Program: "sidecar 0.1", Identity: "team-a", Connected: true, Seen: at.Add(seen), Sent: 7, Acked: 6, Nacked: 5}
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
	first.Level, first.Lineage, first.Refused = 3, "lineage", []string{"plan", "login \"ü\""}
	first.BreakGlass = []rollout.BreakGlass{{
		ID: "b1", At: at, Actor: "ann", Domain: "api", Freeze: rules.Freeze{Rule: "plan", Until: at.Add(time.Hour), IncludingClosed: true},
	}}
	first.NackReason = "rule plan: unknown field\x00"
	saveNodes(t, f.store, first, web)
	first.NackReason = "rule plan: unknown field\uFFFD" // a database cannot hold a NUL, and the node must not be lost
	wantNodes(t, other, "api", first)

	newer := node("n1", "api", time.Microsecond) // the smallest step of the clock counts
	newer.Acked, newer.Connected, newer.Departed, newer.Identity = 7, false, true, "team-b"
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

// A database that was restored has a fleet that saw its history go on.
func nodesAheadAreFound(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	head := mustChanges(t, f.store, 0)
	ahead := func() string {
		t.Helper()
		found := ""
		look(t, f.store, "api", func(tx rollout.Tx) {
			id, revision, err := tx.Ahead(t.Context())
			if err != nil {
				t.Fatalf("ahead: %v", err)
			}
			if id != "" {
				found = fmt.Sprint(id, " ", revision)
			}
		})
		return found
	}
	even, foreign, gone, far := node("a", "web", 0), node("b", "api", 0), node("c", "api", 0), node("d", "web", 0)
	even.Lineage, even.Acked = head.Lineage, head.Head
	foreign.Lineage, foreign.Acked = "other", 99
	gone.Lineage, gone.Acked, gone.Connected = head.Lineage, 99, false
	saveNodes(t, f.store, even, foreign, gone)
	wantSame(t, "nobody is ahead", ahead(), "")
	far.Lineage, far.Acked = head.Lineage, head.Head+1
	saveNodes(t, f.store, far)
	wantSame(t, "who is ahead", ahead(), fmt.Sprint("d ", head.Head+1))
}

// Replicas tell of one node at the same time. What its later stream says counts, whichever clock they have.
func nodesAreKeptByNewestStream(t *testing.T, f *fixture) {
	other := f.another(t)
	on := func(stream int64, seen time.Duration) rollout.Node {
		n := node("n1", "api", seen)
		n.Stream, n.Acked = stream, stream*1_000+int64(seen/time.Second)
		return n
	}
	for _, c := range []struct {
		what string
		save []rollout.Node
		want rollout.Node
	}{
		{"the first", []rollout.Node{on(5, 0)}, on(5, 0)},
		{"a later stream, by a slow clock", []rollout.Node{on(6, -10*time.Second)}, on(6, -10*time.Second)},
		{"an earlier stream, seen later", []rollout.Node{on(5, 40*time.Second)}, on(6, -10*time.Second)},
		{"the same stream, seen earlier", []rollout.Node{on(6, -11*time.Second)}, on(6, -10*time.Second)},
		{"the same stream, seen later", []rollout.Node{on(6, 0)}, on(6, 0)},
		{"an earlier stream after almost a minute", []rollout.Node{on(1, 59*time.Second)}, on(6, 0)},
		{"an earlier stream after more than a minute", []rollout.Node{on(1, 61*time.Second)}, on(1, 61*time.Second)},
		{"a later stream, seen long before", []rollout.Node{on(2, -time.Hour)}, on(2, -time.Hour)},
		{"several in one list", []rollout.Node{on(4, 0), on(3, time.Second), on(4, -time.Second)}, on(4, 0)},
	} {
		saveNodes(t, f.store, c.save...)
		t.Log(c.what)
		wantNodes(t, other, "", c.want)
	}
}

func silentNodesAreForgotten(t *testing.T, f *fixture) {
	saveNodes(t, f.store, node("old", "api", -time.Microsecond), node("old", "web", -time.Hour), node("n1", "api", 0), node("n2", "web", time.Hour))
	if n, err := f.store.ForgetNodes(t.Context(), at); n != 2 || err != nil {
		t.Fatalf("forget = %d, %v, want 2", n, err)
	}
	wantNodes(t, f.another(t), "", node("n1", "api", 0), node("n2", "web", time.Hour))
	if n, err := f.store.ForgetNodes(t.Context(), at); n != 0 || err != nil {
		t.Fatalf("forget again = %d, %v, want 0", n, err)
	}
}

func takenIsKeptByNewestRevision(t *testing.T, f *fixture) {
	save := func(list ...rollout.Taken) {
		t.Helper()
		if err := f.store.SaveTaken(t.Context(), list); err != nil {
			t.Fatalf("save what was taken: %v", err)
		}
	}
	want := func(domain string, list ...rollout.Taken) {
		t.Helper()
		got, err := f.another(t).Taken(t.Context(), domain)
		if err != nil {
			t.Fatalf("taken: %v", err)
		}
		slices.SortFunc(got, func(a, b rollout.Taken) int {
			return cmp.Or(strings.Compare(a.Rule, b.Rule), cmp.Compare(a.Level, b.Level))
		})
		wantSame(t, "taken of "+domain, append([]rollout.Taken{}, got...), append([]rollout.Taken{}, list...))
	}
	save()
	want("api")
	save(rollout.Taken{Domain: "api", Rule: "plan", Level: 1, Revision: 3}, rollout.Taken{Domain: "api", Level: 1, Revision: 2},
		rollout.Taken{Domain: "api", Rule: "plan", Level: 2, Revision: 7}, rollout.Taken{Domain: "web", Rule: "plan", Level: 1, Revision: 9})
	save(rollout.Taken{Domain: "api", Level: 1, Revision: 5}, rollout.Taken{Domain: "api", Level: 1, Revision: 6}, rollout.Taken{Domain: "api", Level: 1, Revision: 4},
		rollout.Taken{Domain: "api", Rule: "plan", Level: 1, Revision: 1})
	want("api", rollout.Taken{Domain: "api", Level: 1, Revision: 6}, rollout.Taken{Domain: "api", Rule: "plan", Level: 1, Revision: 3},
		rollout.Taken{Domain: "api", Rule: "plan", Level: 2, Revision: 7})
	want("web", rollout.Taken{Domain: "web", Rule: "plan", Level: 1, Revision: 9})
	want("API")
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
