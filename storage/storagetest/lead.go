package storagetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/storage"
)

// contender is one who wants to lead.
type contender struct {
	leads chan context.Context // each time it does
	quit  chan error           // ends it, and Lead returns that
	ended chan error           // what Lead returned
}

func contend(ctx context.Context, s storage.Store) *contender {
	c := &contender{leads: make(chan context.Context), quit: make(chan error), ended: make(chan error, 1)}
	go func() {
		c.ended <- s.Lead(ctx, func(ctx context.Context) error {
			select {
			case c.leads <- ctx:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-c.quit:
				return err
			}
		})
	}()
	return c
}

func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
	return v
}

func oneLeads(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	first := contend(ctx, f.store)
	leading := await(t, "the first leads", first.leads)
	second := contend(t.Context(), f.another(t))
	select {
	case <-second.leads:
		t.Fatal("two lead")
	case <-leading.Done():
		t.Fatal("the first no longer leads")
	case <-time.After(1_500 * time.Millisecond): // longer than the lock is not tried for
	}
	cancel()
	if err := await(t, "the first ends", first.ended); !errors.Is(err, context.Canceled) {
		t.Errorf("lead: %v, want that it was canceled", err)
	}
	await(t, "the second leads", second.leads)
	enough := errors.New("enough")
	second.quit <- enough
	if err := await(t, "the second ends", second.ended); !errors.Is(err, enough) {
		t.Errorf("lead: %v, want what its run returned", err)
	}
	third := contend(t.Context(), f.store)
	await(t, "the third leads", third.leads)
	third.quit <- nil
	if err := await(t, "the third ends", third.ended); err != nil {
		t.Errorf("lead: %v, want what its run returned", err)
	}
}

// A leader whose connection dies finds out and stops, another one takes over, and the first waits its turn.
func leadersAreFollowed(t *testing.T, f *fixture) {
	if f.KillLeader == nil {
		return // there is no connection to lose
	}
	first := contend(t.Context(), f.store)
	leading := await(t, "the first leads", first.leads)
	second := contend(t.Context(), f.another(t))
	for range 2 {
		f.KillLeader(t)
		await(t, "the leader finds out", leading.Done())
		select {
		case leading = <-second.leads:
		case leading = <-first.leads: // it was quicker to come back
		case <-time.After(patience):
			t.Fatalf("nobody leads within %v", patience)
		}
		if leading.Err() != nil {
			t.Fatal("the one who leads has lost it already")
		}
	}
}

func closeEndsLeading(t *testing.T, f *fixture) {
	c := contend(t.Context(), f.store)
	leading := await(t, "it leads", c.leads)
	if err := f.store.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	await(t, "it no longer leads", leading.Done())
	if err := await(t, "it ends", c.ended); err == nil {
		t.Error("lead: no error after Close")
	}
}
