package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// Series is part of tally.Store.
func (s *Store) Series(ctx context.Context, query tally.Query) (points []tally.Point, err error) {
	from, to := storage.Steps(&query)
	statement := `
		SELECT uid, version, start, ` + storage.TallyColumns().SQL("coalesce({c}, 0)", 0) + `
		FROM tallies
		WHERE step = ?1 AND start >= ?2 AND start < ?3`
	err = s.snapshot(ctx, func(tx *sql.Tx) error {
		domains, err := domainsOf(ctx, tx, &query)
		if err != nil {
			return err
		}
		which, args := ofRules(&query, domains, storage.Seconds(query.Step), from.UnixMicro(), to.UnixMicro())
		var p tally.Point
		var start int64
		into := scanCounts(p.Counts[:], &p.UID, &p.Version, &start)
		_, err = collect(ctx, tx, statement+which, args, func(row scanner) (none struct{}, err error) {
			if err := row.Scan(into...); err != nil {
				return none, err
			}
			var there bool
			if p.Domain, there = domains[p.UID]; there {
				p.Start = fromMicro(start)
				points = append(points, p)
			}
			return none, nil
		})
		if err != nil {
			return err
		}
		open, err := openWindows(ctx, tx, from, to)
		points = storage.Points(points, open, &query, unreadable)
		return err
	})
	if err != nil {
		return nil, s.fail(ctx, "read the counts of rules", err)
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

// domainsOf returns the rules of a query, each with its domain.
func domainsOf(ctx context.Context, tx *sql.Tx, query *tally.Query) (map[string]string, error) {
	const read = `SELECT uid, domain FROM rules WHERE (?1 = '' OR domain = ?1) AND (?2 = 'null' OR uid IN (SELECT value FROM json_each(?2)))`
	all := map[string]string{}
	_, err := collect(ctx, tx, read, []any{query.Domain, storage.EncodeList(query.UIDs)}, func(row scanner) (none struct{}, err error) {
		var uid, domain string
		if err := row.Scan(&uid, &domain); err != nil {
			return none, err
		}
		all[uid] = domain
		return none, nil
	})
	return all, err
}

// ofRules narrows a statement to the rules of a query, where it does not ask for all. The args come first.
func ofRules(query *tally.Query, domains map[string]string, args ...any) (string, []any) {
	if query.UIDs == nil && query.Domain == "" {
		return ``, args
	}
	return fmt.Sprintf(` AND uid IN (SELECT value FROM json_each(?%d))`, len(args)+1), append(args, storage.EncodeList(slices.Sorted(maps.Keys(domains))))
}

// openWindows reads those that began in the time and are not closed, of nodes that are there.
func openWindows(ctx context.Context, tx *sql.Tx, from, to time.Time) ([]storage.OpenRow, error) {
	const read = `
		SELECT o.start, o.totals
		FROM open_windows o LEFT JOIN sources s ON s.node = o.node AND s.epoch = o.epoch
		WHERE o.start >= ?1 AND o.start < ?2 AND o.until >= ?3
			AND o.number = coalesce(s.stored, 0) + 1 AND NOT coalesce(s.stopped, false)`
	args := []any{from.UnixMicro(), to.UnixMicro(), time.Now().Add(-tally.OpenFor).UnixMicro()}
	return collect(ctx, tx, read, args, func(row scanner) (o storage.OpenRow, err error) {
		var start int64
		err = row.Scan(&start, &o.Totals)
		o.Start = fromMicro(start)
		return o, err
	})
}

// DomainSeries is part of tally.Store.
func (s *Store) DomainSeries(ctx context.Context, query tally.Query) (points []tally.DomainPoint, err error) {
	from, to := storage.Steps(&query)
	statement := `
		SELECT domain, start, ` + storage.DomainColumns().SQL("coalesce({c}, 0)", 0) + `
		FROM domain_tallies
		WHERE step = ?1 AND start >= ?2 AND start < ?3 AND (?4 = '' OR domain = ?4)`
	args := []any{storage.Seconds(query.Step), from.UnixMicro(), to.UnixMicro(), query.Domain}
	err = s.snapshot(ctx, func(tx *sql.Tx) error {
		var p tally.DomainPoint
		var start int64
		into := scanCounts(p.Counts[:], &p.Domain, &start)
		points, err = collect(ctx, tx, statement, args, func(row scanner) (tally.DomainPoint, error) {
			err := row.Scan(into...)
			p.Start = fromMicro(start)
			return p, err
		})
		if err != nil {
			return err
		}
		open, err := openWindows(ctx, tx, from, to)
		points = storage.DomainPoints(points, open, &query, unreadable)
		return err
	})
	if err != nil {
		return nil, s.fail(ctx, "read the counts of domains", err)
	}
	return points, nil
}

// Keys is part of tally.Store.
func (s *Store) Keys(ctx context.Context, query tally.Query) ([]tally.VersionKeys, error) {
	const statement = `SELECT uid, version, start, keys, sketch FROM tally_keys WHERE step = ?1 AND start >= ?2 AND start < ?3`
	var sums storage.KeySums
	err := s.snapshot(ctx, func(tx *sql.Tx) error {
		domains, err := domainsOf(ctx, tx, &query)
		if err != nil {
			return err
		}
		for _, part := range storage.KeyParts(&query) {
			which, args := ofRules(&query, domains, storage.Seconds(part.Step), part.From.UnixMicro(), part.To.UnixMicro())
			_, err := collect(ctx, tx, statement+which, args, func(row scanner) (none struct{}, err error) {
				var r storage.KeysRead
				var start int64
				if err := row.Scan(&r.UID, &r.Version, &start, &r.Keys, &r.Sketch); err != nil {
					return none, err
				}
				r.Start = fromMicro(start)
				if err := sums.Add(&r, domains); err != nil {
					unreadable(err)
				}
				return none, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, s.fail(ctx, "read the keys of rules", err)
	}
	return sums.List(), nil
}
