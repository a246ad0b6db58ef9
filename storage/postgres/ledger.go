package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// lockHead takes the row lock that makes changes come one after the other. Whoever holds it holds up all programs, so
// the server ends the session of one that stalls: decide has that long between two of its statements.
const lockHead = `
	SELECT revision, set_config('idle_in_transaction_session_timeout', '30s', true)
	FROM head FOR UPDATE`

// commitTimeout bounds a COMMIT.
const commitTimeout = 10 * time.Second

// Commit is part of rollout.Ledger. When the connection breaks during the COMMIT, the error is rules.ErrUnavailable and
// says that the outcome is unknown: the audit trail has it.
func (s *Store) Commit(ctx context.Context, domain string, decide func(rollout.Tx) (*rollout.Change, error)) (int64, error) {
	if domain == "" {
		return 0, fmt.Errorf("%w: a change names its domain", rules.ErrInvalid)
	}
	// After the wait for the lock, each statement must see what the last holder committed: not so under stricter levels.
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, fail(ctx, "begin a change", err)
	}
	defer rollback(ctx, tx)
	var head int64
	if err := tx.QueryRow(ctx, lockHead).Scan(&head, nil); err != nil {
		return 0, fail(ctx, "lock the head", err)
	}
	next := head + 1
	change, err := decide(&ledgerTx{tx: tx, domain: domain, next: next})
	if err != nil || change == nil {
		return 0, err
	}
	if err := write(ctx, tx, domain, next, change); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("commit revision %d: %w", next, err)
	}
	// A caller that gives up now would not learn the outcome, so the COMMIT is bounded but not canceled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := tx.Commit(ctx); refused(err) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return 0, fail(ctx, fmt.Sprintf("commit revision %d", next), err)
	} else if err != nil {
		return 0, fmt.Errorf("commit revision %d: the outcome is unknown, look into the audit trail: %w: %w", next, rules.ErrUnavailable, err)
	}
	return next, nil
}

// write stores a change under its revision. The order follows the references between the tables.
func write(ctx context.Context, tx pgx.Tx, domain string, revision int64, change *rollout.Change) error {
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
	if _, err := tx.Exec(ctx, `UPDATE head SET revision = $1`, revision); err != nil {
		return fail(ctx, "move the head", err)
	}
	// Delivered when the transaction commits, and not at all otherwise.
	if _, err := tx.Exec(ctx, `SELECT pg_notify('headgate', $1::bigint::text)`, revision); err != nil {
		return fail(ctx, "notify", err)
	}
	return nil
}

func writeDomain(ctx context.Context, tx pgx.Tx, domain string, revision int64) error {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails since Go 1.24
	const upsert = `
		INSERT INTO domains (name, secret, revision) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET revision = excluded.revision`
	if _, err := tx.Exec(ctx, upsert, domain, secret, revision); err != nil {
		return fail(ctx, "store domain "+domain, err)
	}
	return nil
}

func writeRules(ctx context.Context, tx pgx.Tx, revision int64, states []storage.RuleRow) error {
	uids, domains, names := make([]string, len(states)), make([]string, len(states)), make([]string, len(states))
	for i := range states {
		uids[i], domains[i], names[i] = states[i].UID, states[i].Domain, states[i].Name
	}
	const upsert = `
		INSERT INTO rules (uid, domain, name, revision)
		SELECT uid, domain, name, $1 FROM unnest($2::text[], $3::text[], $4::text[]) AS t (uid, domain, name)
		ON CONFLICT (uid) DO UPDATE SET revision = excluded.revision
		WHERE rules.domain = excluded.domain AND rules.name = excluded.name`
	done, err := tx.Exec(ctx, upsert, revision, uids, domains, names)
	if err != nil {
		return fail(ctx, "store the rules", err)
	}
	if int(done.RowsAffected()) != len(states) {
		return fmt.Errorf("store the rules: %w: a uid belongs to a rule of another name", rules.ErrConflict)
	}
	return nil
}

func writeVersions(ctx context.Context, tx pgx.Tx, revision int64, versions []storage.VersionRow) error {
	type id struct {
		uid    string
		number int64
	}
	byID := make(map[id]storage.VersionRow, len(versions))
	uids, numbers, specs := make([]string, len(versions)), make([]int64, len(versions)), make([]string, len(versions))
	for i, v := range versions {
		byID[id{v.UID, v.Number}] = v
		uids[i], numbers[i], specs[i] = v.UID, v.Number, v.Spec
	}
	const insert = `
		INSERT INTO versions (uid, number, spec, revision)
		SELECT uid, number, spec, $1 FROM unnest($2::text[], $3::bigint[], $4::text[]) AS t (uid, number, spec)
		ON CONFLICT (uid, number) DO NOTHING`
	done, err := tx.Exec(ctx, insert, revision, uids, numbers, specs)
	if err != nil {
		return fail(ctx, "store the versions", err)
	}
	if int(done.RowsAffected()) == len(versions) {
		return nil
	}
	// Versions do not change: those that were there must say what the change takes them to say.
	const differ = `
		SELECT v.uid, v.number, v.spec
		FROM unnest($1::text[], $2::bigint[], $3::text[]) AS t (uid, number, spec)
		JOIN versions v ON v.uid = t.uid AND v.number = t.number
		WHERE v.spec <> t.spec`
	rows, err := tx.Query(ctx, differ, uids, numbers, specs)
	if err != nil {
		return fail(ctx, "compare the versions", err)
	}
	var stored storage.VersionRow
	_, err = pgx.ForEachRow(rows, []any{&stored.UID, &stored.Number, &stored.Spec}, func() error {
		if !byID[id{stored.UID, stored.Number}].Same(stored.Spec) {
			return fmt.Errorf("%w: v%d of rule %s is already another spec", rules.ErrConflict, stored.Number, stored.UID)
		}
		return nil
	})
	if err != nil {
		return fail(ctx, "compare the versions", err)
	}
	return nil
}

func writeStates(ctx context.Context, tx pgx.Tx, revision int64, action rollout.Action, states []storage.RuleRow) error {
	n := len(states)
	uids, stables, candidates := make([]string, n), make([]*int64, n), make([]*int64, n)
	percents, salts, epochs := make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range states {
		r := &states[i]
		uids[i], stables[i], candidates[i] = r.UID, r.Stable, r.Candidate
		percents[i], salts[i], epochs[i] = r.Percent, r.Salt, r.Epoch
	}
	const insert = `
		INSERT INTO rule_states (uid, revision, action, stable, candidate, percent, salt, epoch)
		SELECT uid, $1, $2, stable, candidate, percent, salt, epoch
		FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::integer[], $7::bigint[], $8::bigint[])
			AS t (uid, stable, candidate, percent, salt, epoch)`
	if _, err := tx.Exec(ctx, insert, revision, string(action), uids, stables, candidates, percents, salts, epochs); err != nil {
		return fail(ctx, "store the states", err)
	}
	return nil
}

// Refuse is part of rollout.Ledger. It takes the lock that changes take: the record's number is the next one.
func (s *Store) Refuse(ctx context.Context, record rollout.Record) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockHead); err != nil {
			return err
		}
		return writeRecord(ctx, tx, nil, &record)
	})
	if err != nil {
		return fail(ctx, "record a refusal", err)
	}
	return nil
}

// writeRecord stores a record; a revision of nil is NULL.
func writeRecord(ctx context.Context, tx pgx.Tx, revision *int64, r *rollout.Record) error {
	const insert = `
		INSERT INTO audit (number, revision, refused, domain, at, actor, verified, action, target, message, detail, before, after)
		SELECT coalesce(max(number), 0) + 1, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12 FROM audit`
	_, err := tx.Exec(ctx, insert, revision, storage.Text(r.Refused), r.Domain, r.Time, storage.Text(r.Actor.Name), r.Actor.Verified,
		string(r.Action), storage.Text(r.Target), storage.Text(r.Message), r.Detail, string(r.Before), string(r.After))
	if err != nil {
		return fail(ctx, "store the audit record", err)
	}
	return nil
}

// Rules is part of rollout.Ledger.
func (s *Store) Rules(ctx context.Context, domain string) ([]rules.Rule, error) {
	if domain == "" {
		return queryRules(ctx, s.pool, selectRules+` ORDER BY r.domain, r.name`)
	}
	return queryRules(ctx, s.pool, selectRules+` WHERE r.domain = $1 ORDER BY r.name`, domain)
}

// Audit is part of rollout.Ledger.
func (s *Store) Audit(ctx context.Context, domain string, limit int) ([]rollout.Record, error) {
	const columns = `
		SELECT coalesce(revision, 0), refused, domain, at, actor, verified, action, target, message, detail, before, after
		FROM audit`
	query, args := columns+` ORDER BY number DESC LIMIT $1`, []any{max(limit, 0)}
	if domain != "" {
		query, args = columns+` WHERE domain = $2 ORDER BY number DESC LIMIT $1`, append(args, domain)
	}
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, fail(ctx, "read the audit trail", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (rollout.Record, error) {
		var r rollout.Record
		var before, after string
		err := row.Scan(&r.Revision, &r.Refused, &r.Domain, &r.Time, &r.Actor.Name, &r.Actor.Verified,
			&r.Action, &r.Target, &r.Message, &r.Detail, &before, &after)
		r.Time = r.Time.UTC()
		r.Before, r.After = json.RawMessage(before), json.RawMessage(after)
		return r, err
	})
	if err != nil {
		return nil, fail(ctx, "read the audit trail", err)
	}
	return list, nil
}
