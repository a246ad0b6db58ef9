package storage

import (
	"cmp"
	"fmt"
	"slices"
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

// LatestNodes returns the nodes by domain and ID, only the newest of those given twice (the later in the list when both
// were seen at the same time), with texts as both databases can hold them. A fixed order means that replicas that save
// the same nodes wait for each other's row locks instead of deadlocking.
func LatestNodes(nodes []rollout.Node) []rollout.Node {
	list := slices.Clone(nodes)
	for i := range list {
		n := &list[i]
		n.ID, n.Domain, n.Program, n.NackReason = Text(n.ID), Text(n.Domain), Text(n.Program), Text(n.NackReason)
	}
	slices.SortStableFunc(list, func(a, b rollout.Node) int {
		return cmp.Or(strings.Compare(a.Domain, b.Domain), strings.Compare(a.ID, b.ID), a.Seen.Compare(b.Seen))
	})
	latest := list[:0]
	for i, n := range list {
		if i+1 < len(list) && list[i+1].ID == n.ID && list[i+1].Domain == n.Domain {
			continue // a newer one of the same node follows
		}
		latest = append(latest, n)
	}
	return latest
}

// Text returns s with U+FFFD in place of what Postgres does not store: NUL, and bytes that are not UTF-8. It is for text
// that comes from outside and is only shown, such as the reason of a NACK: one sidecar's odd bytes must not make the
// nodes saved with it fail.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
