package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// Commit is part of rollout.Ledger. When the disk fails during the COMMIT, the error is rules.ErrUnavailable and says
// that the outcome is unknown: the audit trail has it.
func (s *Store) Commit(ctx context.Context, domain string, decide func(rollout.Tx) (*rollout.Change, error)) (int64, error) {
	if domain == "" {
		return 0, fmt.Errorf("%w: a change names its domain", rules.ErrInvalid)
	}
	// BEGIN IMMEDIATE, as the pool is set up: the file's only write lock is taken here and not at the first write.
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return 0, s.fail(ctx, "begin a change", err)
	}
	defer rollback(tx)
	var head int64
	if err := tx.QueryRowContext(ctx, `SELECT revision FROM head`).Scan(&head); err != nil {
		return 0, fail(ctx, "read the head", err)
	}
	next := head + 1
	change, err := decide(&ledgerTx{tx: tx, domain: domain, next: next})
	if err != nil || change == nil {
		return 0, err
	}
	if err := write(ctx, tx, domain, next, change); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil && refused(err) {
		return 0, fail(ctx, fmt.Sprintf("commit revision %d", next), err)
	} else if err != nil {
		return 0, fmt.Errorf("commit revision %d: the outcome is unknown, look into the audit trail: %w: %w", next, rules.ErrUnavailable, err)
	}
	s.signalAll()
	return next, nil
}

// write stores a change under its revision. The order follows the references between the tables.
func write(ctx context.Context, tx *sql.Tx, domain string, revision int64, change *rollout.Change) error {
	states, versions, err := storage.Rows(domain, revision, change)
	if err != nil {
		return err
	}
	if err := writeDomain(ctx, tx, domain, revision); err != nil {
		return err
	}
	if err := writeRules(ctx, tx, revision, states); err != nil {
		return err
	}
	if err := writeVersions(ctx, tx, revision, versions); err != nil {
		return err
	}
	if err := writeStates(ctx, tx, revision, change.Record.Action, states); err != nil {
		return err
	}
	if err := writeRecord(ctx, tx, &revision, &change.Record); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE head SET revision = ?1`, revision); err != nil {
		return fail(ctx, "move the head", err)
	}
	return nil
}

func writeDomain(ctx context.Context, tx *sql.Tx, domain string, revision int64) error {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails since Go 1.24
	const upsert = `
		INSERT INTO domains (name, secret, revision) VALUES (?1, ?2, ?3)
		ON CONFLICT (name) DO UPDATE SET revision = excluded.revision`
	if _, err := tx.ExecContext(ctx, upsert, domain, secret, revision); err != nil {
		return fail(ctx, "store domain "+domain, err)
	}
	return nil
}

// insertEach runs one statement for each of n rows, and returns how many rows each of them wrote.
func insertEach(ctx context.Context, tx *sql.Tx, query string, n int, args func(i int) []any) ([]int64, error) {
	stmt, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stmt.Close() }()
	wrote := make([]int64, n)
	for i := range n {
		done, err := stmt.ExecContext(ctx, args(i)...)
		if err != nil {
			return nil, err
		}
		if wrote[i], err = done.RowsAffected(); err != nil {
			return nil, err
		}
	}
	return wrote, nil
}

func writeRules(ctx context.Context, tx *sql.Tx, revision int64, states []storage.RuleRow) error {
	const upsert = `
		INSERT INTO rules (uid, domain, name, revision) VALUES (?2, ?3, ?4, ?1)
		ON CONFLICT (uid) DO UPDATE SET revision = excluded.revision
		WHERE rules.domain = excluded.domain AND rules.name = excluded.name`
	wrote, err := insertEach(ctx, tx, upsert, len(states), func(i int) []any {
		return []any{revision, states[i].UID, states[i].Domain, states[i].Name}
	})
	if err != nil {
		return fail(ctx, "store the rules", err)
	}
	for _, n := range wrote {
		if n == 0 {
			return fmt.Errorf("store the rules: %w: a uid belongs to a rule of another name", rules.ErrConflict)
		}
	}
	return nil
}

func writeVersions(ctx context.Context, tx *sql.Tx, revision int64, versions []storage.VersionRow) error {
	const insert = `
		INSERT INTO versions (uid, number, spec, revision) VALUES (?2, ?3, ?4, ?1)
		ON CONFLICT (uid, number) DO NOTHING`
	wrote, err := insertEach(ctx, tx, insert, len(versions), func(i int) []any {
		return []any{revision, versions[i].UID, versions[i].Number, versions[i].Spec}
	})
	if err != nil {
		return fail(ctx, "store the versions", err)
	}
	// Versions do not change: those that were there must say what the change takes them to say.
	for i, v := range versions {
		if wrote[i] > 0 {
			continue
		}
		var stored string
		err := tx.QueryRowContext(ctx, `SELECT spec FROM versions WHERE uid = ?1 AND number = ?2`, v.UID, v.Number).Scan(&stored)
		if err != nil {
			return fail(ctx, "compare the versions", err)
		}
		if !v.Same(stored) {
			return fmt.Errorf("compare the versions: %w: v%d of rule %s is already another spec", rules.ErrConflict, v.Number, v.UID)
		}
	}
	return nil
}

func writeStates(ctx context.Context, tx *sql.Tx, revision int64, action rollout.Action, states []storage.RuleRow) error {
	const insert = `
		INSERT INTO rule_states (uid, revision, action, stable, candidate, percent, salt, epoch)
		VALUES (?3, ?1, ?2, ?4, ?5, ?6, ?7, ?8)`
	_, err := insertEach(ctx, tx, insert, len(states), func(i int) []any {
		r := &states[i]
		return []any{revision, string(action), r.UID, r.Stable, r.Candidate, r.Percent, r.Salt, r.Epoch}
	})
	if err != nil {
		return fail(ctx, "store the states", err)
	}
	return nil
}

// Refuse is part of rollout.Ledger. It takes the lock that changes take: the record's number is the next one.
func (s *Store) Refuse(ctx context.Context, record rollout.Record) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, "record a refusal", err)
	}
	defer rollback(tx)
	if err := writeRecord(ctx, tx, nil, &record); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fail(ctx, "record a refusal", err)
	}
	return nil
}

// writeRecord stores a record; a revision of nil is NULL.
func writeRecord(ctx context.Context, tx *sql.Tx, revision *int64, r *rollout.Record) error {
	const insert = `
		INSERT INTO audit (number, revision, refused, domain, at, actor, verified, action, target, message, detail, before, after)
		SELECT coalesce(max(number), 0) + 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 FROM audit`
	_, err := tx.ExecContext(ctx, insert, revision, storage.Text(r.Refused), r.Domain, r.Time.UnixMicro(), storage.Text(r.Actor.Name), r.Actor.Verified,
		string(r.Action), storage.Text(r.Target), storage.Text(r.Message), r.Detail, string(r.Before), string(r.After))
	if err != nil {
		return fail(ctx, "store the audit record", err)
	}
	return nil
}

// Rules is part of rollout.Ledger.
func (s *Store) Rules(ctx context.Context, domain string) ([]rules.Rule, error) {
	var list []rules.Rule
	var err error
	if domain == "" {
		list, err = queryRules(ctx, s.read, selectRules+` ORDER BY r.domain, r.name`)
	} else {
		list, err = queryRules(ctx, s.read, selectRules+` WHERE r.domain = ?1 ORDER BY r.name`, domain)
	}
	if err != nil {
		return nil, s.fail(ctx, "list the rules", err)
	}
	return list, nil
}

// Audit is part of rollout.Ledger.
func (s *Store) Audit(ctx context.Context, domain string, limit int) ([]rollout.Record, error) {
	const columns = `
		SELECT coalesce(revision, 0), refused, domain, at, actor, verified, action, target, message, detail, before, after
		FROM audit`
	query, args := columns+` ORDER BY number DESC LIMIT ?1`, []any{max(limit, 0)}
	if domain != "" {
		query, args = columns+` WHERE domain = ?2 ORDER BY number DESC LIMIT ?1`, append(args, domain)
	}
	list, err := collect(ctx, s.read, query, args, func(row scanner) (rollout.Record, error) {
		var r rollout.Record
		var at int64
		var before, after string
		err := row.Scan(&r.Revision, &r.Refused, &r.Domain, &at, &r.Actor.Name, &r.Actor.Verified,
			&r.Action, &r.Target, &r.Message, &r.Detail, &before, &after)
		r.Time = time.UnixMicro(at).UTC()
		r.Before, r.After = json.RawMessage(before), json.RawMessage(after)
		return r, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read the audit trail", err)
	}
	return list, nil
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type scanner interface {
	Scan(into ...any) error
}

// collect runs a query and makes a value of each row.
func collect[T any](ctx context.Context, q querier, query string, args []any, one func(scanner) (T, error)) (list []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := one(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}
