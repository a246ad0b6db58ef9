// Package postgres keeps the control plane's data in PostgreSQL 13 or later.
//
// Any number of programs share one database. Changes of all of them queue on the lock of one row; readers wait for
// nobody. Signals travel by NOTIFY, as part of the transaction, and are a convenience: a listener that was away has
// missed them for good, so [Store.Watch] signals once after every (re)connect, and whoever needs certainty polls.
// A connection pooler in transaction mode passes no notifications on; Options.NoListen is for that case.
//
// What is append-only, the history and the audit trail, is so by triggers and by privileges. Where the program owns its
// tables it could take both away; where the owner is another role, see [Migrate], it cannot.
package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/storage"
)

var _ storage.Store = (*Store)(nil)

// Options are the settings that the URL does not carry. The zero value works.
type Options struct {
	// NoListen makes Watch send nothing at all: its callers learn of changes by polling alone.
	NoListen bool
	// Log tells of lost and regained listening connections, and of what cannot be read; nil: nobody.
	Log *slog.Logger
}

// Store is a [storage.Store] on PostgreSQL.
type Store struct {
	pool       *pgxpool.Pool
	listen     bool
	checkEvery time.Duration
	log        *slog.Logger

	open     context.Context // ends with Close, and the watchers with it
	end      context.CancelFunc
	mu       sync.Mutex // held to start a watcher, and to end open: none is started while Close waits for them
	watchers sync.WaitGroup
}

// connectTimeout bounds an attempt to connect where the URL says nothing (connect_timeout): without it an address that
// swallows packets takes minutes to be found unreachable.
const connectTimeout = 5 * time.Second

// Open connects to the database that a postgres:// URL names, and brings its schema up to date. Programs that start
// together wait for each other. A database it cannot reach is rules.ErrUnavailable; one with a newer schema is refused,
// and so is one with an older schema that another role owns: see [Migrate]. The URL may size the pool (pool_max_conns).
func Open(ctx context.Context, url string, options Options) (*Store, error) {
	pool, err := newPool(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, pool); err != nil {
		pool.Close()
		return nil, fail(ctx, "bring the schema of the database up to date", err)
	}
	s := &Store{
		pool: pool, listen: !options.NoListen, checkEvery: checkEvery,
		log: cmp.Or(options.Log, slog.New(slog.DiscardHandler)),
	}
	s.open, s.end = context.WithCancel(context.Background())
	return s, nil
}

func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectTimeout)
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "headgate"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	return pool, nil
}

// Close is part of storage.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.watchers.Wait()
	s.pool.Close()
	return nil
}

// rollback ends a transaction that was not committed. It works also when ctx has ended, so that the connection goes back
// to the pool in good order; after a commit it does nothing.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	// An error means that the connection is gone, and the transaction with it.
	_ = tx.Rollback(ctx)
}

// snapshot runs read in a transaction that sees one state of the database from its first statement to its last.
func (s *Store) snapshot(ctx context.Context, read func(pgx.Tx) error) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	return read(tx)
}
