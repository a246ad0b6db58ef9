package storage

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/tally"
)

// Store is everything a database does for the control plane. It is safe for concurrent use. Consumers take the narrow
// interfaces it is made of; the whole has a name for the wiring and for storagetest.
type Store interface {
	rollout.Ledger
	rollout.Fleet
	rollout.Feed
	access.Sessions
	alert.Store
	tally.Store
	// Lead waits until this program is the only leader of those on the database, and calls run then. The context of run ends
	// when it no longer leads: run returns soon then, and Lead waits again. Lead returns what run returns by itself, or the
	// error of ctx when that ends; a database that cannot be asked is waited for.
	//
	// A leader that is cut off may take some seconds to find out, and one whose process was stopped longer. What leaders do
	// must go through Commit, which takes turns.
	Lead(ctx context.Context, run func(ctx context.Context) error) error
	// Close ends every Watch and Lead, and releases the connections. Calls after it fail with rules.ErrUnavailable. Closing twice
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
