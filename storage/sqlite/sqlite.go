// Package sqlite keeps the control plane's data in one SQLite file, for one program: a control plane without a database
// server.
//
// Only one program at a time may have the file open as a store. Changes by another process would be stored rightly, but
// nobody here would hear of them: [Store.Watch] knows the changes made through its own Store. Two Stores in one process
// are two programs in this sense.
//
// SQLite allows one writer, so the pool for writes holds a single connection, on which changes queue; readers have a
// pool of their own, see the last committed state, and wait for nobody (write-ahead log). A change is on disk before it
// is acknowledged. What is append-only, the history and the audit trail, is so by triggers; whoever has the file can
// drop them, and the seals of the audit trail tell.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go

	"github.com/headgate/headgate/storage"
)

var _ storage.Store = (*Store)(nil)

// Store is a [storage.Store] in a file.
type Store struct {
	write *sql.DB
	read  *sql.DB

	lead chan struct{} // full while somebody leads

	open     context.Context // ends with Close
	end      context.CancelFunc
	mu       sync.Mutex // held to end open, too
	watchers map[*watcher]struct{}
}

// readers is how many queries run at the same time.
const readers = 4

// Open opens the file at path, makes it where there is none, and brings its schema up to date. A file it cannot open is
// rules.ErrUnavailable; one with a newer schema is refused.
func Open(ctx context.Context, path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	// Made here and not by SQLite, which would let everybody read the domains' secrets. Its other files, path-wal and
	// path-shm, get the same permissions.
	if err := touch(path); err != nil {
		return nil, unavailable("open database "+path, err)
	}
	s := &Store{lead: make(chan struct{}, 1), watchers: map[*watcher]struct{}{}}
	s.open, s.end = context.WithCancel(context.Background())
	if s.write, err = sql.Open("sqlite", dsn(path, "_txlock", "immediate")); err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	if s.read, err = sql.Open("sqlite", dsn(path, "_query_only", "1")); err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), s.write.Close())
	}
	s.write.SetMaxOpenConns(1)
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	if err := migrate(ctx, s.write); err != nil {
		return nil, errors.Join(s.fail(ctx, "bring the schema of "+path+" up to date", err), s.Close())
	}
	return s, nil
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// dsn names the file as a URI, which keeps its odd characters apart from the settings behind the "?".
func dsn(path string, settings ...string) string {
	q := url.Values{
		"_busy_timeout": {"5000"}, // ms; a backup tool may hold the file for a moment
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"}, // NORMAL would forget the last changes when the power fails
		"_foreign_keys": {"1"},
		"_pragma":       {"recursive_triggers(1)"}, // REPLACE, which deletes, fires the triggers that refuse it
		"_dqs":          {"0"},                     // a mistyped name in double quotes is an error, not a string
	}
	for i := 0; i+1 < len(settings); i += 2 {
		q.Set(settings[i], settings[i+1])
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	return u.String()
}

// Close is part of storage.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.end()
	for w := range s.watchers {
		s.forget(w)
	}
	s.mu.Unlock()
	return errors.Join(s.read.Close(), s.write.Close())
}

func (s *Store) isClosed() bool { return s.open.Err() != nil }

// rollback ends a transaction that was not committed; after a commit it does nothing.
func rollback(tx *sql.Tx) {
	// An error means that it has ended already, as it does with its context.
	_ = tx.Rollback()
}

// snapshot runs read in a transaction that sees one state of the database from its first statement to its last.
func (s *Store) snapshot(ctx context.Context, read func(*sql.Tx) error) error {
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer rollback(tx)
	return read(tx)
}
