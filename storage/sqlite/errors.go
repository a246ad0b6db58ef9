package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/headgate/headgate/rules"
)

// fail says what was attempted, and gives err the kind its code stands for. Where ctx has ended, that is the error.
func (s *Store) fail(ctx context.Context, attempt string, err error) error {
	if s.isClosed() {
		return unavailable(attempt+" after Close", err)
	}
	return fail(ctx, attempt, err)
}

func fail(ctx context.Context, attempt string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%s: %w: %w", attempt, cause, err)
	} else if cause != nil {
		return fmt.Errorf("%s: %w", attempt, err)
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%s: %w: %w", attempt, kind, err)
	}
	return fmt.Errorf("%s: %w", attempt, err)
}

func unavailable(attempt string, err error) error {
	return fmt.Errorf("%s: %w: %w", attempt, rules.ErrUnavailable, err)
}

// kindOf returns nil for what is nobody's fault but the program's.
func kindOf(err error) error {
	var answer *sqlite.Error
	if !errors.As(err, &answer) {
		return nil
	}
	switch answer.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return rules.ErrConflict
	}
	switch answer.Code() & 0xff { // the primary code is the low byte
	case sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return rules.ErrInvalid
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT,
		sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM:
		return rules.ErrUnavailable
	}
	return nil
}

// refused reports whether a failed COMMIT certainly stored nothing. After an error of the disk nobody can tell.
func refused(err error) bool {
	var answer *sqlite.Error
	if !errors.As(err, &answer) {
		return true // database/sql itself, before it asked SQLite
	}
	return answer.Code()&0xff != sqlite3.SQLITE_IOERR
}
