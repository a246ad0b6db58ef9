package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// Changes is part of rollout.Feed.
func (s *Store) Changes(ctx context.Context, since int64) (rollout.Changes, error) {
	var c rollout.Changes
	err := s.snapshot(ctx, func(tx *sql.Tx) error {
		head, err := readHead(ctx, tx)
		if err != nil {
			return err
		}
		c.Head, c.Lineage = head.Revision, head.Lineage
		c.Replaces, err = collect(ctx, tx, `SELECT lineage FROM replaced ORDER BY lineage`, nil, func(row scanner) (lineage string, err error) {
			err = row.Scan(&lineage)
			return lineage, err
		})
		if err != nil || c.Head <= since {
			return err
		}
		domains, err := queryDomains(ctx, tx, selectDomains+` WHERE d.revision > ?1 ORDER BY d.name`, since)
		if err != nil {
			return err
		}
		// The + keeps SQLite from walking all rules in their order instead of the few newer ones by their index: measured
		// 1.6 ms instead of 0.3 with 10,000 rules.
		const newer = selectRules + `
			WHERE r.revision > ?1 AND (?1 > 0 OR coalesce(s.stable, s.candidate) IS NOT NULL) ORDER BY +r.domain, r.name`
		changed, err := queryRules(ctx, tx, newer, since)
		if err != nil {
			return err
		}
		storage.Step(&c, domains, changed, unreadable)
		return nil
	})
	if err != nil {
		return rollout.Changes{}, s.fail(ctx, "read the changes", err)
	}
	return c, nil
}

// unreadable passes over what a list leaves out: whoever asks for the one thing by its name is told.
func unreadable(error) {}

// RuleAt is part of rollout.Feed.
func (s *Store) RuleAt(ctx context.Context, domain, name string, revision int64) (rules.Rule, error) {
	attempt := fmt.Sprintf("read rule %s/%s at revision %d", domain, name, revision)
	const newest = selectStates + `
		WHERE r.domain = ?1 AND r.name = ?2 AND s.revision <= ?3 ORDER BY s.revision DESC LIMIT 1`
	last, err := s.queryHistory(ctx, attempt, newest, domain, name, revision)
	if err != nil {
		return rules.Rule{}, err
	}
	if last[0].Rule.Deleted() {
		return rules.Rule{}, fmt.Errorf("%s: %w: it was deleted", attempt, rules.ErrNotFound)
	}
	return last[0].Rule, nil
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
	if s.isClosed() {
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
