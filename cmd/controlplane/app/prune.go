package app

import (
	"context"
	"time"
)

// pruneEvery is how often what is older than it is kept is removed. The shortest-lived counts are kept for six hours, so
// they are never much more.
const pruneEvery = 5 * time.Minute

// prune keeps the counts of the nodes from growing, at once and then again and again until ctx ends: a database that has
// not been pruned for days is made up for in batches. What fails is tried again the next time; nobody misses it until then.
func (a *App) prune(ctx context.Context) error {
	for {
		if err := a.store.Prune(ctx, time.Now()); err != nil && ctx.Err() == nil {
			a.log.Warn("counts that have had their time cannot be removed", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pruneEvery):
		}
	}
}
