package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// ledgerTx is a rollout.Tx: it reads inside the transaction that holds the write lock.
type ledgerTx struct {
	tx     *sql.Tx
	domain string
	next   int64
	secret [16]byte // of the domain, where it does not exist yet
}

// Revision is part of rollout.Tx.
func (t *ledgerTx) Revision() int64 { return t.next }

// Domain is part of rollout.Tx.
func (t *ledgerTx) Domain(ctx context.Context) (rules.Domain, error) {
	var row storage.DomainRow
	err := t.tx.QueryRowContext(ctx, selectDomains+` WHERE d.name = ?1`, t.domain).Scan(row.Fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return rules.Domain{Name: t.domain, Secret: t.secret}, nil
	}
	if err != nil {
		return rules.Domain{}, fail(ctx, "read domain "+t.domain, err)
	}
	return row.Domain()
}

// SettingsAt is part of rollout.Tx.
func (t *ledgerTx) SettingsAt(ctx context.Context, revision int64) (rules.Settings, error) {
	const newest = `SELECT settings FROM domain_states WHERE domain = ?1 AND revision <= ?2 ORDER BY revision DESC LIMIT 1`
	var stored string
	err := t.tx.QueryRowContext(ctx, newest, t.domain, revision).Scan(&stored)
	if errors.Is(err, sql.ErrNoRows) {
		return rules.Settings{}, nil
	}
	if err != nil {
		return rules.Settings{}, fail(ctx, fmt.Sprintf("read the settings of %s at revision %d", t.domain, revision), err)
	}
	return storage.DecodeSettings(t.domain, stored)
}

// Rules is part of rollout.Tx. Who decides over all rules must know all of them.
func (t *ledgerTx) Rules(ctx context.Context) ([]rules.Rule, error) {
	rows, err := queryRules(ctx, t.tx, selectRules+` WHERE r.domain = ?1 ORDER BY r.name`, t.domain)
	if err != nil {
		return nil, fail(ctx, "read the rules of "+t.domain, err)
	}
	return storage.All(rows, (*storage.RuleRow).Rule)
}

// RulesAt is part of rollout.Tx.
func (t *ledgerTx) RulesAt(ctx context.Context, revision int64) ([]rules.Rule, error) {
	rows, err := queryRules(ctx, t.tx, selectRulesAt+` WHERE r.domain = ?1 ORDER BY r.name`, t.domain, revision)
	if err != nil {
		return nil, fail(ctx, fmt.Sprintf("read the rules of %s at revision %d", t.domain, revision), err)
	}
	return storage.All(rows, (*storage.RuleRow).Rule)
}

// Pasts is part of rollout.Tx.
func (t *ledgerTx) Pasts(ctx context.Context) (map[string]rollout.Past, error) {
	const sums = `
		SELECT r.uid, (SELECT coalesce(max(v.number), 0) FROM versions v WHERE v.uid = r.uid),
			EXISTS (SELECT 1 FROM rule_states s WHERE s.uid = r.uid AND s.action IN (SELECT value FROM json_each(?2)))
		FROM rules r WHERE r.domain = ?1`
	type row struct {
		uid  string
		past rollout.Past
	}
	list, err := collect(ctx, t.tx, sums, []any{t.domain, storage.EncodeList(rollout.Rollbacks())}, func(from scanner) (r row, err error) {
		err = from.Scan(&r.uid, &r.past.Versions, &r.past.RolledBack)
		return r, err
	})
	if err != nil {
		return nil, fail(ctx, "sum up the histories of "+t.domain, err)
	}
	all := make(map[string]rollout.Past, len(list))
	for _, r := range list {
		all[r.uid] = r.past
	}
	return all, nil
}

// Ahead is part of rollout.Tx.
func (t *ledgerTx) Ahead(ctx context.Context) (node string, revision int64, err error) {
	const ahead = `
		SELECT n.id, n.acked FROM nodes n JOIN head h ON h.lineage = n.lineage
		WHERE n.connected AND n.acked > h.revision ORDER BY n.id LIMIT 1`
	err = t.tx.QueryRowContext(ctx, ahead).Scan(&node, &revision)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", 0, fail(ctx, "look for nodes ahead of the head", err)
	}
	return node, revision, nil
}

// Rule is part of rollout.Tx.
func (t *ledgerTx) Rule(ctx context.Context, name string) (rules.Rule, error) {
	var row storage.RuleRow
	err := t.tx.QueryRowContext(ctx, selectRules+` WHERE r.domain = ?1 AND r.name = ?2`, t.domain, name).Scan(row.Fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return rules.Rule{}, fmt.Errorf("rule %s/%s: %w", t.domain, name, rules.ErrNotFound)
	}
	if err != nil {
		return rules.Rule{}, fail(ctx, fmt.Sprintf("read rule %s/%s", t.domain, name), err)
	}
	return row.Rule()
}

// Histories is part of rollout.Tx.
func (t *ledgerTx) Histories(ctx context.Context, uids ...string) (map[string][]rollout.Entry, error) {
	// The + keeps SQLite from walking all rules of the domain instead of looking up the few that are named.
	const named = selectStates + ` WHERE +r.domain = ?1 AND r.uid IN (SELECT value FROM json_each(?2)) ORDER BY s.uid, s.revision`
	histories, err := queryHistories(ctx, t.tx, named, t.domain, storage.EncodeList(uids))
	if err != nil {
		return nil, fail(ctx, "read the histories of "+t.domain, err)
	}
	return histories, nil
}

const (
	// selectRules reads rules as they stand, all in one query: a domain may have ten thousand.
	selectRules = `
		SELECT ` + ruleColumns + `
		FROM rules r JOIN rule_states s ON s.uid = r.uid AND s.revision = r.revision ` + theirVersions
	// selectRulesAt reads them as they were at revision ?2.
	selectRulesAt = `
		SELECT ` + ruleColumns + `
		FROM rules r JOIN rule_states s ON s.uid = r.uid AND s.revision = (
			SELECT max(o.revision) FROM rule_states o WHERE o.uid = r.uid AND o.revision <= ?2) ` + theirVersions
	// selectStates reads rules as each revision left them.
	selectStates = `
		SELECT ` + ruleColumns + `, s.action, a.at, a.actor, a.verified, a.message
		FROM rules r JOIN rule_states s ON s.uid = r.uid JOIN audit a ON a.revision = s.revision ` + theirVersions
	ruleColumns   = `r.domain, r.name, r.uid, s.revision, s.stable, vs.spec, s.candidate, vc.spec, s.percent, s.salt, s.epoch, s.paused, s.overrides, s.plan`
	theirVersions = `
		LEFT JOIN versions vs ON vs.uid = s.uid AND vs.number = s.stable
		LEFT JOIN versions vc ON vc.uid = s.uid AND vc.number = s.candidate`
	// selectDomains reads domains as they stand.
	selectDomains = `
		SELECT d.name, d.secret, d.revision, d.settings_revision, s.settings
		FROM domains d
		LEFT JOIN domain_states s ON s.domain = d.name AND s.revision = d.settings_revision`
)

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

func queryRules(ctx context.Context, q querier, query string, args ...any) ([]storage.RuleRow, error) {
	return collect(ctx, q, query, args, func(row scanner) (r storage.RuleRow, err error) {
		err = row.Scan(r.Fields()...)
		return r, err
	})
}

func queryHistories(ctx context.Context, q querier, query string, args ...any) (map[string][]rollout.Entry, error) {
	list, err := collect(ctx, q, query, args, func(row scanner) (e storage.EntryRow, err error) {
		err = row.Scan(e.Fields()...)
		return e, err
	})
	if err != nil {
		return nil, err
	}
	return storage.Histories(list)
}

// queryHistory reads states of one rule, or returns rules.ErrNotFound.
func (s *Store) queryHistory(ctx context.Context, attempt, query string, args ...any) ([]rollout.Entry, error) {
	histories, err := queryHistories(ctx, s.read, query, args...)
	if err != nil {
		return nil, s.fail(ctx, attempt, err)
	}
	for _, history := range histories {
		return history, nil
	}
	return nil, fmt.Errorf("%s: %w", attempt, rules.ErrNotFound)
}

func queryDomains(ctx context.Context, q querier, query string, args ...any) ([]storage.DomainRow, error) {
	return collect(ctx, q, query, args, func(row scanner) (d storage.DomainRow, err error) {
		err = row.Scan(d.Fields()...)
		return d, err
	})
}
