package push

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

const (
	// seenEvery is how often the nodes with an open stream are written as seen. Readers count three of these as away.
	seenEvery = 10 * time.Second
	// saveWithin bounds one write: a database that hangs must not hold the newest state back for ever.
	saveWithin = 5 * time.Second
	// forgetAfter is how long a node that says nothing is remembered, and forgetEvery how often that is looked at.
	forgetAfter = 30 * 24 * time.Hour
	forgetEvery = time.Hour
	// lastWithin bounds the write at the end.
	lastWithin = 2 * time.Second
)

// Run writes changed records to the store until ctx ends, then once more what is left, and returns nil. End it after the
// gRPC server has stopped, so that the nodes are written as disconnected.
//
// A change is written at once; what changes during a write goes with the next one, in its newest state. So a thousand
// nodes that answer together cost a few writes, and a node that answers alone waits for nothing.
func (f *Fleet) Run(ctx context.Context) error {
	asks, endAsks := context.WithCancel(ctx)
	defer endAsks()
	var helper sync.WaitGroup
	helper.Go(func() { f.serveAsks(asks) })
	defer helper.Wait()
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	forget := time.NewTicker(forgetEvery)
	defer forget.Stop()
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
		case <-forget.C:
			f.forget(ctx)
			continue
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

// forget removes the nodes that nobody has heard of for long. What goes wrong is done an hour later.
func (f *Fleet) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	n, err := f.store.ForgetNodes(ctx, time.Now().Add(-forgetAfter))
	switch {
	case err != nil:
		f.log.Warn("silent nodes cannot be forgotten", "err", err)
	case n > 0:
		f.log.Info("silent nodes were forgotten", "rows", n)
	}
}

// refreshSeen stamps the records of the open streams.
func (f *Fleet) refreshSeen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.current {
		f.touch(f.records[key])
	}
}

// save writes the dirty records and what was taken, and hands on the break-glass reports. On an error they are dirty
// again, and the next attempt writes what they are then.
func (f *Fleet) save(ctx context.Context, within time.Duration) error {
	f.mu.Lock()
	batch := make([]rollout.Node, 0, len(f.dirty))
	for key := range f.dirty {
		batch = append(batch, f.records[key].Node)
	}
	clear(f.dirty)
	taken := f.takenBatch()
	f.mu.Unlock()
	if len(batch) == 0 && len(taken) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var err error
	if len(batch) > 0 {
		err = f.store.SaveNodes(ctx, batch)
	}
	if err == nil && len(taken) > 0 {
		err = f.store.SaveTaken(ctx, taken)
	}
	if err == nil {
		err = f.handOn(ctx, batch)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.dirtyAgain(taken)
	}
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

// handOn gives the break-glass reports that it has not given before to whoever wants them. One that is refused for good
// is logged; anything else is tried again.
func (f *Fleet) handOn(ctx context.Context, batch []rollout.Node) error {
	if f.o.BreakGlass == nil {
		return nil
	}
	for _, n := range batch {
		for _, b := range slices.Backward(n.BreakGlass) { // the oldest first, as they came to be
			if f.isReported(n, b.ID) {
				continue
			}
			err := f.o.BreakGlass(ctx, n.ID, b)
			switch {
			case errors.Is(err, rules.ErrInvalid) || errors.Is(err, rules.ErrNotFound) || errors.Is(err, rules.ErrConflict):
				f.log.Warn("break-glass report of a node was refused", "node", n.ID, "id", b.ID, "err", err)
			case err != nil:
				return fmt.Errorf("hand on a break-glass report of node %s: %w", n.ID, err)
			}
			f.setReported(n, b.ID)
		}
	}
	return nil
}

func (f *Fleet) isReported(n rollout.Node, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.records[recordKey{n.ID, n.Domain}].reported[id]
	return ok
}

// setReported remembers the report for as long as the node makes it.
func (f *Fleet) setReported(n rollout.Node, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[recordKey{n.ID, n.Domain}]
	maps.DeleteFunc(r.reported, func(old string, _ struct{}) bool {
		return !slices.ContainsFunc(r.BreakGlass, func(b rollout.BreakGlass) bool { return b.ID == old })
	})
	r.reported[id] = struct{}{}
}
