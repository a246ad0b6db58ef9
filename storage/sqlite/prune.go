package sqlite

import (
	"context"
	"time"

	"github.com/headgate/headgate/storage"
)

// Prune is part of tally.Store. Its statements hold the file's write lock for some milliseconds each, and other changes
// get in between.
func (s *Store) Prune(ctx context.Context, now time.Time) error {
	for _, p := range storage.Prunes(now) {
		which, args := p.Column+` < ?1`, []any{p.Before.UnixMicro(), storage.PruneBatch}
		if p.Step != 0 {
			which, args = which+` AND step = ?3`, append(args, storage.Seconds(p.Step))
		}
		//nolint:gosec // all of it is the program's own
		statement := `
			DELETE FROM ` + p.Table + ` WHERE rowid IN (
				SELECT rowid FROM ` + p.Table + ` WHERE ` + which + ` LIMIT ?2)`
		for {
			done, err := s.write.ExecContext(ctx, statement, args...)
			if err != nil {
				return s.fail(ctx, "remove old rows of "+p.Table, err)
			}
			if n, err := done.RowsAffected(); err != nil {
				return err
			} else if n < storage.PruneBatch {
				break
			}
		}
	}
	return nil
}
