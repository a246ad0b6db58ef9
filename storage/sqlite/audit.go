package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// withRecord makes a change that has a record but no revision. It takes the lock that all changes take: the record's
// number is the next one, and its seal follows the last. With nil it stores the record alone.
func (s *Store) withRecord(ctx context.Context, attempt string, record rollout.Record, key string, change func(*sql.Tx, *rollout.Head) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, attempt, err)
	}
	defer rollback(tx)
	head, err := readHead(ctx, tx)
	if err != nil {
		return fail(ctx, attempt, err)
	}
	if change != nil {
		if err := change(tx, &head); err != nil {
			return fail(ctx, attempt, err)
		}
	}
	record.Revision = 0
	if err := writeRecord(ctx, tx, head, record, key); err != nil {
		return fail(ctx, attempt, err)
	}
	if err := tx.Commit(); err != nil {
		return fail(ctx, attempt, err)
	}
	return nil
}

// writeRecord stores a record, and the head as it is with it; nothing when a record with the key is there.
func writeRecord(ctx context.Context, tx *sql.Tx, head rollout.Head, record rollout.Record, key string) error {
	r := storage.Append(&head, record)
	const insert = `
		INSERT INTO audit (number, revision, refused, domain, at, actor, verified, action, target, message, detail, before, after, seal, key)
		VALUES (?1, nullif(?2, 0), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, nullif(?15, ''))
		ON CONFLICT (key) DO NOTHING`
	done, err := tx.ExecContext(ctx, insert, r.Number, r.Revision, r.Refused, r.Domain, r.Time.UnixMicro(), r.Actor.Name, r.Actor.Verified,
		string(r.Action), r.Target, r.Message, r.Detail, string(r.Before), string(r.After), r.Seal, storage.Text(key))
	if err != nil {
		return fail(ctx, "store the audit record", err)
	}
	if wrote, err := done.RowsAffected(); err != nil || wrote == 0 {
		return err
	}
	const move = `UPDATE head SET revision = ?1, lineage = ?2, records = ?3, seal = ?4`
	if _, err := tx.ExecContext(ctx, move, head.Revision, head.Lineage, head.Records, head.Seal); err != nil {
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
		FROM audit WHERE number < ?1`
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
		where(`domain = ?%d`, query.Domain)
	}
	if query.Target != "" {
		where(`(target = ?%[1]d OR instr(char(10) || detail, char(10) || ?%[1]d || ': ') > 0)`, query.Target)
	}
	if query.Actor != "" {
		where(`actor = ?%d`, storage.Text(query.Actor))
	}
	if query.Action != "" {
		where(`action = ?%d`, storage.Text(string(query.Action)))
	}
	if !query.From.IsZero() {
		where(`at >= ?%d`, query.From.UnixMicro())
	}
	if !query.To.IsZero() {
		where(`at < ?%d`, query.To.UnixMicro())
	}
	list, err := collect(ctx, s.read, statement+` ORDER BY number DESC LIMIT ?2`, args, func(row scanner) (rollout.Record, error) {
		var r rollout.Record
		var at int64
		var before, after string
		err := row.Scan(&r.Number, &r.Revision, &r.Refused, &r.Domain, &at, &r.Actor.Name, &r.Actor.Verified,
			&r.Action, &r.Target, &r.Message, &r.Detail, &before, &after, &r.Seal)
		r.Time = time.UnixMicro(at).UTC()
		r.Before, r.After = json.RawMessage(before), json.RawMessage(after)
		return r, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read the audit trail", err)
	}
	return list, nil
}

// Head is part of rollout.Ledger.
func (s *Store) Head(ctx context.Context) (rollout.Head, error) {
	head, err := readHead(ctx, s.read)
	if err != nil {
		return rollout.Head{}, s.fail(ctx, "read the head", err)
	}
	return head, nil
}

func readHead(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (head rollout.Head, err error) {
	const read = `SELECT revision, lineage, records, seal FROM head`
	err = q.QueryRowContext(ctx, read).Scan(&head.Revision, &head.Lineage, &head.Records, &head.Seal)
	return head, err
}

// RenewLineage is part of rollout.Ledger. What was taken, and which histories this one may replace, was said of the old
// one: it is forgotten.
func (s *Store) RenewLineage(ctx context.Context, record rollout.Record) (lineage string, err error) {
	lineage = storage.NewLineage()
	err = s.withRecord(ctx, "renew the lineage", storage.AboutLineage(record, lineage), "", func(tx *sql.Tx, head *rollout.Head) error {
		head.Lineage = lineage
		if _, err := tx.ExecContext(ctx, `DELETE FROM taken`); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM replaced`)
		return err
	})
	if err != nil {
		return "", err
	}
	s.signalAll()
	return lineage, nil
}

// ReplaceLineage is part of rollout.Ledger.
func (s *Store) ReplaceLineage(ctx context.Context, lineage string, record rollout.Record) error {
	err := s.withRecord(ctx, "replace lineage "+lineage, record, "", func(tx *sql.Tx, _ *rollout.Head) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO replaced (lineage) VALUES (?1) ON CONFLICT (lineage) DO NOTHING`, lineage)
		return err
	})
	if err == nil {
		s.signalAll()
	}
	return err
}
