package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// SaveWindows is part of tally.Store: about ten statements, however many windows. It is safe to repeat, and so a COMMIT
// whose outcome nobody knows is an error as any other.
func (s *Store) SaveWindows(ctx context.Context, batch []tally.SourceWindows) error {
	if len(batch) == 0 {
		return nil
	}
	// After the wait for the lock, each statement must see what the last holder committed: not so under stricter levels.
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fail(ctx, "save windows", err)
	}
	defer rollback(ctx, tx)
	batch = storage.BySource(batch)
	stored, err := lockSources(ctx, tx, batch)
	if err != nil {
		return fail(ctx, "lock the sources of windows", err)
	}
	fresh := storage.Sum(batch, stored)
	if len(fresh.Sources) == 0 {
		return nil
	}
	for _, write := range []func(context.Context, pgx.Tx, *storage.Fresh) error{
		moveSources, writeGaps, addSteps, addDomainSteps, s.mergeKeys, s.mergeRates, writeRefusals,
	} {
		if err := write(ctx, tx, fresh); err != nil {
			return fail(ctx, "save windows", err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return fail(ctx, "save windows", err)
	}
	return nil
}

// lockSources locks the rows of the sources, made where there are none, and reads them. A program that stalls with the
// locks would hold up the others, so the server ends its session.
func lockSources(ctx context.Context, tx pgx.Tx, batch []tally.SourceWindows) ([]tally.Progress, error) {
	if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '30s'`); err != nil {
		return nil, err
	}
	nodes, epochs := make([]string, len(batch)), make([]string, len(batch))
	for i := range batch {
		nodes[i], epochs[i] = batch[i].Node, batch[i].Epoch
	}
	const lock = `
		INSERT INTO sources AS s (node, epoch, stored, began, until, stopped)
		SELECT node, epoch, 0, now(), now(), false FROM unnest($1::text[], $2::text[]) AS t (node, epoch)
		ON CONFLICT (node, epoch) DO UPDATE SET stored = s.stored
		RETURNING node, epoch, stored, began, until, stopped`
	rows, err := tx.Query(ctx, lock, nodes, epochs)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p tally.Progress, err error) {
		err = row.Scan(&p.Node, &p.Epoch, &p.Stored, &p.Began, &p.Until, &p.Stopped)
		return p, err
	})
}

func moveSources(ctx context.Context, tx pgx.Tx, fresh *storage.Fresh) error {
	n := len(fresh.Sources)
	nodes, epochs, stored := make([]string, n), make([]string, n), make([]int64, n)
	began, until, stopped := make([]time.Time, n), make([]time.Time, n), make([]bool, n)
	for i, p := range fresh.Sources {
		nodes[i], epochs[i], stored[i], began[i], until[i], stopped[i] = p.Node, p.Epoch, p.Stored, p.Began, p.Until, p.Stopped
	}
	const move = `
		UPDATE sources s SET stored = t.stored, began = t.began, until = t.until, stopped = t.stopped
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::boolean[])
			AS t (node, epoch, stored, began, until, stopped)
		WHERE s.node = t.node AND s.epoch = t.epoch`
	_, err := tx.Exec(ctx, move, nodes, epochs, stored, began, until, stopped)
	return err
}

func writeGaps(ctx context.Context, tx pgx.Tx, fresh *storage.Fresh) error {
	const insert = `INSERT INTO missing (node, epoch, since, until, windows) VALUES ($1, $2, $3, $4, $5)`
	for _, m := range fresh.Gaps { // hardly ever any
		if _, err := tx.Exec(ctx, insert, m.Node, m.Epoch, m.From, m.To, m.Windows); err != nil {
			return err
		}
	}
	return nil
}

// addition returns the statement that adds counts to rows of a table, found by its key columns. The first array is $1.
func addition(table, keys, types string, numbers int, counts storage.Columns) string {
	return `
		INSERT INTO ` + table + ` AS t (` + keys + `, ` + counts.SQL("{c}", 0) + `)
		SELECT ` + keys + `, ` + counts.SQL("nullif({c}, 0)", 0) + `
		FROM unnest(` + types + `, ` + counts.SQL("${n}::bigint[]", numbers) + `) AS n (` + keys + `, ` + counts.SQL("{c}", 0) + `)
		ON CONFLICT (` + keys + `) DO UPDATE SET ` + counts.SQL("{c} = coalesce(t.{c} + excluded.{c}, t.{c}, excluded.{c})", 0)
}

var (
	stepAddition = addition("tallies", "uid, step, start, version",
		"$1::text[], $2::integer[], $3::timestamptz[], $4::bigint[]", 5, storage.TallyColumns())
	domainAddition = addition("domain_tallies", "domain, step, start",
		"$1::text[], $2::integer[], $3::timestamptz[]", 4, storage.DomainColumns())
)

func addSteps(ctx context.Context, tx pgx.Tx, fresh *storage.Fresh) error {
	n := len(fresh.Steps)
	uids, steps, starts, versions := make([]string, n), make([]int64, n), make([]time.Time, n), make([]int64, n)
	counts := make([][]int64, tally.Cells)
	for c := range counts {
		counts[c] = make([]int64, n)
	}
	for i := range fresh.Steps {
		r := &fresh.Steps[i]
		uids[i], steps[i], starts[i], versions[i] = r.UID, storage.Seconds(r.Step), r.Start, r.Version
		for c := range counts {
			counts[c][i] = r.Counts[c]
		}
	}
	_, err := tx.Exec(ctx, stepAddition, arguments(counts, uids, steps, starts, versions)...)
	return err
}

func addDomainSteps(ctx context.Context, tx pgx.Tx, fresh *storage.Fresh) error {
	n := len(fresh.Domains)
	domains, steps, starts := make([]string, n), make([]int64, n), make([]time.Time, n)
	counts := make([][]int64, tally.DomainCells)
	for c := range counts {
		counts[c] = make([]int64, n)
	}
	for i := range fresh.Domains {
		r := &fresh.Domains[i]
		domains[i], steps[i], starts[i] = r.Domain, storage.Seconds(r.Step), r.Start
		for c := range counts {
			counts[c][i] = r.Counts[c]
		}
	}
	_, err := tx.Exec(ctx, domainAddition, arguments(counts, domains, steps, starts)...)
	return err
}

func arguments(counts [][]int64, keys ...any) []any {
	for _, column := range counts {
		keys = append(keys, column)
	}
	return keys
}

// mergeKeys reads the rows of keys, adds what is new, and writes them again. Nobody else does meanwhile: their rows of
// counts, which are locked since addSteps, are the same.
func (s *Store) mergeKeys(ctx context.Context, tx pgx.Tx, fresh *storage.Fresh) error {
	n := len(fresh.Keys)
	if n == 0 {
		return nil
	}
	uids, steps, starts, versions := make([]string, n), make([]int64, n), make([]time.Time, n), make([]int64, n)
	for i := range fresh.Keys {
		r := &fresh.Keys[i]
		uids[i], steps[i], starts[i], versions[i] = r.UID, storage.Seconds(r.Step), r.Start, r.Version
	}
	const read = `
		SELECT t.at - 1, k.keys, k.sketch
		FROM unnest($1::text[], $2::integer[], $3::timestamptz[], $4::bigint[]) WITH ORDINALITY AS t (uid, step, start, version, at)
		JOIN tally_keys k ON k.uid = t.uid AND k.step = t.step AND k.start = t.start AND k.version = t.version`
	rows, err := tx.Query(ctx, read, uids, steps, starts, versions)
	if err != nil {
		return err
	}
	var i int
	var keys, sketch []byte
	if _, err := pgx.ForEachRow(rows, []any{&i, &keys, &sketch}, func() error {
		if err := fresh.Keys[i].Merge(keys, sketch); err != nil {
			s.unreadable(err) // and begun anew: keys are not worth holding up what is counted
		}
		return nil
	}); err != nil {
		return err
	}
	allKeys, sketches := make([][]byte, n), make([][]byte, n)
	for i := range fresh.Keys {
		allKeys[i], sketches[i] = fresh.Keys[i].Encode()
	}
	const write = `
		INSERT INTO tally_keys (uid, step, start, version, keys, sketch)
		SELECT uid, step, start, version, keys, sketch
		FROM unnest($1::text[], $2::integer[], $3::timestamptz[], $4::bigint[], $5::bytea[], $6::bytea[])
			AS t (uid, step, start, version, keys, sketch)
		ON CONFLICT (uid, step, start, version) DO UPDATE SET keys = excluded.keys, sketch = excluded.sketch`
	_, err = tx.Exec(ctx, write, uids, steps, starts, versions, allKeys, sketches)
	return err
}

// SaveOpen is part of tally.Store: one statement, however many nodes.
func (s *Store) SaveOpen(ctx context.Context, batch []tally.SourceWindows) error {
	open := storage.LatestOpen(batch)
	n := len(open)
	nodes, epochs, numbers := make([]string, n), make([]string, n), make([]int64, n)
	starts, until, totals := make([]time.Time, n), make([]time.Time, n), make([][]byte, n)
	for i := range open {
		o := &open[i]
		nodes[i], epochs[i], numbers[i], starts[i], until[i], totals[i] = o.Node, o.Epoch, o.Number, o.Start, o.End, o.Totals
	}
	const upsert = `
		INSERT INTO open_windows AS o (node, epoch, number, start, until, totals)
		SELECT t.node, t.epoch, t.number, t.start, t.until, t.totals
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::bytea[]) WITH ORDINALITY
			AS t (node, epoch, number, start, until, totals, at)
		LEFT JOIN sources s ON s.node = t.node AND s.epoch = t.epoch
		WHERE t.number = coalesce(s.stored, 0) + 1 AND NOT coalesce(s.stopped, false)
		ORDER BY t.at
		ON CONFLICT (node) DO UPDATE SET
			epoch = excluded.epoch, number = excluded.number, start = excluded.start, until = excluded.until, totals = excluded.totals
		WHERE CASE WHEN o.epoch = excluded.epoch THEN (o.number, o.until) <= (excluded.number, excluded.until) ELSE o.until <= excluded.until END`
	if _, err := s.pool.Exec(ctx, upsert, nodes, epochs, numbers, starts, until, totals); err != nil {
		return fail(ctx, "save open windows", err)
	}
	return nil
}

// Stored is part of tally.Store.
func (s *Store) Stored(ctx context.Context, source tally.Source) (stored int64, err error) {
	const read = `SELECT coalesce(max(stored), 0) FROM sources WHERE node = $1 AND epoch = $2`
	if err := s.pool.QueryRow(ctx, read, storage.Text(source.Node), storage.Text(source.Epoch)).Scan(&stored); err != nil {
		return 0, fail(ctx, fmt.Sprintf("read what is stored of node %s", source.Node), err)
	}
	return stored, nil
}

// Sources is part of tally.Store.
func (s *Store) Sources(ctx context.Context) ([]tally.Progress, error) {
	const read = `
		SELECT DISTINCT ON (node) node, epoch, stored, began, until, stopped FROM sources
		WHERE stored > 0 ORDER BY node, began DESC, epoch DESC`
	rows, err := s.pool.Query(ctx, read)
	if err != nil {
		return nil, fail(ctx, "read how far nodes have reported", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p tally.Progress, err error) {
		err = row.Scan(&p.Node, &p.Epoch, &p.Stored, &p.Began, &p.Until, &p.Stopped)
		p.Began, p.Until = p.Began.UTC(), p.Until.UTC()
		return p, err
	})
	if err != nil {
		return nil, fail(ctx, "read how far nodes have reported", err)
	}
	return list, nil
}

// Births is part of tally.Store.
func (s *Store) Births(ctx context.Context, uids []string) (map[string]tally.Birth, error) {
	const read = `
		SELECT r.uid, r.domain, r.name, v.number, v.revision
		FROM rules r JOIN versions v ON v.uid = r.uid
		WHERE r.uid = ANY ($1) ORDER BY v.number`
	rows, err := s.pool.Query(ctx, read, storage.Texts(uids))
	if err != nil {
		return nil, fail(ctx, "read the versions of rules", err)
	}
	all := storage.Births{}
	var uid, domain, name string
	var number, revision int64
	if _, err := pgx.ForEachRow(rows, []any{&uid, &domain, &name, &number, &revision}, func() error {
		all.Add(uid, domain, name, number, revision)
		return nil
	}); err != nil {
		return nil, fail(ctx, "read the versions of rules", err)
	}
	return all, nil
}
