package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// mergeRates does for the rates of keys what mergeKeys does for keys. The locks are the same.
func (s *Store) mergeRates(ctx context.Context, tx pgx.Tx, fresh *storage.Fresh) error {
	n := len(fresh.Rates)
	if n == 0 {
		return nil
	}
	uids, starts, versions := make([]string, n), make([]time.Time, n), make([]int64, n)
	for i := range fresh.Rates {
		r := &fresh.Rates[i]
		uids[i], starts[i], versions[i] = r.UID, r.Start, r.Version
	}
	const read = `
		SELECT t.at - 1, r.rates
		FROM unnest($1::text[], $2::timestamptz[], $3::bigint[]) WITH ORDINALITY AS t (uid, start, version, at)
		JOIN tally_rates r ON r.uid = t.uid AND r.start = t.start AND r.version = t.version`
	rows, err := tx.Query(ctx, read, uids, starts, versions)
	if err != nil {
		return err
	}
	var i int
	var stored []byte
	if _, err := pgx.ForEachRow(rows, []any{&i, &stored}, func() error {
		if err := fresh.Rates[i].Merge(stored); err != nil {
			s.unreadable(err) // and begun anew
		}
		return nil
	}); err != nil {
		return err
	}
	rates := make([][]byte, n)
	for i := range fresh.Rates {
		rates[i] = fresh.Rates[i].Encode()
	}
	const write = `
		INSERT INTO tally_rates (uid, start, version, rates)
		SELECT uid, start, version, rates
		FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bytea[]) AS t (uid, start, version, rates)
		ON CONFLICT (uid, start, version) DO UPDATE SET rates = excluded.rates`
	_, err = tx.Exec(ctx, write, uids, starts, versions, rates)
	return err
}

// Rates is part of tally.Store.
func (s *Store) Rates(ctx context.Context, query tally.Query) (list []tally.VersionRates, err error) {
	const statement = `SELECT uid, version, start, rates FROM tally_rates WHERE start >= $1 AND start < $2`
	from, to := storage.RatesSpan(&query)
	err = s.snapshot(ctx, func(tx pgx.Tx) error {
		domains, err := domainsOf(ctx, tx, &query)
		if err != nil {
			return err
		}
		which, args := ofRules(&query, domains, from, to)
		rows, err := tx.Query(ctx, statement+which, args...)
		if err != nil {
			return err
		}
		read, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r storage.RatesRead, err error) {
			err = row.Scan(&r.UID, &r.Version, &r.Start, &r.Rates)
			return r, err
		})
		list = storage.Rates(read, domains, s.unreadable)
		return err
	})
	if err != nil {
		return nil, fail(ctx, "read the rates of keys", err)
	}
	return list, nil
}
