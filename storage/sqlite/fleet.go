package sqlite

import (
	"context"
	"time"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// SaveNodes is part of rollout.Fleet: one transaction, however many nodes.
func (s *Store) SaveNodes(ctx context.Context, nodes []rollout.Node) error {
	nodes = storage.LatestNodes(nodes)
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, "save the nodes", err)
	}
	defer rollback(tx)
	const upsert = `
		INSERT INTO nodes (id, domain, program, connected, departed, seen, sent, acked, nacked, nack_reason)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
		ON CONFLICT (id, domain) DO UPDATE SET
			program = excluded.program, connected = excluded.connected, departed = excluded.departed, seen = excluded.seen,
			sent = excluded.sent, acked = excluded.acked, nacked = excluded.nacked, nack_reason = excluded.nack_reason
		WHERE nodes.seen <= excluded.seen`
	_, err = insertEach(ctx, tx, upsert, len(nodes), func(i int) []any {
		n := &nodes[i]
		return []any{n.ID, n.Domain, n.Program, n.Connected, n.Departed, n.Seen.UnixMicro(), n.Sent, n.Acked, n.Nacked, n.NackReason}
	})
	if err != nil {
		return fail(ctx, "save the nodes", err)
	}
	if err := tx.Commit(); err != nil {
		return fail(ctx, "save the nodes", err)
	}
	return nil
}

// Nodes is part of rollout.Fleet.
func (s *Store) Nodes(ctx context.Context, domain string) ([]rollout.Node, error) {
	const all = `
		SELECT id, domain, program, connected, departed, seen, sent, acked, nacked, nack_reason
		FROM nodes WHERE ?1 = '' OR domain = ?1
		ORDER BY id, domain`
	list, err := collect(ctx, s.read, all, []any{domain}, func(row scanner) (rollout.Node, error) {
		var n rollout.Node
		var seen int64
		err := row.Scan(&n.ID, &n.Domain, &n.Program, &n.Connected, &n.Departed, &seen, &n.Sent, &n.Acked, &n.Nacked, &n.NackReason)
		n.Seen = time.UnixMicro(seen).UTC()
		return n, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read the nodes", err)
	}
	return list, nil
}
