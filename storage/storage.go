package storage

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/rules/rollout"
)

// Store is everything a database does for the control plane. It is safe for concurrent use. Consumers take the narrow
// interfaces it is made of; the whole has a name for the wiring and for storagetest.
type Store interface {
	rollout.Ledger
	rollout.Fleet
	rollout.Feed
	// Close ends every Watch and releases the connections. Calls after it fail with rules.ErrUnavailable. Closing twice
	// is fine.
	Close() error
}

// CheckSchema refuses a database whose schema is newer than the program, which would not know what it must not break.
// An older schema is fine: it is migrated.
func CheckSchema(stored, known int64) error {
	if stored > known {
		return fmt.Errorf("the database has schema %d and this program knows schemas up to %d: run the newer program that made it", stored, known)
	}
	return nil
}

// Text returns s with U+FFFD in place of what Postgres does not store: NUL, and bytes that are not UTF-8. It is for text
// that comes from outside and is only shown, such as the reason of a NACK: one sidecar's odd bytes must not make the
// nodes saved with it fail.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
