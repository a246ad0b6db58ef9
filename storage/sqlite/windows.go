package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// SaveWindows is part of tally.Store. It is safe to repeat, and so a COMMIT whose outcome nobody knows is an error as any
// other.
func (s *Store) SaveWindows(ctx context.Context, batch []tally.SourceWindows) error {
	if len(batch) == 0 {
		return nil
	}
	// BEGIN IMMEDIATE, as the pool is set up: the file's only write lock is taken here and not at the first write.
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, "save windows", err)
	}
	defer rollback(tx)
	batch = storage.BySource(batch)
	stored, err := readSources(ctx, tx, batch)
	if err != nil {
		return fail(ctx, "read the sources of windows", err)
	}
	fresh := storage.Sum(batch, stored)
	if len(fresh.Sources) == 0 {
		return nil
	}
	for _, write := range []func(context.Context, *sql.Tx, *storage.Fresh) error{
		moveSources, writeGaps, addSteps, addDomainSteps, mergeKeys, mergeRates, writeRefusals,
	} {
		if err := write(ctx, tx, fresh); err != nil {
			return fail(ctx, "save windows", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fail(ctx, "save windows", err)
	}
	return nil
}

func readSources(ctx context.Context, tx *sql.Tx, batch []tally.SourceWindows) ([]tally.Progress, error) {
	pairs := make([][]string, len(batch))
	for i := range batch {
		pairs[i] = []string{batch[i].Node, batch[i].Epoch}
	}
	const read = `
		SELECT s.node, s.epoch, s.stored, s.began, s.until, s.stopped
		FROM json_each(?1) t JOIN sources s ON s.node = t.value ->> 0 AND s.epoch = t.value ->> 1`
	return collect(ctx, tx, read, []any{storage.EncodeList(pairs)}, func(row scanner) (p tally.Progress, err error) {
		var began, until int64
		err = row.Scan(&p.Node, &p.Epoch, &p.Stored, &began, &until, &p.Stopped)
		p.Began, p.Until = fromMicro(began), fromMicro(until)
		return p, err
	})
}

func fromMicro(n int64) time.Time { return time.UnixMicro(n).UTC() }

func moveSources(ctx context.Context, tx *sql.Tx, fresh *storage.Fresh) error {
	const move = `
		INSERT INTO sources (node, epoch, stored, began, until, stopped) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
		ON CONFLICT (node, epoch) DO UPDATE SET
			stored = excluded.stored, began = excluded.began, until = excluded.until, stopped = excluded.stopped`
	_, err := insertEach(ctx, tx, move, len(fresh.Sources), func(i int) []any {
		p := &fresh.Sources[i]
		return []any{p.Node, p.Epoch, p.Stored, p.Began.UnixMicro(), p.Until.UnixMicro(), p.Stopped}
	})
	return err
}

func writeGaps(ctx context.Context, tx *sql.Tx, fresh *storage.Fresh) error {
	const insert = `INSERT INTO missing (node, epoch, since, until, windows) VALUES (?1, ?2, ?3, ?4, ?5)`
	_, err := insertEach(ctx, tx, insert, len(fresh.Gaps), func(i int) []any {
		m := &fresh.Gaps[i]
		return []any{m.Node, m.Epoch, m.From.UnixMicro(), m.To.UnixMicro(), m.Windows}
	})
	return err
}

// addition returns the statement that adds counts to a row of a table, found by its key columns.
func addition(table string, keys []string, counts storage.Columns) string {
	list, n := strings.Join(keys, ", "), len(keys)+1
	return `
		INSERT INTO ` + table + ` AS t (` + list + `, ` + counts.SQL("{c}", n) + `)
		VALUES (` + storage.Columns(keys).SQL("?{n}", 1) + `, ` + counts.SQL("nullif(?{n}, 0)", n) + `)
		ON CONFLICT (` + list + `) DO UPDATE SET ` + counts.SQL("{c} = coalesce(t.{c} + excluded.{c}, t.{c}, excluded.{c})", n)
}

var (
	stepAddition   = addition("tallies", []string{"uid", "step", "start", "version"}, storage.TallyColumns())
	domainAddition = addition("domain_tallies", []string{"domain", "step", "start"}, storage.DomainColumns())
)

func addSteps(ctx context.Context, tx *sql.Tx, fresh *storage.Fresh) error {
	_, err := insertEach(ctx, tx, stepAddition, len(fresh.Steps), func(i int) []any {
		r := &fresh.Steps[i]
		return arguments(r.Counts[:], r.UID, storage.Seconds(r.Step), r.Start.UnixMicro(), r.Version)
	})
	return err
}

func addDomainSteps(ctx context.Context, tx *sql.Tx, fresh *storage.Fresh) error {
	_, err := insertEach(ctx, tx, domainAddition, len(fresh.Domains), func(i int) []any {
		r := &fresh.Domains[i]
		return arguments(r.Counts[:], r.Domain, storage.Seconds(r.Step), r.Start.UnixMicro())
	})
	return err
}

func arguments(counts []int64, keys ...any) []any {
	for _, n := range counts {
		keys = append(keys, n)
	}
	return keys
}

// mergeKeys reads the rows of keys, adds what is new, and writes them again.
func mergeKeys(ctx context.Context, tx *sql.Tx, fresh *storage.Fresh) error {
	const read = `SELECT keys, sketch FROM tally_keys WHERE uid = ?1 AND step = ?2 AND start = ?3 AND version = ?4`
	for i := range fresh.Keys {
		r := &fresh.Keys[i]
		var keys, sketch []byte
		err := tx.QueryRowContext(ctx, read, r.UID, storage.Seconds(r.Step), r.Start.UnixMicro(), r.Version).Scan(&keys, &sketch)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		if err := r.Merge(keys, sketch); err != nil {
			unreadable(err) // and begun anew: keys are not worth holding up what is counted
		}
	}
	const write = `
		INSERT INTO tally_keys (uid, step, start, version, keys, sketch) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
		ON CONFLICT (uid, step, start, version) DO UPDATE SET keys = excluded.keys, sketch = excluded.sketch`
	_, err := insertEach(ctx, tx, write, len(fresh.Keys), func(i int) []any {
		r := &fresh.Keys[i]
		keys, sketch := r.Encode()
		return []any{r.UID, storage.Seconds(r.Step), r.Start.UnixMicro(), r.Version, keys, sketch}
	})
	return err
}

// SaveOpen is part of tally.Store: one transaction, however many nodes.
func (s *Store) SaveOpen(ctx context.Context, batch []tally.SourceWindows) error {
	open := storage.LatestOpen(batch)
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, "save open windows", err)
	}
	defer rollback(tx)
	const upsert = `
		INSERT INTO open_windows AS o (node, epoch, number, start, until, totals)
		SELECT t.node, t.epoch, t.number, t.start, t.until, t.totals
		FROM (SELECT ?1 AS node, ?2 AS epoch, ?3 AS number, ?4 AS start, ?5 AS until, ?6 AS totals) t
		LEFT JOIN sources s ON s.node = t.node AND s.epoch = t.epoch
		WHERE t.number = coalesce(s.stored, 0) + 1 AND NOT coalesce(s.stopped, false)
		ON CONFLICT (node) DO UPDATE SET
			epoch = excluded.epoch, number = excluded.number, start = excluded.start, until = excluded.until, totals = excluded.totals
		WHERE CASE WHEN o.epoch = excluded.epoch THEN (o.number, o.until) <= (excluded.number, excluded.until) ELSE o.until <= excluded.until END`
	_, err = insertEach(ctx, tx, upsert, len(open), func(i int) []any {
		o := &open[i]
		return []any{o.Node, o.Epoch, o.Number, o.Start.UnixMicro(), o.End.UnixMicro(), o.Totals}
	})
	if err != nil {
		return fail(ctx, "save open windows", err)
	}
	if err := tx.Commit(); err != nil {
		return fail(ctx, "save open windows", err)
	}
	return nil
}

// Stored is part of tally.Store.
func (s *Store) Stored(ctx context.Context, source tally.Source) (stored int64, err error) {
	const read = `SELECT coalesce(max(stored), 0) FROM sources WHERE node = ?1 AND epoch = ?2`
	if err := s.read.QueryRowContext(ctx, read, storage.Text(source.Node), storage.Text(source.Epoch)).Scan(&stored); err != nil {
		return 0, s.fail(ctx, fmt.Sprintf("read what is stored of node %s", source.Node), err)
	}
	return stored, nil
}

// Sources is part of tally.Store.
func (s *Store) Sources(ctx context.Context) ([]tally.Progress, error) {
	const read = `
		SELECT node, epoch, stored, began, until, stopped FROM sources s
		WHERE stored > 0 AND NOT EXISTS (SELECT 1 FROM sources n WHERE n.node = s.node AND (n.began, n.epoch) > (s.began, s.epoch))
		ORDER BY node`
	list, err := collect(ctx, s.read, read, nil, func(row scanner) (p tally.Progress, err error) {
		var began, until int64
		err = row.Scan(&p.Node, &p.Epoch, &p.Stored, &began, &until, &p.Stopped)
		p.Began, p.Until = fromMicro(began), fromMicro(until)
		return p, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read how far nodes have reported", err)
	}
	return list, nil
}

// Births is part of tally.Store.
func (s *Store) Births(ctx context.Context, uids []string) (map[string]tally.Birth, error) {
	const read = `
		SELECT r.uid, r.domain, r.name, v.number, v.revision
		FROM rules r JOIN versions v ON v.uid = r.uid
		WHERE r.uid IN (SELECT value FROM json_each(?1)) ORDER BY v.number`
	all := storage.Births{}
	_, err := collect(ctx, s.read, read, []any{storage.EncodeList(storage.Texts(uids))}, func(row scanner) (none struct{}, err error) {
		var uid, domain, name string
		var number, revision int64
		if err := row.Scan(&uid, &domain, &name, &number, &revision); err != nil {
			return none, err
		}
		all.Add(uid, domain, name, number, revision)
		return none, nil
	})
	if err != nil {
		return nil, s.fail(ctx, "read the versions of rules", err)
	}
	return all, nil
}
