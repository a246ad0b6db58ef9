package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// mergeRates does for the rates of keys what mergeKeys does for keys.
func mergeRates(ctx context.Context, tx *sql.Tx, fresh *storage.Fresh) error {
	const read = `SELECT rates FROM tally_rates WHERE uid = ?1 AND start = ?2 AND version = ?3`
	for i := range fresh.Rates {
		r := &fresh.Rates[i]
		var stored []byte
		err := tx.QueryRowContext(ctx, read, r.UID, r.Start.UnixMicro(), r.Version).Scan(&stored)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		if err := r.Merge(stored); err != nil {
			unreadable(err) // and begun anew
		}
	}
	const write = `
		INSERT INTO tally_rates (uid, start, version, rates) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT (uid, start, version) DO UPDATE SET rates = excluded.rates`
	_, err := insertEach(ctx, tx, write, len(fresh.Rates), func(i int) []any {
		r := &fresh.Rates[i]
		return []any{r.UID, r.Start.UnixMicro(), r.Version, r.Encode()}
	})
	return err
}

// Rates is part of tally.Store.
func (s *Store) Rates(ctx context.Context, query tally.Query) (list []tally.VersionRates, err error) {
	const statement = `SELECT uid, version, start, rates FROM tally_rates WHERE start >= ?1 AND start < ?2`
	from, to := storage.RatesSpan(&query)
	err = s.snapshot(ctx, func(tx *sql.Tx) error {
		domains, err := domainsOf(ctx, tx, &query)
		if err != nil {
			return err
		}
		which, args := ofRules(&query, domains, from.UnixMicro(), to.UnixMicro())
		read, err := collect(ctx, tx, statement+which, args, func(row scanner) (r storage.RatesRead, err error) {
			var start int64
			err = row.Scan(&r.UID, &r.Version, &start, &r.Rates)
			r.Start = fromMicro(start)
			return r, err
		})
		list = storage.Rates(read, domains, unreadable)
		return err
	})
	if err != nil {
		return nil, s.fail(ctx, "read the rates of keys", err)
	}
	return list, nil
}
