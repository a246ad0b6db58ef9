package report

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

const (
	// gatherFor is how long windows of other sources are waited for, to share a transaction.
	gatherFor = 200 * time.Millisecond
	// batchWindows is how many windows go in one transaction, about.
	batchWindows = 2000
	// saveWithin bounds one call of the database: one that hangs must not hold up everything for ever.
	saveWithin = 10 * time.Second
	// finishWithin bounds the write at the end.
	finishWithin = 2 * time.Second
)

// writer stores the windows of all streams, several in one transaction. Who saves waits until they are committed, so that
// no stream has more than one message here.
type writer struct {
	store   Store
	metrics *serverMetrics
	log     *slog.Logger
	wake    chan struct{} // holds a token when something waits

	mu      sync.Mutex
	pending []*job
}

// job is what one stream wants stored. Its stream may end before: then nobody waits for it, and it comes again.
type job struct {
	tally.SourceWindows
	ctx  context.Context // of the stream
	done chan error      // holds one
}

func newWriter(store Store, m *serverMetrics, log *slog.Logger) *writer {
	return &writer{store: store, metrics: m, log: log, wake: make(chan struct{}, 1)}
}

// save returns nil once the windows are committed.
func (w *writer) save(ctx context.Context, windows tally.SourceWindows) error {
	j := &job{SourceWindows: windows, ctx: ctx, done: make(chan error, 1)}
	w.metrics.waiting.Add(float64(len(windows.Windows)))
	defer w.metrics.waiting.Sub(float64(len(windows.Windows)))
	w.mu.Lock()
	w.pending = append(w.pending, j)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // a token is there already
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run stores until ctx ends, then once more what is left.
func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
		case <-w.wake:
			pause(ctx, gatherFor)
		}
		for batch := w.take(); len(batch) > 0; batch = w.take() {
			w.write(ctx, batch)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// take returns the oldest jobs, without those for which nobody waits any more.
func (w *writer) take() []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = awaited(w.pending)
	n, windows := 0, 0
	for n < len(w.pending) && windows < batchWindows {
		windows += len(w.pending[n].Windows)
		n++
	}
	batch := slices.Clone(w.pending[:n])
	w.pending = slices.Delete(w.pending, 0, n)
	return batch
}

func awaited(jobs []*job) []*job {
	return slices.DeleteFunc(jobs, func(j *job) bool { return j.ctx.Err() != nil })
}

// write stores the batch, however often that has to be tried while somebody waits for it. After ctx has ended it is tried
// once.
func (w *writer) write(ctx context.Context, batch []*job) {
	retry := &backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, MaxInterval: 5 * time.Second, Multiplier: 2, RandomizationFactor: 0.5}
	for failing := false; len(batch) > 0; batch = awaited(batch) {
		err := w.commit(ctx, batch)
		switch {
		case err == nil:
			if failing {
				w.log.Info("windows of nodes' counts are stored again")
			}
			finish(batch, nil)
			return
		case isPassing(err):
		case len(batch) > 1:
			// What one source says must not keep the others from being stored.
			for _, j := range batch {
				w.write(ctx, []*job{j})
			}
			return
		default:
			w.log.Error("windows of a node's counts cannot be stored", "node", batch[0].Node, "err", err)
			finish(batch, err) // it comes again, on another stream
			return
		}
		if !failing {
			w.log.Error("windows of nodes' counts cannot be stored: retrying", "err", err)
		}
		failing = true
		if !pause(ctx, retry.NextBackOff()) {
			finish(batch, err)
			return
		}
	}
}

// isPassing reports whether the database may only be away.
func isPassing(err error) bool {
	return errors.Is(err, rules.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func finish(batch []*job, err error) {
	for _, j := range batch {
		j.done <- err
	}
}

func (w *writer) commit(ctx context.Context, batch []*job) error {
	within := saveWithin
	if ctx.Err() != nil {
		ctx, within = context.WithoutCancel(ctx), finishWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	list := make([]tally.SourceWindows, len(batch))
	windows := 0
	for i, j := range batch {
		list[i] = j.SourceWindows
		windows += len(j.Windows)
	}
	if err := w.store.SaveWindows(ctx, list); err != nil {
		w.metrics.failed.Inc()
		return err
	}
	w.metrics.stored.Add(float64(windows))
	return nil
}
