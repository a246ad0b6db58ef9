package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// ledgerTx is a rollout.Tx: it reads inside the transaction that holds the head.
type ledgerTx struct {
	tx     pgx.Tx
	domain string
	next   int64
}

// Revision is part of rollout.Tx.
func (t *ledgerTx) Revision() int64 { return t.next }

// Rules is part of rollout.Tx.
func (t *ledgerTx) Rules(ctx context.Context) ([]rules.Rule, error) {
	return queryRules(ctx, t.tx, selectRules+` WHERE r.domain = $1 ORDER BY r.name`, t.domain)
}

// Rule is part of rollout.Tx.
func (t *ledgerTx) Rule(ctx context.Context, name string) (rules.Rule, error) {
	var row storage.RuleRow
	err := t.tx.QueryRow(ctx, selectRules+` WHERE r.domain = $1 AND r.name = $2`, t.domain, name).Scan(row.Fields()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return rules.Rule{}, fmt.Errorf("rule %s/%s: %w", t.domain, name, rules.ErrNotFound)
	}
	if err != nil {
		return rules.Rule{}, fail(ctx, fmt.Sprintf("read rule %s/%s", t.domain, name), err)
	}
	return row.Rule()
}

// History is part of rollout.Tx.
func (t *ledgerTx) History(ctx context.Context, uid string) ([]rollout.Entry, error) {
	const states = `
		SELECT r.domain, r.name, r.uid, s.revision, s.stable, vs.spec, s.candidate, vc.spec, s.percent, s.salt, s.epoch, s.action
		FROM rule_states s
		JOIN rules r ON r.uid = s.uid
		LEFT JOIN versions vs ON vs.uid = s.uid AND vs.number = s.stable
		LEFT JOIN versions vc ON vc.uid = s.uid AND vc.number = s.candidate
		WHERE s.uid = $1 ORDER BY s.revision`
	rows, err := t.tx.Query(ctx, states, uid)
	if err != nil {
		return nil, fail(ctx, "read the history of rule "+uid, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (rollout.Entry, error) {
		var r storage.RuleRow
		var e rollout.Entry
		if err := row.Scan(append(r.Fields(), &e.Action)...); err != nil {
			return e, err
		}
		var err error
		e.Rule, err = r.Rule()
		return e, err
	})
	if err != nil {
		return nil, fail(ctx, "read the history of rule "+uid, err)
	}
	return list, nil
}

// Versions is part of rollout.Tx. Numbers count from 1, so the largest is how many there were, also when old ones are
// no longer kept.
func (t *ledgerTx) Versions(ctx context.Context, uid string) (int64, error) {
	var n int64
	if err := t.tx.QueryRow(ctx, `SELECT coalesce(max(number), 0) FROM versions WHERE uid = $1`, uid).Scan(&n); err != nil {
		return 0, fail(ctx, "count the versions of rule "+uid, err)
	}
	return n, nil
}

// selectRules reads rules as they stand, all in one query: a domain may have ten thousand.
const selectRules = `
	SELECT r.domain, r.name, r.uid, s.revision, s.stable, vs.spec, s.candidate, vc.spec, s.percent, s.salt, s.epoch
	FROM rules r
	JOIN rule_states s ON s.uid = r.uid AND s.revision = r.revision
	LEFT JOIN versions vs ON vs.uid = s.uid AND vs.number = s.stable
	LEFT JOIN versions vc ON vc.uid = s.uid AND vc.number = s.candidate`

type querier interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

func queryRules(ctx context.Context, q querier, query string, args ...any) ([]rules.Rule, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, fail(ctx, "read the rules", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (rules.Rule, error) {
		var r storage.RuleRow
		if err := row.Scan(r.Fields()...); err != nil {
			return rules.Rule{}, err
		}
		return r.Rule()
	})
	if err != nil {
		return nil, fail(ctx, "read the rules", err)
	}
	return list, nil
}
