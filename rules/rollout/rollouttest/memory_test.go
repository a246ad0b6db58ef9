package rollouttest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/tallytest"
	"github.com/headgate/headgate/storage"
	"github.com/headgate/headgate/storage/storagetest"
)

func TestMemoryIsALedgerAsTheDatabasesAre(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(*testing.T) storagetest.Database {
		m, tallies := rollouttest.New(), tallytest.New()
		return storagetest.Database{Open: func(*testing.T) storage.Store { return open(m, tallies) }}
	})
}

// program is what opened a Memory as a database, with a tallytest.Memory beside it. One has it open at a time.
type program struct {
	*rollouttest.Memory
	tally.Store
	tallies *tallytest.Memory
	open    context.Context
	close   context.CancelFunc
	lead    chan struct{}
}

func open(m *rollouttest.Memory, tallies *tallytest.Memory) *program {
	m.Fail(nil)
	tallies.Fail(nil)
	p := &program{Memory: m, Store: tallies, tallies: tallies, lead: make(chan struct{}, 1)}
	p.open, p.close = context.WithCancel(context.Background())
	return p
}

var errClosed = fmt.Errorf("%w: it is closed", rules.ErrUnavailable)

func (p *program) Close() error {
	if p.open.Err() == nil {
		p.close()
		p.Fail(errClosed)
		p.tallies.Fail(errClosed)
	}
	return nil
}

func (p *program) Births(ctx context.Context, uids []string) (map[string]tally.Birth, error) {
	return p.Memory.Births(ctx, uids)
}

func (p *program) Prune(ctx context.Context, now time.Time) error {
	return cmp.Or(p.ForgetSessions(ctx, now), p.tallies.Prune(ctx, now))
}

// Missing is what the tallies know of, and what a node that nobody sees any more has not sent: they know no nodes.
func (p *program) Missing(ctx context.Context, from, to time.Time) ([]tally.Missing, error) {
	list, err := p.tallies.Missing(ctx, from, to)
	if err != nil {
		return nil, err
	}
	nodes, err := p.Nodes(ctx, "")
	if err != nil {
		return nil, err
	}
	sources, err := p.tallies.Sources(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		var seen time.Time
		for _, n := range nodes {
			if n.ID == s.Node && n.Seen.After(seen) {
				seen = n.Seen
			}
		}
		silent := !s.Stopped && seen.After(s.Until) && time.Since(seen) > tally.SilentFor
		if silent && s.Until.Before(to) && !seen.Before(from) {
			list = append(list, tally.Missing{Source: s.Source, From: s.Until, To: seen})
		}
	}
	slices.SortStableFunc(list, func(a, b tally.Missing) int {
		return cmp.Or(b.From.Compare(a.From), strings.Compare(a.Node, b.Node), strings.Compare(a.Epoch, b.Epoch))
	})
	return list, nil
}

func (p *program) Lead(ctx context.Context, run func(context.Context) error) error {
	if p.open.Err() != nil {
		return errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	context.AfterFunc(p.open, func() { cancel(errClosed) })
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case p.lead <- struct{}{}:
	}
	defer func() { <-p.lead }()
	return cmp.Or(run(ctx), context.Cause(ctx))
}

func (p *program) Watch(ctx context.Context) <-chan struct{} {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(p.open, cancel)
	return p.Memory.Watch(ctx)
}

func TestWhatMemoryReturnsIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	m := rollouttest.New()
	m.Put(t, "api", "60/min", "plan")
	for range 2 {
		list, err := m.Rules(t.Context(), "")
		if err != nil || len(list) != 1 || list[0].Stable.Spec.Limits[0].Rate.Amount != 60 {
			t.Fatalf("rules: %+v, %v; want one of 60 a minute", list, err)
		}
		list[0].Stable.Spec.Limits[0].Rate.Amount = 1
	}
}

func TestMemoryDoesWhatTestsAskFor(t *testing.T) {
	t.Parallel()
	m := rollouttest.New()
	signals := m.Watch(t.Context())
	m.Quiet(true)
	if revision := m.Put(t, "api", "60/min", "plan", "login"); revision != 1 || len(signals) != 0 {
		t.Errorf("a quiet change made revision %d with %d signals, want revision 1 and none", revision, len(signals))
	}
	m.Quiet(false)
	m.Restore("two")
	<-signals
	if revision := m.Put(t, "api", "5/min", "plan"); revision != 1 {
		t.Errorf("the first revision of the restored history is %d, want 1", revision)
	}
	c, err := m.Changes(t.Context(), 0)
	if err != nil || c.Lineage != "two" || len(c.Rules) != 1 || c.Rules[0].Stable.Spec.Limits[0].Rate.Amount != 5 || m.Reads() != 1 {
		t.Errorf("changes: %+v, %v, the read number %d; want the rule of lineage two, and one read", c, err, m.Reads())
	}
	away := errors.New("away")
	m.Fail(away)
	if _, err := m.Rules(t.Context(), ""); !errors.Is(err, away) {
		t.Errorf("rules: %v, want that it fails as told", err)
	}
	m.Fail(nil)

	go func() {
		if err := m.SaveNodes(t.Context(), []rollout.Node{{ID: "n1", Domain: "api", Acked: 1}}); err != nil {
			t.Error(err)
		}
	}()
	m.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Acked == 1 })
}
