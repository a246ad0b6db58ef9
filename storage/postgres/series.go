package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// Series is part of tally.Store.
func (s *Store) Series(ctx context.Context, query tally.Query) (points []tally.Point, err error) {
	from, to := storage.Steps(&query)
	statement := `
		SELECT uid, version, start, ` + storage.TallyColumns().SQL("coalesce({c}, 0)", 0) + `
		FROM tallies
		WHERE step = $1 AND start >= $2 AND start < $3`
	err = s.snapshot(ctx, func(tx pgx.Tx) error {
		domains, err := domainsOf(ctx, tx, &query)
		if err != nil {
			return err
		}
		which, args := ofRules(&query, domains, storage.Seconds(query.Step), from, to)
		rows, err := tx.Query(ctx, statement+which, args...)
		if err != nil {
			return err
		}
		var p tally.Point
		if _, err := pgx.ForEachRow(rows, scanCounts(p.Counts[:], &p.UID, &p.Version, &p.Start), func() error {
			var there bool
			if p.Domain, there = domains[p.UID]; there {
				p.Start = p.Start.UTC()
				points = append(points, p)
			}
			return nil
		}); err != nil {
			return err
		}
		open, err := openWindows(ctx, tx, from, to)
		points = storage.Points(points, open, &query, s.unreadable)
		return err
	})
	if err != nil {
		return nil, fail(ctx, "read the counts of rules", err)
	}
	return points, nil
}

// scanCounts returns where to scan the columns of counts, after some others.
func scanCounts(counts []int64, others ...any) []any {
	for i := range counts {
		others = append(others, &counts[i])
	}
	return others
}

// domainsOf returns the rules of a query, each with its domain. They are asked for first and not joined: a plan made while
// the tables have no statistics would read all that was counted in the time once for each rule.
func domainsOf(ctx context.Context, tx pgx.Tx, query *tally.Query) (map[string]string, error) {
	const read = `SELECT uid, domain FROM rules WHERE ($1 = '' OR domain = $1) AND ($2::text[] IS NULL OR uid = ANY ($2))`
	rows, err := tx.Query(ctx, read, query.Domain, query.UIDs)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	var uid, domain string
	_, err = pgx.ForEachRow(rows, []any{&uid, &domain}, func() error {
		all[uid] = domain
		return nil
	})
	return all, err
}

// ofRules narrows a statement to the rules of a query, where it does not ask for all. The args come first.
func ofRules(query *tally.Query, domains map[string]string, args ...any) (string, []any) {
	if query.UIDs == nil && query.Domain == "" {
		return ``, args
	}
	return fmt.Sprintf(` AND uid = ANY ($%d)`, len(args)+1), append(args, slices.Sorted(maps.Keys(domains)))
}

// openWindows reads those that began in the time and are not closed, of nodes that are there.
func openWindows(ctx context.Context, tx pgx.Tx, from, to time.Time) ([]storage.OpenRow, error) {
	const read = `
		SELECT o.start, o.totals
		FROM open_windows o LEFT JOIN sources s ON s.node = o.node AND s.epoch = o.epoch
		WHERE o.start >= $1 AND o.start < $2 AND o.until >= $3
			AND o.number = coalesce(s.stored, 0) + 1 AND NOT coalesce(s.stopped, false)`
	rows, err := tx.Query(ctx, read, from, to, time.Now().Add(-tally.OpenFor))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o storage.OpenRow, err error) {
		err = row.Scan(&o.Start, &o.Totals)
		return o, err
	})
}

// DomainSeries is part of tally.Store.
func (s *Store) DomainSeries(ctx context.Context, query tally.Query) (points []tally.DomainPoint, err error) {
	from, to := storage.Steps(&query)
	statement := `
		SELECT domain, start, ` + storage.DomainColumns().SQL("coalesce({c}, 0)", 0) + `
		FROM domain_tallies
		WHERE step = $1 AND start >= $2 AND start < $3 AND ($4 = '' OR domain = $4)`
	err = s.snapshot(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, statement, storage.Seconds(query.Step), from, to, query.Domain)
		if err != nil {
			return err
		}
		var p tally.DomainPoint
		if _, err := pgx.ForEachRow(rows, scanCounts(p.Counts[:], &p.Domain, &p.Start), func() error {
			p.Start = p.Start.UTC()
			points = append(points, p)
			return nil
		}); err != nil {
			return err
		}
		open, err := openWindows(ctx, tx, from, to)
		points = storage.DomainPoints(points, open, &query, s.unreadable)
		return err
	})
	if err != nil {
		return nil, fail(ctx, "read the counts of domains", err)
	}
	return points, nil
}

// Keys is part of tally.Store.
func (s *Store) Keys(ctx context.Context, query tally.Query) ([]tally.VersionKeys, error) {
	const statement = `SELECT uid, version, start, keys, sketch FROM tally_keys WHERE step = $1 AND start >= $2 AND start < $3`
	var sums storage.KeySums
	err := s.snapshot(ctx, func(tx pgx.Tx) error {
		domains, err := domainsOf(ctx, tx, &query)
		if err != nil {
			return err
		}
		for _, part := range storage.KeyParts(&query) {
			which, args := ofRules(&query, domains, storage.Seconds(part.Step), part.From, part.To)
			rows, err := tx.Query(ctx, statement+which, args...)
			if err != nil {
				return err
			}
			var row storage.KeysRead
			if _, err := pgx.ForEachRow(rows, []any{&row.UID, &row.Version, &row.Start, &row.Keys, &row.Sketch}, func() error {
				row.Start = row.Start.UTC()
				if err := sums.Add(&row, domains); err != nil {
					s.unreadable(err)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fail(ctx, "read the keys of rules", err)
	}
	return sums.List(), nil
}
