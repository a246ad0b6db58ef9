package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// Changes is part of rollout.Feed.
func (s *Store) Changes(ctx context.Context, since int64) (rollout.Changes, error) {
	var c rollout.Changes
	err := s.snapshot(ctx, func(tx pgx.Tx) error {
		const head = `SELECT revision, lineage, ARRAY(SELECT lineage FROM replaced ORDER BY lineage) FROM head`
		err := tx.QueryRow(ctx, head).Scan(&c.Head, &c.Lineage, &c.Replaces)
		if err != nil || c.Head <= since {
			return err
		}
		domains, err := queryDomains(ctx, tx, selectDomains+` WHERE d.revision > $1 ORDER BY d.name`, since)
		if err != nil {
			return err
		}
		// Planned anew each time. A plan for any since would take a third of the rules to be newer, and read all of them
		// for the usual case of one: measured 7 ms instead of 0.7 with 10,000 rules.
		const newer = selectRules + `
			WHERE r.revision > $1 AND ($1 > 0 OR coalesce(s.stable, s.candidate) IS NOT NULL) ORDER BY r.domain, r.name`
		changed, err := queryRules(ctx, tx, newer, pgx.QueryExecModeCacheDescribe, since)
		if err != nil {
			return err
		}
		storage.Step(&c, domains, changed, s.unreadable)
		return nil
	})
	if err != nil {
		return rollout.Changes{}, fail(ctx, "read the changes", err)
	}
	return c, nil
}

// unreadable tells of what is left out of a list.
func (s *Store) unreadable(err error) {
	s.log.Error("left out what this program cannot read", "err", err)
}

// RuleAt is part of rollout.Feed.
func (s *Store) RuleAt(ctx context.Context, domain, name string, revision int64) (rules.Rule, error) {
	attempt := fmt.Sprintf("read rule %s/%s at revision %d", domain, name, revision)
	const newest = selectStates + `
		WHERE r.domain = $1 AND r.name = $2 AND s.revision <= $3 ORDER BY s.revision DESC LIMIT 1`
	last, err := s.queryHistory(ctx, attempt, newest, domain, name, revision)
	if err != nil {
		return rules.Rule{}, err
	}
	if last[0].Rule.Deleted() {
		return rules.Rule{}, fmt.Errorf("%s: %w: it was deleted", attempt, rules.ErrNotFound)
	}
	return last[0].Rule, nil
}

const (
	// checkEvery is how long a listening connection may be silent before it is asked for a sign of life. A peer that
	// vanished without a word would otherwise be listened to for ever.
	checkEvery = 30 * time.Second
	// listenName shows in pg_stat_activity, apart from the pool's connections.
	listenName = "headgate listen"
)

// Watch is part of rollout.Feed. Each call holds a connection of its own; its channel is closed when ctx ends, and by
// Close.
func (s *Store) Watch(ctx context.Context) <-chan struct{} {
	signals := make(chan struct{}, 1) // one may wait: a change during a read must lead to another read
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.Err() != nil {
		close(signals)
		return signals
	}
	s.watchers.Go(func() {
		defer close(signals)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.open, cancel)() //nolint:contextcheck // Close ends what ctx has not
		if s.listen {
			s.keepListening(ctx, signals)
		} else {
			<-ctx.Done()
		}
	})
	return signals
}

// keepListening listens until ctx ends, and connects again when the connection breaks, ever more slowly and with jitter,
// so that a database that comes back is not met by all programs at once.
func (s *Store) keepListening(ctx context.Context, signals chan<- struct{}) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 5*time.Second
	lost := false
	for {
		err := s.listenOnce(ctx, signals, func() {
			pause.Reset()
			if lost {
				s.log.Info("listening to the database again")
			}
			lost = false
		})
		if ctx.Err() != nil {
			return
		}
		if !lost {
			s.log.Warn("not listening to the database, changes of other programs are seen late", "err", err)
		}
		lost = true
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause.NextBackOff()):
		}
	}
}

// listenOnce returns when the connection breaks or ctx ends.
func (s *Store) listenOnce(ctx context.Context, signals chan<- struct{}, connected func()) error {
	config := s.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = listenName
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // it served only for listening
	}()
	if _, err := conn.Exec(ctx, `LISTEN headgate`); err != nil {
		return err
	}
	connected()
	signal(signals) // what was notified before nobody has heard
	for {
		wait, cancel := context.WithTimeout(ctx, s.checkEvery)
		_, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			signal(signals)
		case ctx.Err() != nil || !pgconn.Timeout(err):
			return err
		default:
			check, cancel := context.WithTimeout(ctx, connectTimeout)
			err := conn.Ping(check)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}

// signal never waits: a signal that is still there says the same.
func signal(signals chan<- struct{}) {
	select {
	case signals <- struct{}{}:
	default:
	}
}
