package sqlite

import (
	"context"
	"database/sql"
	"fmt"

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
	head, err := readHead(ctx, tx)
	if err != nil {
		return 0, fail(ctx, "read the head", err)
	}
	head.Revision++
	inside := &ledgerTx{tx: tx, domain: domain, next: head.Revision, secret: storage.NewSecret()}
	change, err := decide(inside)
	if err != nil || change == nil {
		return 0, err
	}
	if err := inside.write(ctx, head, change); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil && refused(err) {
		return 0, fail(ctx, fmt.Sprintf("commit revision %d", head.Revision), err)
	} else if err != nil {
		return 0, fmt.Errorf("commit revision %d: the outcome is unknown, look into the audit trail: %w: %w", head.Revision, rules.ErrUnavailable, err)
	}
	s.signalAll()
	return head.Revision, nil
}

// write stores a change under its revision, and moves the head there. The order follows the references between the
// tables.
func (t *ledgerTx) write(ctx context.Context, head rollout.Head, change *rollout.Change) error {
	rows, err := storage.Rows(t.domain, t.next, change)
	if err != nil {
		return err
	}
	if err := t.writeDomain(ctx, change.Record.Action, rows.Settings); err != nil {
		return err
	}
	if err := writeRules(ctx, t.tx, t.next, rows.States); err != nil {
		return err
	}
	if err := writeVersions(ctx, t.tx, t.next, rows.Versions); err != nil {
		return err
	}
	if err := writeStates(ctx, t.tx, t.next, change.Record.Action, rows.States); err != nil {
		return err
	}
	record := change.Record
	record.Revision = t.next
	return writeRecord(ctx, t.tx, head, record, "")
}

func (t *ledgerTx) writeDomain(ctx context.Context, action rollout.Action, settings *string) error {
	var settingsRevision *int64
	if settings != nil {
		settingsRevision = &t.next
	}
	const upsert = `
		INSERT INTO domains (name, secret, revision, settings_revision) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT (name) DO UPDATE SET
			revision = excluded.revision, settings_revision = coalesce(excluded.settings_revision, domains.settings_revision)`
	if _, err := t.tx.ExecContext(ctx, upsert, t.domain, t.secret[:], t.next, settingsRevision); err != nil {
		return fail(ctx, "store domain "+t.domain, err)
	}
	if settings == nil {
		return nil
	}
	const insert = `INSERT INTO domain_states (domain, revision, action, settings) VALUES (?1, ?2, ?3, ?4)`
	if _, err := t.tx.ExecContext(ctx, insert, t.domain, t.next, string(action), *settings); err != nil {
		return fail(ctx, "store the settings of "+t.domain, err)
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
		INSERT INTO rule_states (uid, revision, action, stable, candidate, percent, salt, epoch, paused, overrides, plan)
		VALUES (?3, ?1, ?2, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)`
	_, err := insertEach(ctx, tx, insert, len(states), func(i int) []any {
		r := &states[i]
		return []any{revision, string(action), r.UID, r.Stable, r.Candidate, r.Percent, r.Salt, r.Epoch, r.Paused, r.Overrides, r.Plan}
	})
	if err != nil {
		return fail(ctx, "store the states", err)
	}
	return nil
}

// Rules is part of rollout.Ledger.
func (s *Store) Rules(ctx context.Context, domain string) ([]rules.Rule, error) {
	query, args := selectRules+` WHERE coalesce(s.stable, s.candidate) IS NOT NULL ORDER BY r.domain, r.name`, []any(nil)
	if domain != "" {
		query, args = selectRules+` WHERE coalesce(s.stable, s.candidate) IS NOT NULL AND r.domain = ?1 ORDER BY r.name`, []any{domain}
	}
	rows, err := queryRules(ctx, s.read, query, args...)
	if err != nil {
		return nil, s.fail(ctx, "list the rules", err)
	}
	return storage.Readable(rows, (*storage.RuleRow).Rule, unreadable), nil
}

// Domains is part of rollout.Ledger.
func (s *Store) Domains(ctx context.Context, domain string) ([]rules.Domain, error) {
	query, args := selectDomains+` ORDER BY d.name`, []any(nil)
	if domain != "" {
		query, args = selectDomains+` WHERE d.name = ?1`, []any{domain}
	}
	rows, err := queryDomains(ctx, s.read, query, args...)
	if err != nil {
		return nil, s.fail(ctx, "list the domains", err)
	}
	if domain != "" {
		return storage.All(rows, (*storage.DomainRow).Domain)
	}
	return storage.Readable(rows, (*storage.DomainRow).Domain, unreadable), nil
}

// History is part of rollout.Ledger.
func (s *Store) History(ctx context.Context, domain, name string) ([]rollout.Entry, error) {
	attempt := fmt.Sprintf("read the history of %s/%s", domain, name)
	return s.queryHistory(ctx, attempt, selectStates+` WHERE r.domain = ?1 AND r.name = ?2 ORDER BY s.revision`, domain, name)
}
