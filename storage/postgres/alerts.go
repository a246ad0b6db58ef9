package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/storage"
)

// SaveSilence is part of rollout.Ledger.
func (s *Store) SaveSilence(ctx context.Context, silence rollout.Silence, record rollout.Record) error {
	return s.withRecord(ctx, "silence "+silence.Domain+"/"+silence.Rule, record, "", func(tx pgx.Tx, _ *rollout.Head) error {
		const upsert = `
			INSERT INTO silences (domain, rule, at, until, actor, verified, message) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (domain, rule) DO UPDATE SET
				at = excluded.at, until = excluded.until, actor = excluded.actor, verified = excluded.verified, message = excluded.message`
		_, err := tx.Exec(ctx, upsert, silence.Domain, silence.Rule, silence.At, silence.Until,
			storage.Text(silence.Actor.Name), silence.Actor.Verified, storage.Text(silence.Message))
		return err
	})
}

// DeleteSilence is part of rollout.Ledger.
func (s *Store) DeleteSilence(ctx context.Context, domain, name string, record rollout.Record) error {
	return s.withRecord(ctx, "end the silence of "+domain+"/"+name, record, "", func(tx pgx.Tx, _ *rollout.Head) error {
		done, err := tx.Exec(ctx, `DELETE FROM silences WHERE domain = $1 AND rule = $2`, domain, name)
		if err == nil && done.RowsAffected() == 0 {
			err = rules.ErrNotFound
		}
		return err
	})
}

// Silences is part of rollout.Ledger.
func (s *Store) Silences(ctx context.Context, domain string) ([]rollout.Silence, error) {
	const all = `SELECT domain, rule, at, until, actor, verified, message FROM silences WHERE $1 = '' OR domain = $1 ORDER BY domain, rule`
	rows, err := s.pool.Query(ctx, all, domain)
	if err != nil {
		return nil, fail(ctx, "read the silences", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (one rollout.Silence, err error) {
		err = row.Scan(&one.Domain, &one.Rule, &one.At, &one.Until, &one.Actor.Name, &one.Actor.Verified, &one.Message)
		one.At, one.Until = one.At.UTC(), one.Until.UTC()
		return one, err
	})
	if err != nil {
		return nil, fail(ctx, "read the silences", err)
	}
	return list, nil
}

// LastRound is part of alert.Store.
func (s *Store) LastRound(ctx context.Context) (r alert.Round, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT at, settled FROM alert_rounds`).Scan(&r.At, &r.Settled); err != nil {
			return err
		}
		r.At, r.Settled = r.At.UTC(), r.Settled.UTC()
		rows, err := tx.Query(ctx, `SELECT uid, version, state FROM detectors ORDER BY uid, version`)
		if err != nil {
			return err
		}
		if r.Watches, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (alert.Watch, error) {
			var id alert.VersionID
			var state string
			if err := row.Scan(&id.UID, &id.Version, &state); err != nil {
				return alert.Watch{}, err
			}
			return storage.Watch(id, state)
		}); err != nil {
			return err
		}
		r.Alerts, err = queryAlerts(ctx, tx, alert.Query{FiringOnly: true, Limit: math.MaxInt32})
		return err
	})
	if err != nil {
		return alert.Round{}, fail(ctx, "read the last round of alerts", err)
	}
	return r, nil
}

// SaveRound is part of alert.Store.
func (s *Store) SaveRound(ctx context.Context, base time.Time, r alert.Round) error {
	attempt := fmt.Sprintf("save the alerts of %s", r.At.Format(time.TimeOnly))
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `UPDATE alert_rounds SET at = $1, settled = $2 WHERE at = $3`, r.At, r.Settled, base)
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return fmt.Errorf("%w: the last round is not that of %s any more", rules.ErrConflict, base.Format(time.TimeOnly))
		}
		if err := writeWatches(ctx, tx, &r); err != nil {
			return err
		}
		return writeAlerts(ctx, tx, &r)
	})
	if err != nil {
		return fail(ctx, attempt, err)
	}
	return nil
}

func writeWatches(ctx context.Context, tx pgx.Tx, r *alert.Round) error {
	n := len(r.Watches)
	uids, versions, states := make([]string, n), make([]int64, n), make([]string, n)
	for i, w := range r.Watches {
		uids[i], versions[i], states[i] = w.UID, w.Version, storage.EncodeFacts(w.Detectors)
	}
	const upsert = `
		INSERT INTO detectors (uid, version, state) SELECT uid, version, state FROM unnest($1::text[], $2::bigint[], $3::text[]) AS t (uid, version, state)
		ON CONFLICT (uid, version) DO UPDATE SET state = excluded.state`
	if _, err := tx.Exec(ctx, upsert, uids, versions, states); err != nil {
		return err
	}
	uids, versions = nil, nil
	for _, id := range r.Forget {
		uids, versions = append(uids, id.UID), append(versions, id.Version)
	}
	const forget = `DELETE FROM detectors WHERE (uid, version) IN (SELECT uid, version FROM unnest($1::text[], $2::bigint[]) AS t (uid, version))`
	_, err := tx.Exec(ctx, forget, uids, versions)
	return err
}

func writeAlerts(ctx context.Context, tx pgx.Tx, r *alert.Round) error {
	n := len(r.Alerts)
	ids, domains, since, resolved, facts := make([]string, n), make([]string, n), make([]time.Time, n), make([]*time.Time, n), make([]string, n)
	for i, a := range r.Alerts {
		ids[i], domains[i], since[i], resolved[i], facts[i] = a.ID, a.Domain, a.Since, orNull(a.Resolved), storage.EncodeFacts(a)
	}
	const upsert = `
		INSERT INTO alerts (id, domain, since, resolved, facts)
		SELECT id, domain, since, resolved, facts
		FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[]) AS t (id, domain, since, resolved, facts)
		ON CONFLICT (id) DO UPDATE SET resolved = excluded.resolved, facts = excluded.facts`
	if _, err := tx.Exec(ctx, upsert, ids, domains, since, resolved, facts); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM alerts WHERE resolved < $1`, storage.EndOfKeeping(r))
	return err
}

// Alerts is part of alert.Store.
func (s *Store) Alerts(ctx context.Context, q alert.Query) ([]alert.Alert, error) {
	list, err := queryAlerts(ctx, s.pool, q)
	if err != nil {
		return nil, fail(ctx, "read the alerts", err)
	}
	return list, nil
}

func queryAlerts(ctx context.Context, q querier, query alert.Query) ([]alert.Alert, error) {
	const some = `
		SELECT facts, (SELECT coalesce(json_agg(json_build_array(d.target, d.status) ORDER BY d.target, d.status), '[]')::text
			FROM alert_deliveries d WHERE d.alert = alerts.id)
		FROM alerts WHERE ($1 = '' OR domain = $1) AND (resolved IS NULL OR NOT $2 AND resolved > $3)
		ORDER BY since DESC, id LIMIT $4`
	rows, err := q.Query(ctx, some, query.Domain, query.FiringOnly, query.ResolvedAfter, max(query.Limit, 0))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (alert.Alert, error) {
		var facts, delivered string
		if err := row.Scan(&facts, &delivered); err != nil {
			return alert.Alert{}, err
		}
		return storage.Alert(facts, delivered)
	})
}

// MarkDelivered is part of alert.Store. Of an alert that is gone nothing is noted.
func (s *Store) MarkDelivered(ctx context.Context, list []alert.Delivery) error {
	n := len(list)
	alerts, targets, statuses := make([]string, n), make([]string, n), make([]string, n)
	for i, d := range list {
		alerts[i], targets[i], statuses[i] = d.Alert, d.Target, string(d.Status)
	}
	const insert = `
		INSERT INTO alert_deliveries (alert, target, status)
		SELECT a.id, t.target, t.status FROM unnest($1::text[], $2::text[], $3::text[]) AS t (alert, target, status) JOIN alerts a ON a.id = t.alert
		ON CONFLICT DO NOTHING`
	if _, err := s.pool.Exec(ctx, insert, alerts, targets, statuses); err != nil {
		return fail(ctx, "note what was delivered of alerts", err)
	}
	return nil
}
