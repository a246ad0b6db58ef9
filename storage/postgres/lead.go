package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/rules"
)

const (
	// leadName shows in pg_stat_activity, apart from the pool's connections.
	leadName = "headgate leader"
	// leadEvery is how often the lock is tried, and a leader asks its connection for a sign of life.
	leadEvery = time.Second
	// leadTimeout is how long that may take. With leadEvery it is less than the server takes to give up a connection whose
	// peer is silent (see leadOnce): a leader that is cut off has stopped before another one begins.
	leadTimeout = 3 * time.Second
)

// errLost says that this program no longer leads, or does not yet.
var errLost = errors.New("the connection is lost")

// Lead is part of storage.Store. The leader holds an advisory lock in a transaction that stays open, on a connection of its
// own: so a pooler, in whatever mode, keeps it on one session, and the lock ends with the connection.
func (s *Store) Lead(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed := fmt.Errorf("lead after Close: %w", rules.ErrUnavailable)
	if s.open.Err() != nil {
		return closed
	}
	defer context.AfterFunc(s.open, func() { cancel(closed) })() //nolint:contextcheck // Close ends what ctx has not
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, leadEvery
	lost := false
	for {
		done, err := s.leadOnce(ctx, func(ctx context.Context) error {
			s.log.Info("this control plane leads")
			lost = false
			pause.Reset()
			return run(ctx)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if done {
			return err
		}
		if !lost {
			s.log.Warn("this control plane does not lead, nor wait for it: no connection to the database", "err", err)
		}
		lost = true
		select {
		case <-ctx.Done():
		case <-time.After(pause.NextBackOff()):
		}
	}
}

// leadOnce waits until it leads, and calls run then. It is done when run returns while this program leads.
func (s *Store) leadOnce(ctx context.Context, run func(context.Context) error) (done bool, err error) {
	config := s.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = leadName
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // and with it goes the lock
	}()
	// The server gives up a silent peer after 5 + 5 × 1 seconds.
	const begin = `
		BEGIN;
		SET LOCAL tcp_keepalives_idle = 5; SET LOCAL tcp_keepalives_interval = 1; SET LOCAL tcp_keepalives_count = 5;
		SET LOCAL idle_in_transaction_session_timeout = 0`
	if _, err := conn.Exec(ctx, begin); err != nil {
		return false, err
	}
	for {
		const try = `SELECT pg_try_advisory_xact_lock(hashtextextended('headgate leader', 0))`
		var leads bool
		if err := within(ctx, func(ctx context.Context) error { return conn.QueryRow(ctx, try).Scan(&leads) }); err != nil {
			return false, err
		}
		if leads {
			return hold(ctx, conn, run)
		}
		if err := idle(ctx, conn); err != nil {
			return false, err
		}
	}
}

// hold calls run, and ends its context when the connection is lost.
func hold(ctx context.Context, conn *pgx.Conn, run func(context.Context) error) (done bool, err error) {
	leading, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			if err := alive(watching, conn); err != nil {
				lose(fmt.Errorf("%w: %w", errLost, err))
				return
			}
		}
	}()
	err = run(leading)
	done = leading.Err() == nil
	stop()
	<-watched
	if !done {
		return false, context.Cause(leading)
	}
	return true, err
}

// alive returns after leadEvery, or when the connection breaks or gives no sign of life.
func alive(ctx context.Context, conn *pgx.Conn) error {
	if err := idle(ctx, conn); err != nil {
		return err
	}
	return within(ctx, conn.Ping)
}

// idle lets leadEvery pass. A connection that breaks meanwhile is noticed at once.
func idle(ctx context.Context, conn *pgx.Conn) error {
	wait, cancel := context.WithTimeout(ctx, leadEvery)
	defer cancel()
	if _, err := conn.WaitForNotification(wait); ctx.Err() != nil || err != nil && !pgconn.Timeout(err) {
		return errors.Join(ctx.Err(), err)
	}
	return nil
}

func within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, leadTimeout)
	defer cancel()
	return do(ctx)
}
