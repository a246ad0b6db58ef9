package sqlite

import (
	"context"
	"time"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// SaveNodes is part of rollout.Fleet: one statement, however many nodes.
func (s *Store) SaveNodes(ctx context.Context, nodes []rollout.Node) error {
	nodes = storage.LatestNodes(nodes)
	rows := make([][]any, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		rows[i] = []any{
			n.ID, n.Domain, n.Program, n.Identity, n.Level, n.Connected, n.Departed, n.Stream, n.Seen.UnixMicro(), n.Lineage, n.Sent, n.Acked, n.Nacked,
			n.NackReason, storage.EncodeList(n.Refused), storage.EncodeList(n.BreakGlass),
		}
	}
	const upsert = `
		WITH list AS MATERIALIZED (SELECT value FROM jsonb_each(?1))
		INSERT INTO nodes (id, domain, program, identity, level, connected, departed, stream, seen, lineage, sent, acked, nacked, nack_reason, refused, break_glass)
		SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9,
			value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15
		FROM list WHERE true
		ON CONFLICT (id, domain) DO UPDATE SET
			program = excluded.program, identity = excluded.identity, level = excluded.level, connected = excluded.connected, departed = excluded.departed,
			stream = excluded.stream, seen = excluded.seen, lineage = excluded.lineage,
			sent = excluded.sent, acked = excluded.acked, nacked = excluded.nacked,
			nack_reason = excluded.nack_reason, refused = excluded.refused, break_glass = excluded.break_glass
		WHERE (nodes.stream, nodes.seen) <= (excluded.stream, excluded.seen) OR nodes.seen < excluded.seen - ?2`
	if _, err := s.write.ExecContext(ctx, upsert, storage.EncodeList(rows), storage.Silence.Microseconds()); err != nil {
		return s.fail(ctx, "save the nodes", err)
	}
	return nil
}

// Nodes is part of rollout.Fleet.
func (s *Store) Nodes(ctx context.Context, domain string) ([]rollout.Node, error) {
	const all = `
		SELECT id, domain, program, identity, level, connected, departed, stream, seen, lineage, sent, acked, nacked, nack_reason, refused, break_glass
		FROM nodes WHERE ?1 = '' OR domain = ?1
		ORDER BY id, domain`
	list, err := collect(ctx, s.read, all, []any{domain}, func(row scanner) (rollout.Node, error) {
		var n rollout.Node
		var seen int64
		var refused, breakGlass string
		err := row.Scan(&n.ID, &n.Domain, &n.Program, &n.Identity, &n.Level, &n.Connected, &n.Departed, &n.Stream, &seen,
			&n.Lineage, &n.Sent, &n.Acked, &n.Nacked, &n.NackReason, &refused, &breakGlass)
		if err != nil {
			return n, err
		}
		n.Seen = time.UnixMicro(seen).UTC()
		if n.Refused, err = storage.DecodeList[string](refused); err != nil {
			return n, err
		}
		n.BreakGlass, err = storage.DecodeList[rollout.BreakGlass](breakGlass)
		return n, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read the nodes", err)
	}
	return list, nil
}

// ForgetNodes is part of rollout.Fleet.
func (s *Store) ForgetNodes(ctx context.Context, seenBefore time.Time) (int64, error) {
	done, err := s.write.ExecContext(ctx, `DELETE FROM nodes WHERE seen < ?1`, seenBefore.UnixMicro())
	if err != nil {
		return 0, s.fail(ctx, "forget nodes", err)
	}
	return done.RowsAffected()
}

// SaveTaken is part of rollout.Fleet: one transaction, however many rules.
func (s *Store) SaveTaken(ctx context.Context, taken []rollout.Taken) error {
	taken = storage.LatestTaken(taken)
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, "save what was taken", err)
	}
	defer rollback(tx)
	const upsert = `
		INSERT INTO taken (domain, rule, level, revision) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT (domain, rule, level) DO UPDATE SET revision = excluded.revision
		WHERE taken.revision < excluded.revision`
	_, err = insertEach(ctx, tx, upsert, len(taken), func(i int) []any {
		return []any{taken[i].Domain, taken[i].Rule, taken[i].Level, taken[i].Revision}
	})
	if err != nil {
		return fail(ctx, "save what was taken", err)
	}
	if err := tx.Commit(); err != nil {
		return fail(ctx, "save what was taken", err)
	}
	return nil
}

// Taken is part of rollout.Fleet.
func (s *Store) Taken(ctx context.Context, domain string) ([]rollout.Taken, error) {
	const all = `SELECT domain, rule, level, revision FROM taken WHERE domain = ?1 ORDER BY rule, level`
	list, err := collect(ctx, s.read, all, []any{domain}, func(row scanner) (v rollout.Taken, err error) {
		err = row.Scan(&v.Domain, &v.Rule, &v.Level, &v.Revision)
		return v, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read what was taken", err)
	}
	return list, nil
}
