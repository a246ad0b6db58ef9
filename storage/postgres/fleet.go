package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// SaveNodes is part of rollout.Fleet: one statement, however many nodes.
func (s *Store) SaveNodes(ctx context.Context, nodes []rollout.Node) error {
	nodes = storage.LatestNodes(nodes)
	n := len(nodes)
	ids, domains, programs, levels := make([]string, n), make([]string, n), make([]string, n), make([]int64, n)
	identities := make([]string, n)
	connected, departed, streams, seen := make([]bool, n), make([]bool, n), make([]int64, n), make([]time.Time, n)
	lineages, sent, acked, nacked := make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n)
	reasons, refused, breakGlass := make([]string, n), make([]string, n), make([]string, n)
	for i := range nodes {
		v := &nodes[i]
		ids[i], domains[i], programs[i], identities[i], levels[i] = v.ID, v.Domain, v.Program, v.Identity, int64(v.Level)
		connected[i], departed[i], streams[i], seen[i] = v.Connected, v.Departed, v.Stream, v.Seen
		lineages[i], sent[i], acked[i], nacked[i] = v.Lineage, v.Sent, v.Acked, v.Nacked
		reasons[i], refused[i], breakGlass[i] = v.NackReason, storage.EncodeList(v.Refused), storage.EncodeList(v.BreakGlass)
	}
	const upsert = `
		INSERT INTO nodes (id, domain, program, identity, level, connected, departed, stream, seen, lineage, sent, acked, nacked, nack_reason, refused, break_glass)
		SELECT id, domain, program, identity, level, connected, departed, stream, seen, lineage, sent, acked, nacked, nack_reason, refused, break_glass
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::boolean[], $7::boolean[], $8::bigint[], $9::timestamptz[],
				$10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[], $15::text[], $16::text[])
			AS t (id, domain, program, identity, level, connected, departed, stream, seen, lineage, sent, acked, nacked, nack_reason, refused, break_glass)
		ON CONFLICT (id, domain) DO UPDATE SET
			program = excluded.program, identity = excluded.identity, level = excluded.level, connected = excluded.connected, departed = excluded.departed,
			stream = excluded.stream, seen = excluded.seen, lineage = excluded.lineage,
			sent = excluded.sent, acked = excluded.acked, nacked = excluded.nacked,
			nack_reason = excluded.nack_reason, refused = excluded.refused, break_glass = excluded.break_glass
		WHERE (nodes.stream, nodes.seen) <= (excluded.stream, excluded.seen) OR nodes.seen < excluded.seen - $17::interval`
	_, err := s.pool.Exec(ctx, upsert, ids, domains, programs, identities, levels, connected, departed, streams, seen,
		lineages, sent, acked, nacked, reasons, refused, breakGlass, storage.Silence)
	if err != nil {
		return fail(ctx, "save the nodes", err)
	}
	return nil
}

// Nodes is part of rollout.Fleet.
func (s *Store) Nodes(ctx context.Context, domain string) ([]rollout.Node, error) {
	const all = `
		SELECT id, domain, program, identity, level, connected, departed, stream, seen, lineage, sent, acked, nacked, nack_reason, refused, break_glass
		FROM nodes WHERE $1 = '' OR domain = $1
		ORDER BY id, domain`
	rows, err := s.pool.Query(ctx, all, domain)
	if err != nil {
		return nil, fail(ctx, "read the nodes", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (rollout.Node, error) {
		var n rollout.Node
		var refused, breakGlass string
		err := row.Scan(&n.ID, &n.Domain, &n.Program, &n.Identity, &n.Level, &n.Connected, &n.Departed, &n.Stream, &n.Seen,
			&n.Lineage, &n.Sent, &n.Acked, &n.Nacked, &n.NackReason, &refused, &breakGlass)
		if err != nil {
			return n, err
		}
		n.Seen = n.Seen.UTC()
		if n.Refused, err = storage.DecodeList[string](refused); err != nil {
			return n, err
		}
		n.BreakGlass, err = storage.DecodeList[rollout.BreakGlass](breakGlass)
		return n, err
	})
	if err != nil {
		return nil, fail(ctx, "read the nodes", err)
	}
	return list, nil
}

// ForgetNodes is part of rollout.Fleet.
func (s *Store) ForgetNodes(ctx context.Context, seenBefore time.Time) (int64, error) {
	done, err := s.pool.Exec(ctx, `DELETE FROM nodes WHERE seen < $1`, seenBefore)
	if err != nil {
		return 0, fail(ctx, "forget nodes", err)
	}
	return done.RowsAffected(), nil
}

// SaveTaken is part of rollout.Fleet: one statement, however many rules.
func (s *Store) SaveTaken(ctx context.Context, taken []rollout.Taken) error {
	taken = storage.LatestTaken(taken)
	n := len(taken)
	domains, names, levels, revisions := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n)
	for i, v := range taken {
		domains[i], names[i], levels[i], revisions[i] = v.Domain, v.Rule, int64(v.Level), v.Revision
	}
	const upsert = `
		INSERT INTO taken (domain, rule, level, revision)
		SELECT domain, rule, level, revision FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS t (domain, rule, level, revision)
		ON CONFLICT (domain, rule, level) DO UPDATE SET revision = excluded.revision
		WHERE taken.revision < excluded.revision`
	if _, err := s.pool.Exec(ctx, upsert, domains, names, levels, revisions); err != nil {
		return fail(ctx, "save what was taken", err)
	}
	return nil
}

// Taken is part of rollout.Fleet.
func (s *Store) Taken(ctx context.Context, domain string) ([]rollout.Taken, error) {
	const all = `SELECT domain, rule, level, revision FROM taken WHERE domain = $1 ORDER BY rule, level`
	rows, err := s.pool.Query(ctx, all, domain)
	if err != nil {
		return nil, fail(ctx, "read what was taken", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v rollout.Taken, err error) {
		err = row.Scan(&v.Domain, &v.Rule, &v.Level, &v.Revision)
		return v, err
	})
	if err != nil {
		return nil, fail(ctx, "read what was taken", err)
	}
	return list, nil
}
