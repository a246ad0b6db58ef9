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
	ids, domains, programs, reasons := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	connected, departed, seen := make([]bool, n), make([]bool, n), make([]time.Time, n)
	sent, acked, nacked := make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range nodes {
		v := &nodes[i]
		ids[i], domains[i], programs[i], reasons[i] = v.ID, v.Domain, v.Program, v.NackReason
		connected[i], departed[i], seen[i] = v.Connected, v.Departed, v.Seen
		sent[i], acked[i], nacked[i] = v.Sent, v.Acked, v.Nacked
	}
	const upsert = `
		INSERT INTO nodes (id, domain, program, connected, departed, seen, sent, acked, nacked, nack_reason)
		SELECT id, domain, program, connected, departed, seen, sent, acked, nacked, nack_reason
		FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::boolean[], $6::timestamptz[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[])
			AS t (id, domain, program, connected, departed, seen, sent, acked, nacked, nack_reason)
		ON CONFLICT (id, domain) DO UPDATE SET
			program = excluded.program, connected = excluded.connected, departed = excluded.departed, seen = excluded.seen,
			sent = excluded.sent, acked = excluded.acked, nacked = excluded.nacked, nack_reason = excluded.nack_reason
		WHERE nodes.seen <= excluded.seen`
	if _, err := s.pool.Exec(ctx, upsert, ids, domains, programs, connected, departed, seen, sent, acked, nacked, reasons); err != nil {
		return fail(ctx, "save the nodes", err)
	}
	return nil
}

// Nodes is part of rollout.Fleet.
func (s *Store) Nodes(ctx context.Context, domain string) ([]rollout.Node, error) {
	const all = `
		SELECT id, domain, program, connected, departed, seen, sent, acked, nacked, nack_reason
		FROM nodes WHERE $1 = '' OR domain = $1
		ORDER BY id, domain`
	rows, err := s.pool.Query(ctx, all, domain)
	if err != nil {
		return nil, fail(ctx, "read the nodes", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (rollout.Node, error) {
		var n rollout.Node
		err := row.Scan(&n.ID, &n.Domain, &n.Program, &n.Connected, &n.Departed, &n.Seen, &n.Sent, &n.Acked, &n.Nacked, &n.NackReason)
		n.Seen = n.Seen.UTC()
		return n, err
	})
	if err != nil {
		return nil, fail(ctx, "read the nodes", err)
	}
	return list, nil
}
