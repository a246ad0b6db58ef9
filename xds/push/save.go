package push

import (
	"context"
	"time"

	"github.com/headgate/headgate/rules/rollout"
)

const (
	// seenEvery is how often the nodes with an open stream are written as seen. Readers count three of these as away.
	seenEvery = 10 * time.Second
	// saveWithin bounds one write: a database that hangs must not hold the newest state back for ever.
	saveWithin = 5 * time.Second
	// lastWithin bounds the write at the end.
	lastWithin = 2 * time.Second
)

// Run writes changed records to the store until ctx ends, then once more what is left, and returns nil. End it after the
// gRPC server has stopped, so that the nodes are written as disconnected.
//
// A change is written at once; what changes during a write goes with the next one, in its newest state. So a thousand
// nodes that answer together cost a few writes, and a node that answers alone waits for nothing.
func (f *Fleet) Run(ctx context.Context) error {
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	retry := newBackoff(100*time.Millisecond, 5*time.Second)
	failing := false
	for {
		var again <-chan time.Time
		wake := f.wake
		if failing {
			// New answers must not cut the wait short: they join the batch.
			again, wake = time.After(retry.NextBackOff()), nil
		}
		select {
		case <-ctx.Done():
			return f.saveLast(ctx)
		case <-wake:
		case <-again:
		case <-tick.C:
			f.refreshSeen()
		}
		err := f.save(ctx, saveWithin)
		switch {
		case ctx.Err() != nil: // saved once more above
		case err != nil && !failing:
			f.log.Error("node states cannot be saved: retrying", "err", err)
		case err == nil && failing:
			f.log.Info("node states are saved again")
		}
		if failing = err != nil; !failing {
			retry.Reset()
		}
	}
}

func (f *Fleet) saveLast(ctx context.Context) error {
	if err := f.save(context.WithoutCancel(ctx), lastWithin); err != nil {
		f.log.Error("last node states were not saved", "err", err)
	}
	return nil
}

// refreshSeen stamps the records of the open streams.
func (f *Fleet) refreshSeen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.current {
		for domain := range s.parts {
			if r := f.records[recordKey{s.node, domain}]; r != nil {
				f.touch(r)
			}
		}
	}
}

// save writes the dirty records. On an error they are dirty again, and the next attempt writes what they are then.
func (f *Fleet) save(ctx context.Context, within time.Duration) error {
	f.mu.Lock()
	batch := make([]rollout.Node, 0, len(f.dirty))
	for key := range f.dirty {
		batch = append(batch, f.records[key].Node)
	}
	clear(f.dirty)
	f.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := f.store.SaveNodes(ctx, batch)

	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range batch {
		key := recordKey{n.ID, n.Domain}
		_, changed := f.dirty[key]
		switch {
		case err != nil:
			f.dirty[key] = struct{}{}
		case !n.Connected && !changed:
			// The store has it now, and the node says everything again when it returns.
			delete(f.records, key)
		}
	}
	return err
}
