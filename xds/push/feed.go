package push

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
)

// Run keeps the cache at the head of the feed until ctx ends, and then returns nil. It reads whenever the feed signals
// and, with poll above 0, at least once in that time: the poll is for notifications that are lost, the signal for speed,
// and either alone is enough. While the database cannot be read the last state is served on.
func (c *Cache) Run(ctx context.Context, feed rollout.Feed, poll time.Duration) error {
	// Watch before the first read: a change between the two would otherwise be missed until the next one.
	signal := feed.Watch(ctx)
	var tick <-chan time.Time
	if poll > 0 {
		ticker := time.NewTicker(poll)
		defer ticker.Stop()
		tick = ticker.C
	}
	retry := newBackoff(100*time.Millisecond, 5*time.Second)
	failing := false
	for {
		err := c.refresh(ctx, feed)
		if ctx.Err() != nil {
			return nil
		}
		var again <-chan time.Time
		switch {
		case err == nil && failing:
			c.log.Info("database is back")
		case err != nil && !failing:
			c.log.Error("database cannot be read: the last state is served on", "err", err)
		}
		if failing = err != nil; failing {
			again = time.After(retry.NextBackOff())
		} else {
			retry.Reset()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-tick:
		case _, open := <-signal:
			if !open {
				signal = nil // a feed may close it when it stops
			}
		}
	}
}

// newBackoff doubles the wait from first to last, each half as long to half as long again, so that those who failed
// together do not return together.
func newBackoff(first, last time.Duration) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: first, MaxInterval: last, Multiplier: 2, RandomizationFactor: 0.5}
}

// refresh reads what changed since the state that is served, and publishes it.
func (c *Cache) refresh(ctx context.Context, feed rollout.Feed) error {
	// Only this goroutine writes the state, so what is read here cannot change below.
	was := c.state.Load()
	if was == nil {
		was = &state{}
	}
	changes, err := feed.Changes(ctx, was.head)
	if err == nil && changes.Lineage != was.lineage && was.head > 0 {
		// A restored database numbers anew: nothing that is known holds.
		was = &state{}
		changes, err = feed.Changes(ctx, 0)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the changes since revision %d: %w", was.head, err)
	case changes.Lineage == "":
		return fmt.Errorf("read the changes since revision %d: the lineage is missing", was.head)
	case changes.Lineage != was.lineage:
	case changes.Head < was.head:
		return nil // a database replica may also be behind us
	case changes.Head == was.head && slices.Equal(changes.Replaces, was.replaces):
		return nil
	}
	next, err := was.after(changes)
	if err == nil && was.head == 0 {
		next, err = next.withTombstones(ctx, feed)
	}
	if err != nil {
		return fmt.Errorf("prepare revision %d: %w", changes.Head, err)
	}
	c.publish(next)
	c.log.Info("head moved", "revision", next.head, "rules", len(changes.Rules), "lineage", next.lineage, "replaces", next.replaces)
	return nil
}

// withTombstones adds the rules that were deleted before this program read the feed. A read of everything has none, and
// none was deleted by revision 1, so that a read since then has them all; of the rest only what is newer counts.
func (s *state) withTombstones(ctx context.Context, feed rollout.Feed) (*state, error) {
	if s.head < 2 {
		return s, nil
	}
	changes, err := feed.Changes(ctx, 1)
	if err != nil {
		return nil, fmt.Errorf("read the deleted rules: %w", err)
	}
	if changes.Lineage != s.lineage || changes.Head < s.head {
		return nil, fmt.Errorf("the history moved from %s to %s while it was read",
			xds.DomainVersion(s.lineage, s.head), xds.DomainVersion(changes.Lineage, changes.Head))
	}
	touched := map[string]bool{}
	changes.Rules = slices.DeleteFunc(changes.Rules, func(r rules.Rule) bool {
		news := r.Deleted() || r.Revision > s.head
		touched[r.Domain] = touched[r.Domain] || news
		return !news
	})
	changes.Domains = slices.DeleteFunc(changes.Domains, func(d rules.Domain) bool {
		return !touched[d.Name] && d.Revision <= s.head
	})
	return s.after(changes)
}

// after returns the state that the changes lead to.
func (s *state) after(changes rollout.Changes) (*state, error) {
	next := &state{lineage: changes.Lineage, replaces: changes.Replaces, head: changes.Head, domains: maps.Clone(s.domains)}
	if next.domains == nil {
		next.domains = map[string]*domain{}
	}
	touched := map[string][]*rules.Rule{}
	for i := range changes.Rules {
		r := &changes.Rules[i]
		touched[r.Domain] = append(touched[r.Domain], r)
	}
	for _, info := range changes.Domains {
		d, err := s.domains[info.Name].changed(info, changes.Lineage, touched[info.Name])
		if err != nil {
			return nil, err
		}
		next.domains[info.Name] = d
		delete(touched, info.Name)
	}
	for name := range touched {
		return nil, fmt.Errorf("rules of domain %s changed without the domain", name)
	}
	return next, nil
}
