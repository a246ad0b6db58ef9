package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// writing runs a writer on the store until stop.
func writing(t *testing.T, st *store) (w *writer, stop func()) {
	t.Helper()
	w = newWriter(st, newServerMetrics(), slog.New(slog.DiscardHandler))
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	return w, func() { end(); running.Wait() }
}

func of(node string, numbers ...int64) tally.SourceWindows {
	s := tally.SourceWindows{Source: tally.Source{Node: node, Epoch: "e"}}
	for _, n := range numbers {
		s.Windows = append(s.Windows, tally.Window{Number: n})
	}
	return s
}

func TestWindowsOfManyStreamsShareATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		w, stop := writing(t, st)
		defer stop()
		began := time.Now()
		var savers sync.WaitGroup
		for i := range 100 {
			savers.Go(func() {
				if err := w.save(t.Context(), of(fmt.Sprint("n", i), 1, 2)); err != nil {
					t.Error(err)
				}
			})
		}
		savers.Wait()
		if took := time.Since(began); st.batches != 1 || len(st.windows) != 200 || took > time.Second {
			t.Errorf("%d windows in %d transactions after %v", len(st.windows), st.batches, took)
		}
	})
}

func TestNothingIsToldBeforeItIsCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		w, stop := writing(t, st)
		defer stop()
		tries := 0
		st.setMeddle(func(ctx context.Context, committed bool) error {
			if committed {
				return nil
			}
			switch tries++; tries {
			case 1, 2:
				return errAway
			case 3:
				<-ctx.Done() // it hangs
				return ctx.Err()
			}
			time.Sleep(3 * time.Second)
			return nil
		})
		told := make(chan error, 1)
		go func() { told <- w.save(t.Context(), of("n1", 1)) }()
		time.Sleep(13 * time.Second)
		select {
		case err := <-told:
			t.Errorf("told %v before it was stored", err)
		default:
		}
		if err := <-told; err != nil || tries != 4 || len(st.windows) != 1 {
			t.Errorf("told %v after %d tries, with %d windows stored", err, tries, len(st.windows))
		}
	})
}

// One source's windows that cannot be stored, whatever is wrong with them, keep no other's from it.
func TestWindowsThatCannotBeStoredHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		poison := errors.New("bigint out of range")
		w, stop := writing(t, st)
		defer stop()
		picky := pickySaver{store: st, refuses: "n3", err: poison}
		w.store = &picky
		var savers sync.WaitGroup
		for i := range 10 {
			savers.Go(func() {
				err := w.save(t.Context(), of(fmt.Sprint("n", i), 1))
				if want := i == 3; errors.Is(err, poison) != want || (err == nil) == want {
					t.Errorf("source n%d was told %v", i, err)
				}
			})
		}
		savers.Wait()
		if len(st.windows) != 9 {
			t.Errorf("%d windows are stored, want 9", len(st.windows))
		}
	})
}

// pickySaver fails for batches with windows of a node.
type pickySaver struct {
	*store
	refuses string
	err     error
}

func (p *pickySaver) SaveWindows(ctx context.Context, batch []tally.SourceWindows) error {
	if slices.ContainsFunc(batch, func(s tally.SourceWindows) bool { return s.Node == p.refuses }) {
		return p.err
	}
	return p.store.SaveWindows(ctx, batch)
}

func TestStreamThatEndedIsNotWrittenFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		st.setMeddle(func(context.Context, bool) error { return errAway })
		w, stop := writing(t, st)
		defer stop()
		for i := range 100 { // it comes again and again while the database is away
			ctx, end := context.WithTimeout(t.Context(), time.Second)
			if err := w.save(ctx, of("n1", 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("try %d: %v", i, err)
			}
			end()
		}
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		n := len(w.pending)
		w.mu.Unlock()
		if n > 1 {
			t.Errorf("%d jobs wait for nobody", n)
		}
	})
}

func TestWhatIsTakenIsStoredAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		w, stop := writing(t, st)
		saved := make(chan error, 1)
		go func() { saved <- w.save(t.Context(), of("n1", 1)) }()
		synctest.Wait()
		stop()
		if err := <-saved; err != nil || len(st.windows) != 1 {
			t.Errorf("told %v, %d windows are stored", err, len(st.windows))
		}
	})
}
