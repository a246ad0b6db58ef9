package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// withRecord makes a change that has a record but no revision. It takes the lock that all changes take: the record's
// number is the next one, and its seal follows the last. With nil it stores the record alone.
func (s *Store) withRecord(ctx context.Context, attempt string, record rollout.Record, key string, change func(pgx.Tx, *rollout.Head) error) error {
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		head, err := lockHead(ctx, tx)
		if err != nil {
			return err
		}
		if change != nil {
			if err := change(tx, &head); err != nil {
				return err
			}
		}
		record.Revision = 0
		return writeRecord(ctx, tx, head, record, key)
	})
	if err != nil {
		return fail(ctx, attempt, err)
	}
	return nil
}

// writeRecord stores a record, and the head as it is with it; nothing when a record with the key is there.
func writeRecord(ctx context.Context, tx pgx.Tx, head rollout.Head, record rollout.Record, key string) error {
	r := storage.Append(&head, record)
	const insert = `
		INSERT INTO audit (number, revision, refused, domain, at, actor, verified, action, target, message, detail, before, after, seal, key)
		VALUES ($1, nullif($2::bigint, 0), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, nullif($15::text, ''))
		ON CONFLICT (key) DO NOTHING`
	done, err := tx.Exec(ctx, insert, r.Number, r.Revision, r.Refused, r.Domain, r.Time, r.Actor.Name, r.Actor.Verified,
		string(r.Action), r.Target, r.Message, r.Detail, string(r.Before), string(r.After), r.Seal, storage.Text(key))
	if err != nil {
		return fail(ctx, "store the audit record", err)
	}
	if done.RowsAffected() == 0 {
		return nil
	}
	const move = `UPDATE head SET revision = $1, lineage = $2, records = $3, seal = $4`
	if _, err := tx.Exec(ctx, move, head.Revision, head.Lineage, head.Records, head.Seal); err != nil {
		return fail(ctx, "move the head", err)
	}
	return nil
}

// Note is part of rollout.Ledger.
func (s *Store) Note(ctx context.Context, record rollout.Record, key string) error {
	return s.withRecord(ctx, "store a note", record, key, nil)
}

// Audit is part of rollout.Ledger.
func (s *Store) Audit(ctx context.Context, query rollout.AuditQuery) ([]rollout.Record, error) {
	statement := `
		SELECT number, coalesce(revision, 0), refused, domain, at, actor, verified, action, target, message, detail, before, after, seal
		FROM audit WHERE number < $1`
	before := query.Before
	if before == 0 {
		before = math.MaxInt64
	}
	args := []any{before, max(query.Limit, 0)}
	where := func(condition string, value any) {
		args = append(args, value)
		statement += fmt.Sprintf(` AND `+condition, len(args))
	}
	if query.Domain != "" {
		where(`domain = $%d`, query.Domain)
	}
	if query.Target != "" {
		where(`(target = $%[1]d OR position(chr(10) || $%[1]d || ': ' IN chr(10) || detail) > 0)`, query.Target)
	}
	if query.Actor != "" {
		where(`actor = $%d`, storage.Text(query.Actor))
	}
	if query.Action != "" {
		where(`action = $%d`, storage.Text(string(query.Action)))
	}
	if !query.From.IsZero() {
		where(`at >= $%d`, query.From)
	}
	if !query.To.IsZero() {
		where(`at < $%d`, query.To)
	}
	rows, err := s.pool.Query(ctx, statement+` ORDER BY number DESC LIMIT $2`, args...)
	if err != nil {
		return nil, fail(ctx, "read the audit trail", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (rollout.Record, error) {
		var r rollout.Record
		var before, after string
		err := row.Scan(&r.Number, &r.Revision, &r.Refused, &r.Domain, &r.Time, &r.Actor.Name, &r.Actor.Verified,
			&r.Action, &r.Target, &r.Message, &r.Detail, &before, &after, &r.Seal)
		r.Time = r.Time.UTC()
		r.Before, r.After = json.RawMessage(before), json.RawMessage(after)
		return r, err
	})
	if err != nil {
		return nil, fail(ctx, "read the audit trail", err)
	}
	return list, nil
}

// Head is part of rollout.Ledger.
func (s *Store) Head(ctx context.Context) (head rollout.Head, err error) {
	const read = `SELECT revision, lineage, records, seal FROM head`
	if err := s.pool.QueryRow(ctx, read).Scan(&head.Revision, &head.Lineage, &head.Records, &head.Seal); err != nil {
		return rollout.Head{}, fail(ctx, "read the head", err)
	}
	return head, nil
}

// RenewLineage is part of rollout.Ledger. What was taken, and which histories this one may replace, was said of the old
// one: it is forgotten.
func (s *Store) RenewLineage(ctx context.Context, record rollout.Record) (lineage string, err error) {
	lineage = storage.NewLineage()
	err = s.withRecord(ctx, "renew the lineage", storage.AboutLineage(record, lineage), "", func(tx pgx.Tx, head *rollout.Head) error {
		head.Lineage = lineage
		if _, err := tx.Exec(ctx, `DELETE FROM taken`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM replaced`); err != nil {
			return err
		}
		return notify(ctx, tx)
	})
	if err != nil {
		return "", err
	}
	return lineage, nil
}

// ReplaceLineage is part of rollout.Ledger.
func (s *Store) ReplaceLineage(ctx context.Context, lineage string, record rollout.Record) error {
	return s.withRecord(ctx, "replace lineage "+lineage, record, "", func(tx pgx.Tx, _ *rollout.Head) error {
		if _, err := tx.Exec(ctx, `INSERT INTO replaced (lineage) VALUES ($1) ON CONFLICT (lineage) DO NOTHING`, lineage); err != nil {
			return err
		}
		return notify(ctx, tx)
	})
}
