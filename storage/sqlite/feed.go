package sqlite

import (
	"context"
	"database/sql"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// Changes is part of rollout.Feed.
func (s *Store) Changes(ctx context.Context, since int64) (rollout.Changes, error) {
	var c rollout.Changes
	err := s.snapshot(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT revision, lineage FROM head`).Scan(&c.Head, &c.Lineage)
		if err != nil || c.Head <= since {
			return err
		}
		const domains = `SELECT name, secret, revision FROM domains WHERE revision > ?1 ORDER BY name`
		c.Domains, err = collect(ctx, tx, domains, []any{since}, func(row scanner) (rules.Domain, error) {
			var d rules.Domain
			var secret []byte
			err := row.Scan(&d.Name, &secret, &d.Revision)
			copy(d.Secret[:], secret)
			return d, err
		})
		if err != nil {
			return err
		}
		// The + keeps SQLite from walking all rules in their order instead of the few newer ones by their index: measured
		// 1.6 ms instead of 0.3 with 10,000 rules.
		const newer = selectRules + ` WHERE r.revision > ?1 ORDER BY +r.domain, r.name`
		c.Rules, err = queryRules(ctx, tx, newer, since)
		return err
	})
	if err != nil {
		return rollout.Changes{}, s.fail(ctx, "read the changes", err)
	}
	return c, nil
}

// watcher is one call of Watch.
type watcher struct {
	signals chan struct{}
	stop    func() bool // no longer wait for its context
}

// Watch is part of rollout.Feed. It signals the changes made through this Store, and nobody else's; its channel is
// closed when ctx ends, and by Close.
func (s *Store) Watch(ctx context.Context) <-chan struct{} {
	w := &watcher{signals: make(chan struct{}, 1)} // one may wait: a change during a read must lead to another read
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		close(w.signals)
		return w.signals
	}
	s.watchers[w] = struct{}{}
	w.stop = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(w)
	})
	return w.signals
}

// forget ends a watcher, once. The caller holds s.mu.
func (s *Store) forget(w *watcher) {
	if _, ok := s.watchers[w]; ok {
		w.stop()
		delete(s.watchers, w)
		close(w.signals)
	}
}

// signalAll never waits: a signal that is still there says the same.
func (s *Store) signalAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		select {
		case w.signals <- struct{}{}:
		default:
		}
	}
}
