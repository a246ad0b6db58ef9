package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

func changesAreExact(t *testing.T, f *fixture) {
	empty := mustChanges(t, f.store, 0)
	if empty.Head != 0 || empty.Lineage == "" || len(empty.Domains) != 0 || len(empty.Rules) != 0 {
		t.Fatalf("changes of an empty database: %+v", empty)
	}
	create(t, f.store, "api", "a", "b") // 1
	create(t, f.store, "web", "c")      // 2
	promote(t, f.store, "b", 10)        // 3
	create(t, f.store, "api", "d")      // 4
	for _, c := range []struct {
		since   int64
		domains map[string]int64
		rules   []string
	}{
		{0, map[string]int64{"api": 4, "web": 2}, []string{"api/a", "api/b", "api/d", "web/c"}},
		{1, map[string]int64{"api": 4, "web": 2}, []string{"api/b", "api/d", "web/c"}},
		{2, map[string]int64{"api": 4}, []string{"api/b", "api/d"}},
		{3, map[string]int64{"api": 4}, []string{"api/d"}},
		{4, map[string]int64{}, nil},
		{5, map[string]int64{}, nil}, // a client that is ahead of this replica
	} {
		got := mustChanges(t, f.store, c.since)
		if got.Head != 4 || got.Lineage != empty.Lineage {
			t.Errorf("changes since %d: head %d, lineage %q, want 4, %q", c.since, got.Head, got.Lineage, empty.Lineage)
		}
		domains := map[string]int64{}
		for _, d := range got.Domains {
			domains[d.Name] = d.Revision
		}
		wantSame(t, fmt.Sprintf("domains since %d", c.since), domains, c.domains)
		wantSame(t, fmt.Sprintf("rules since %d", c.since), append([]string(nil), ids(got.Rules)...), c.rules)
	}
	// A change of a domain without a change of a rule.
	commit(t, f.store, "web", rollout.ActionApply, func(rollout.Tx) []rules.Rule { return nil })
	c := mustChanges(t, f.store, 4)
	if c.Head != 5 || len(c.Rules) != 0 || len(c.Domains) != 1 || c.Domains[0].Revision != 5 {
		t.Fatalf("changes since 4: %+v, want domain web alone", c)
	}
}

// Each commit adds one to the percentages of two rules. A reader that saw a number before its contents, or one table
// newer than another, would find something else than the head says.
func changesAreOneSnapshot(t *testing.T, f *fixture) {
	const commits = 60
	create(t, f.store, "api", "a", "b") // 1: percent 0
	other := f.another(t)
	ctx := t.Context()
	var written atomic.Bool
	var g errgroup.Group
	g.Go(func() error {
		defer written.Store(true)
		for range commits {
			_, err := f.store.Commit(ctx, "api", func(tx rollout.Tx) (*rollout.Change, error) {
				list, err := tx.Rules(ctx)
				for i := range list {
					list[i].Percent++
				}
				return changeOf("api", rollout.ActionPromote, list...), err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, reader := range []storage.Store{f.store, other} {
		g.Go(func() error {
			last := int64(0)
			for done := false; !done; {
				done = written.Load() // and once more after the last commit
				c, err := reader.Changes(ctx, 0)
				if err != nil {
					return err
				}
				if c.Head < last {
					return fmt.Errorf("head went from %d back to %d", last, c.Head)
				}
				last = c.Head
				if c.Domains[0].Revision != c.Head {
					return fmt.Errorf("head is %d, the domain's revision %d", c.Head, c.Domains[0].Revision)
				}
				for _, r := range c.Rules {
					if r.Revision != c.Head || int64(r.Percent) != c.Head-1 {
						return fmt.Errorf("head is %d, %s of revision %d has %d", c.Head, r.ID(), r.Revision, r.Percent)
					}
				}
			}
			if last != commits+1 {
				return fmt.Errorf("the last head is %d, want %d", last, commits+1)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func lineageAndSecretsAreKept(t *testing.T, f *fixture) {
	create(t, f.store, "api", "a")
	create(t, f.store, "web", "a")
	first := mustChanges(t, f.store, 0)
	if first.Domains[0].Secret == first.Domains[1].Secret || first.Domains[0].Secret == [16]byte{} {
		t.Fatal("the domains share a secret, or have none")
	}
	promote(t, f.store, "a", 10)
	again := mustChanges(t, f.another(t), 0)
	if again.Lineage != first.Lineage {
		t.Errorf("lineage %q, and %q through another store", first.Lineage, again.Lineage)
	}
	for i, d := range again.Domains {
		if d.Secret != first.Domains[i].Secret {
			t.Errorf("the secret of %s changed: all its counters would start anew", d.Name)
		}
	}
}

// started waits until a new watch hears: where it needs a connection, it signals when that is made.
func (f *fixture) started(t *testing.T, signals <-chan struct{}) {
	t.Helper()
	if f.BreakWatches != nil {
		take(t, signals)
	}
}

// take waits for a signal.
func take(t *testing.T, signals <-chan struct{}) {
	t.Helper()
	select {
	case _, ok := <-signals:
		if !ok {
			t.Fatal("the watch ended")
		}
	case <-time.After(patience):
		t.Fatal("no signal came")
	}
}

// ended waits until a watch is closed.
func ended(t *testing.T, signals <-chan struct{}) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case _, ok := <-signals:
			if !ok {
				return
			}
		case <-late:
			t.Fatal("the watch did not end")
		}
	}
}

// follow reads after each signal until the head is there, as push does.
func follow(t *testing.T, s storage.Store, signals <-chan struct{}, head int64) {
	t.Helper()
	for {
		take(t, signals)
		if mustChanges(t, s, 0).Head >= head {
			return
		}
	}
}

func watchHearsOfCommits(t *testing.T, f *fixture) {
	other := f.another(t)
	mine, also := f.store.Watch(t.Context()), other.Watch(t.Context())
	f.started(t, mine)
	f.started(t, also)
	for _, committer := range []storage.Store{f.store, other} {
		name := rules.NewUID()
		head := create(t, committer, "api", name)
		follow(t, f.store, mine, head)
		follow(t, other, also, head)
	}
}

func watchDropsWhatNobodyTakes(t *testing.T, f *fixture) {
	signals := f.store.Watch(t.Context())
	f.started(t, signals)
	last := f.store.Watch(t.Context())
	f.started(t, last)
	for i := range 20 {
		follow(t, f.store, last, create(t, f.store, "api", fmt.Sprintf("rule-%d", i)))
	}
	// Nobody listened to signals, and no commit waited for it. One signal is enough to catch up.
	follow(t, f.store, signals, 20)
	head := create(t, f.store, "api", "late")
	follow(t, f.store, signals, head)
}

// Signals may be lost, all of them. Who polls finds the same.
func pollFindsWhatNoSignalTold(t *testing.T, f *fixture) {
	other := f.another(t)
	since := mustChanges(t, f.store, 0).Head
	for i := range int64(3) {
		head := create(t, other, "api", fmt.Sprintf("rule-%d", i))
		c := mustChanges(t, f.store, since)
		wantSame(t, "head", c.Head, head)
		wantSame(t, "rules", ids(c.Rules), []string{fmt.Sprintf("api/rule-%d", i)})
		since = c.Head
	}
	wantSame(t, "rules when nothing happened", len(mustChanges(t, f.store, since).Rules), 0)
}

// Where signals need no connection, nothing is cut, and the same must hold.
func watchSurvivesABrokenConnection(t *testing.T, f *fixture) {
	other := f.another(t)
	signals := f.store.Watch(t.Context())
	f.started(t, signals)
	create(t, other, "api", "before")
	follow(t, f.store, signals, 1)
	if f.BreakWatches != nil {
		f.BreakWatches(t)
	}
	// Committed while nobody listens: the signal of the new connection stands for it, and Changes is the truth.
	follow(t, f.store, signals, create(t, other, "api", "meanwhile"))
	// At most two signals can be left over from that, the new connection's and the change's. Five times in a row the
	// connection must have delivered.
	for i := range 5 {
		follow(t, f.store, signals, create(t, other, "api", fmt.Sprintf("after-%d", i)))
	}
}

func watchEnds(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	signals, stays := f.store.Watch(ctx), f.store.Watch(t.Context())
	f.started(t, stays)
	cancel()
	ended(t, signals)
	ended(t, f.store.Watch(ctx))

	follow(t, f.store, stays, create(t, f.store, "api", "plan"))
	if err := f.store.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	ended(t, stays)
	ended(t, f.store.Watch(t.Context()))
	if _, err := f.store.Changes(t.Context(), 0); !errors.Is(err, rules.ErrUnavailable) {
		t.Fatalf("changes of a closed store: %v, want unavailable", err)
	}
}
