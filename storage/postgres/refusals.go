package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// writeRefusals puts refusals into the rings of their rules, in place of the oldest where a ring is full.
func writeRefusals(ctx context.Context, tx pgx.Tx, fresh *storage.Fresh) error {
	if len(fresh.Rings) == 0 {
		return nil
	}
	next, err := turnRings(ctx, tx, fresh.Rings)
	if err != nil {
		return err
	}
	var uids, nodes, domains, limits, labels, paths, references []string
	var slots, versions, outcomes []int64
	var times []time.Time
	var keys [][]byte
	for i := range fresh.Rings {
		ring := &fresh.Rings[i]
		for j := range ring.Refusals {
			r := &ring.Refusals[j]
			uids, slots = append(uids, ring.UID), append(slots, ring.Slot(j, next[ring.UID]))
			times, nodes, domains, versions = append(times, r.Time), append(nodes, r.Node), append(domains, r.Domain), append(versions, r.Version)
			limits, outcomes, keys = append(limits, r.Limit), append(outcomes, int64(r.Outcome)), append(keys, r.Key[:])
			labels, paths, references = append(labels, r.Label), append(paths, r.Path), append(references, r.Reference)
		}
	}
	const upsert = `
		INSERT INTO refusals (uid, slot, at, node, domain, version, limit_name, outcome, key, label, path, reference)
		SELECT uid, slot, at, node, domain, version, limit_name, outcome, key, label, path, reference
		FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::integer[],
				$9::bytea[], $10::text[], $11::text[], $12::text[])
			AS t (uid, slot, at, node, domain, version, limit_name, outcome, key, label, path, reference)
		ON CONFLICT (uid, slot) DO UPDATE SET
			at = excluded.at, node = excluded.node, domain = excluded.domain, version = excluded.version, limit_name = excluded.limit_name, outcome = excluded.outcome,
			key = excluded.key, label = excluded.label, path = excluded.path, reference = excluded.reference`
	_, err = tx.Exec(ctx, upsert, uids, slots, times, nodes, domains, versions, limits, outcomes, keys, labels, paths, references)
	return err
}

// turnRings locks the rings and returns how many refusals there have been of each rule, with the new ones.
func turnRings(ctx context.Context, tx pgx.Tx, rings []storage.Ring) (map[string]int64, error) {
	uids, counts := make([]string, len(rings)), make([]int64, len(rings))
	for i := range rings {
		uids[i], counts[i] = rings[i].UID, int64(len(rings[i].Refusals))
	}
	const turn = `
		INSERT INTO refusal_rings AS r (uid, next) SELECT uid, n FROM unnest($1::text[], $2::bigint[]) AS t (uid, n)
		ON CONFLICT (uid) DO UPDATE SET next = r.next + excluded.next
		RETURNING uid, next`
	rows, err := tx.Query(ctx, turn, uids, counts)
	if err != nil {
		return nil, err
	}
	all := make(map[string]int64, len(rings))
	var uid string
	var next int64
	_, err = pgx.ForEachRow(rows, []any{&uid, &next}, func() error {
		all[uid] = next
		return nil
	})
	return all, err
}

// Refusals is part of tally.Store.
func (s *Store) Refusals(ctx context.Context, query tally.RefusalQuery) ([]tally.Refusal, error) {
	statement := `
		SELECT at, node, domain, uid, version, limit_name, outcome, key, label, path, reference
		FROM refusals
		WHERE at >= $1 AND at < $2`
	args := []any{query.From, query.To, max(query.Limit, 0)}
	where := func(column string, value any) {
		args = append(args, value)
		statement += fmt.Sprintf(` AND %s = $%d`, column, len(args))
	}
	if query.Domain != "" {
		where("domain", query.Domain)
	}
	if query.UID != "" {
		where("uid", query.UID)
	}
	if query.Key != (tally.KeyID{}) {
		where("key", query.Key[:])
	}
	if query.Reference != "" {
		where("reference", query.Reference)
		statement += ` AND reference <> ''` // says which index serves
	}
	rows, err := s.pool.Query(ctx, statement+` ORDER BY at DESC, uid, slot DESC LIMIT $3`, args...)
	if err != nil {
		return nil, fail(ctx, "read refusals", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r tally.Refusal, err error) {
		var key []byte
		err = row.Scan(&r.Time, &r.Node, &r.Domain, &r.UID, &r.Version, &r.Limit, &r.Outcome, &key, &r.Label, &r.Path, &r.Reference)
		r.Time = r.Time.UTC()
		copy(r.Key[:], key)
		return r, err
	})
	if err != nil {
		return nil, fail(ctx, "read refusals", err)
	}
	return list, nil
}

// Missing is part of tally.Store. What a node that was killed left behind is not noted but seen: its source was not
// stopped, and another began, or nobody has seen the node since. So a window that arrives later corrects it.
func (s *Store) Missing(ctx context.Context, from, to time.Time) ([]tally.Missing, error) {
	const read = `
		SELECT node, epoch, since, until, windows FROM missing WHERE until >= $1 AND since < $2
		UNION ALL
		SELECT s.node, s.epoch, s.until, greatest(s.until, n.began), 0
		FROM sources s CROSS JOIN LATERAL (
			SELECT began FROM sources n WHERE n.node = s.node AND (n.began, n.epoch) > (s.began, s.epoch) ORDER BY n.began, n.epoch LIMIT 1) n
		WHERE NOT s.stopped AND s.until < $2 AND greatest(s.until, n.began) >= $1
		UNION ALL
		SELECT s.node, s.epoch, s.until, n.seen, 0
		FROM sources s CROSS JOIN LATERAL (SELECT max(seen) AS seen FROM nodes WHERE id = s.node) n
		WHERE NOT s.stopped AND s.until < $2 AND n.seen >= $1 AND n.seen > s.until AND n.seen < $3 AND NOT EXISTS (
			SELECT FROM sources l WHERE l.node = s.node AND (l.began, l.epoch) > (s.began, s.epoch))
		ORDER BY since DESC, node, epoch`
	rows, err := s.pool.Query(ctx, read, from, to, time.Now().Add(-tally.SilentFor))
	if err != nil {
		return nil, fail(ctx, "read what is missing", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m tally.Missing, err error) {
		err = row.Scan(&m.Node, &m.Epoch, &m.From, &m.To, &m.Windows)
		m.From, m.To = m.From.UTC(), m.To.UTC()
		return m, err
	})
	if err != nil {
		return nil, fail(ctx, "read what is missing", err)
	}
	return list, nil
}
