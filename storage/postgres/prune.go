package postgres

import (
	"context"
	"time"

	"github.com/headgate/headgate/storage"
)

// Prune is part of tally.Store. It waits for no lock, and its statements hold theirs for some milliseconds: what another
// program has locked stays until the next time.
func (s *Store) Prune(ctx context.Context, now time.Time) error {
	for _, p := range storage.Prunes(now) {
		which, args := p.Column+` < $1`, []any{p.Before, storage.PruneBatch}
		if p.Step != 0 {
			which, args = which+` AND step = $3`, append(args, storage.Seconds(p.Step))
		}
		statement := `
			DELETE FROM ` + p.Table + ` WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM ` + p.Table + ` WHERE ` + which + ` LIMIT $2 FOR UPDATE SKIP LOCKED))`
		for {
			done, err := s.pool.Exec(ctx, statement, args...)
			if err != nil {
				return fail(ctx, "remove old rows of "+p.Table, err)
			}
			if done.RowsAffected() < storage.PruneBatch {
				break
			}
		}
	}
	return nil
}
