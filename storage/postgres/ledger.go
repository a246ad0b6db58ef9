package postgres

import (
	"context"
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
func lockHead(ctx context.Context, tx pgx.Tx) (head rollout.Head, err error) {
	const lock = `
		SELECT revision, lineage, records, seal, set_config('idle_in_transaction_session_timeout', '30s', true)
		FROM head FOR UPDATE`
	if err := tx.QueryRow(ctx, lock).Scan(&head.Revision, &head.Lineage, &head.Records, &head.Seal, nil); err != nil {
		return head, fail(ctx, "lock the head", err)
	}
	return head, nil
}

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
	head, err := lockHead(ctx, tx)
	if err != nil {
		return 0, err
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
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("commit revision %d: %w", head.Revision, err)
	}
	// A caller that gives up now would not learn the outcome, so the COMMIT is bounded but not canceled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := tx.Commit(ctx); refused(err) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return 0, fail(ctx, fmt.Sprintf("commit revision %d", head.Revision), err)
	} else if err != nil {
		return 0, fmt.Errorf("commit revision %d: the outcome is unknown, look into the audit trail: %w: %w", head.Revision, rules.ErrUnavailable, err)
	}
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
	if err := writeRecord(ctx, t.tx, head, record, ""); err != nil {
		return err
	}
	return notify(ctx, t.tx)
}

// notify tells all watchers. It is delivered when the transaction commits, and not at all otherwise.
func notify(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `NOTIFY headgate`); err != nil {
		return fail(ctx, "notify", err)
	}
	return nil
}

func (t *ledgerTx) writeDomain(ctx context.Context, action rollout.Action, settings *string) error {
	var settingsRevision *int64
	if settings != nil {
		settingsRevision = &t.next
	}
	const upsert = `
		INSERT INTO domains (name, secret, revision, settings_revision) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET
			revision = excluded.revision, settings_revision = coalesce(excluded.settings_revision, domains.settings_revision)`
	if _, err := t.tx.Exec(ctx, upsert, t.domain, t.secret[:], t.next, settingsRevision); err != nil {
		return fail(ctx, "store domain "+t.domain, err)
	}
	if settings == nil {
		return nil
	}
	const insert = `INSERT INTO domain_states (domain, revision, action, settings) VALUES ($1, $2, $3, $4)`
	if _, err := t.tx.Exec(ctx, insert, t.domain, t.next, string(action), *settings); err != nil {
		return fail(ctx, "store the settings of "+t.domain, err)
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
	paused, overrides, plans := make([]bool, n), make([]string, n), make([]string, n)
	for i := range states {
		r := &states[i]
		uids[i], stables[i], candidates[i] = r.UID, r.Stable, r.Candidate
		percents[i], salts[i], epochs[i] = r.Percent, r.Salt, r.Epoch
		paused[i], overrides[i], plans[i] = r.Paused, r.Overrides, r.Plan
	}
	const insert = `
		INSERT INTO rule_states (uid, revision, action, stable, candidate, percent, salt, epoch, paused, overrides, plan)
		SELECT uid, $1, $2, stable, candidate, percent, salt, epoch, paused, overrides, plan
		FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::integer[], $7::bigint[], $8::bigint[], $9::boolean[], $10::text[], $11::text[])
			AS t (uid, stable, candidate, percent, salt, epoch, paused, overrides, plan)`
	if _, err := tx.Exec(ctx, insert, revision, string(action), uids, stables, candidates, percents, salts, epochs, paused, overrides, plans); err != nil {
		return fail(ctx, "store the states", err)
	}
	return nil
}

// Rules is part of rollout.Ledger.
func (s *Store) Rules(ctx context.Context, domain string) ([]rules.Rule, error) {
	query, args := selectRules+` WHERE coalesce(s.stable, s.candidate) IS NOT NULL ORDER BY r.domain, r.name`, []any(nil)
	if domain != "" {
		query, args = selectRules+` WHERE coalesce(s.stable, s.candidate) IS NOT NULL AND r.domain = $1 ORDER BY r.name`, []any{domain}
	}
	rows, err := queryRules(ctx, s.pool, query, args...)
	if err != nil {
		return nil, fail(ctx, "list the rules", err)
	}
	return storage.Readable(rows, (*storage.RuleRow).Rule, s.unreadable), nil
}

// Domains is part of rollout.Ledger.
func (s *Store) Domains(ctx context.Context, domain string) ([]rules.Domain, error) {
	query, args := selectDomains+` ORDER BY d.name`, []any(nil)
	if domain != "" {
		query, args = selectDomains+` WHERE d.name = $1`, []any{domain}
	}
	rows, err := queryDomains(ctx, s.pool, query, args...)
	if err != nil {
		return nil, fail(ctx, "list the domains", err)
	}
	if domain != "" {
		return storage.All(rows, (*storage.DomainRow).Domain)
	}
	return storage.Readable(rows, (*storage.DomainRow).Domain, s.unreadable), nil
}

// History is part of rollout.Ledger.
func (s *Store) History(ctx context.Context, domain, name string) ([]rollout.Entry, error) {
	attempt := fmt.Sprintf("read the history of %s/%s", domain, name)
	return s.queryHistory(ctx, attempt, selectStates+` WHERE r.domain = $1 AND r.name = $2 ORDER BY s.revision`, domain, name)
}
