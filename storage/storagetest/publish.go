package storagetest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

func committersTakeTurns(t *testing.T, f *fixture) {
	const committers = 200
	create(t, f.store, "api", "plan")
	stores := []storage.Store{f.store, f.another(t)}

	revisions := make([]int64, committers)
	g, ctx := errgroup.WithContext(t.Context())
	for i := range committers {
		g.Go(func() (err error) {
			revisions[i], err = addPercent(ctx, stores[i%2], "api", "plan")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("commit: %v", err)
	}

	slices.Sort(revisions)
	for i, revision := range revisions {
		if revision != int64(i)+2 {
			t.Fatalf("revisions %v, want 2 to %d without gaps", revisions, committers+1)
		}
	}
	plan := mustRules(t, f.store, "api")[0]
	if plan.Percent != committers {
		t.Fatalf("%d committers added one each, the sum is %d: an update was lost", committers, plan.Percent)
	}
	for i, e := range mustHistory(t, f.store, "plan") {
		// Each saw what its predecessor left: number order is the order of the changes.
		if e.Rule.Revision != int64(i)+1 || e.Rule.Percent != rules.Percent(i) {
			t.Fatalf("history[%d] is revision %d with %d, want %d with %d", i, e.Rule.Revision, e.Rule.Percent, i+1, i)
		}
	}
	verify(t, f.store)
	for i, r := range mustAudit(t, f.store, "", 1_000) {
		if want := int64(committers + 1 - i); r.Revision != want {
			t.Fatalf("audit record %d is of revision %d, want %d", i, r.Revision, want)
		}
	}
}

// publish makes spec(amount) the next candidate of api/plan, unless somebody has changed the rule since base.
func publish(ctx context.Context, s storage.Store, base, amount int64) (int64, error) {
	return s.Commit(ctx, "api", func(tx rollout.Tx) (*rollout.Change, error) {
		r, err := tx.Rule(ctx, "plan")
		if err != nil {
			return nil, err
		}
		if r.Revision != base {
			return nil, &rules.ConflictError{Rule: r.ID(), State: r.State(), Hint: "look at it and publish again"}
		}
		r.Candidate = &rules.Version{Number: r.Candidate.Number + 1, Spec: spec(amount)}
		return changeOf("api", rollout.ActionApply, r), nil
	})
}

// Many publish on what they all have seen: one wins, all others are told, and nothing of theirs is left.
func onePublisherWinsPerBase(t *testing.T, f *fixture) {
	const publishers, rounds = 200, 3
	base := create(t, f.store, "api", "plan")
	stores := []storage.Store{f.store, f.another(t)}
	won := []int64{60} // the amounts of the winners
	for round := range int64(rounds) {
		var winner, winners atomic.Int64
		var g errgroup.Group
		for i := range int64(publishers) {
			g.Go(func() error {
				amount := (round+1)*1_000 + i
				switch revision, err := publish(t.Context(), stores[i%2], base, amount); {
				case err == nil && revision == base+1:
					winner.Store(amount)
					winners.Add(1)
				case !errors.Is(err, rules.ErrConflict) || revision != 0:
					t.Errorf("publish on base %d = %d, %v, want %d or a conflict", base, revision, err, base+1)
				}
				return nil
			})
		}
		_ = g.Wait()
		if winners.Load() != 1 {
			t.Fatalf("%d won on base %d, want 1", winners.Load(), base)
		}
		won = append(won, winner.Load())
		base++
	}
	for i, e := range mustHistory(t, f.store, "plan") {
		wantSame(t, "revision", e.Rule.Revision, int64(i)+1)
		wantSame(t, "version", e.Rule.Candidate, &rules.Version{Number: int64(i) + 1, Spec: spec(won[i])})
	}
	wantSame(t, "audit records", len(mustAudit(t, f.store, "", 1_000)), rounds+1)
	verify(t, f.store)
}
