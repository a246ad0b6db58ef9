package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/storage"
)

// SaveSilence is part of rollout.Ledger.
func (s *Store) SaveSilence(ctx context.Context, silence rollout.Silence, record rollout.Record) error {
	return s.withRecord(ctx, "silence "+silence.Domain+"/"+silence.Rule, record, "", func(tx *sql.Tx, _ *rollout.Head) error {
		const upsert = `
			INSERT INTO silences (domain, rule, at, until, actor, verified, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
			ON CONFLICT (domain, rule) DO UPDATE SET
				at = excluded.at, until = excluded.until, actor = excluded.actor, verified = excluded.verified, message = excluded.message`
		_, err := tx.ExecContext(ctx, upsert, silence.Domain, silence.Rule, silence.At.UnixMicro(), silence.Until.UnixMicro(),
			storage.Text(silence.Actor.Name), silence.Actor.Verified, storage.Text(silence.Message))
		return err
	})
}

// DeleteSilence is part of rollout.Ledger.
func (s *Store) DeleteSilence(ctx context.Context, domain, name string, record rollout.Record) error {
	return s.withRecord(ctx, "end the silence of "+domain+"/"+name, record, "", func(tx *sql.Tx, _ *rollout.Head) error {
		done, err := tx.ExecContext(ctx, `DELETE FROM silences WHERE domain = ?1 AND rule = ?2`, domain, name)
		if err != nil {
			return err
		}
		wrote, err := done.RowsAffected()
		if err == nil && wrote == 0 {
			err = rules.ErrNotFound
		}
		return err
	})
}

// Silences is part of rollout.Ledger.
func (s *Store) Silences(ctx context.Context, domain string) ([]rollout.Silence, error) {
	const all = `SELECT domain, rule, at, until, actor, verified, message FROM silences WHERE ?1 = '' OR domain = ?1 ORDER BY domain, rule`
	list, err := collect(ctx, s.read, all, []any{domain}, func(row scanner) (one rollout.Silence, err error) {
		var at, until int64
		err = row.Scan(&one.Domain, &one.Rule, &at, &until, &one.Actor.Name, &one.Actor.Verified, &one.Message)
		one.At, one.Until = time.UnixMicro(at).UTC(), time.UnixMicro(until).UTC()
		return one, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read the silences", err)
	}
	return list, nil
}

// LastRound is part of alert.Store.
func (s *Store) LastRound(ctx context.Context) (r alert.Round, err error) {
	err = s.snapshot(ctx, func(tx *sql.Tx) error {
		var at, settled int64
		if err := tx.QueryRowContext(ctx, `SELECT at, settled FROM alert_rounds`).Scan(&at, &settled); err != nil {
			return err
		}
		r.At, r.Settled = time.UnixMicro(at).UTC(), time.UnixMicro(settled).UTC()
		const detectors = `SELECT uid, version, state FROM detectors ORDER BY uid, version`
		if r.Watches, err = collect(ctx, tx, detectors, nil, func(row scanner) (alert.Watch, error) {
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
		return alert.Round{}, s.fail(ctx, "read the last round of alerts", err)
	}
	return r, nil
}

// SaveRound is part of alert.Store.
func (s *Store) SaveRound(ctx context.Context, base time.Time, r alert.Round) error {
	attempt := fmt.Sprintf("save the alerts of %s", r.At.Format(time.TimeOnly))
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(ctx, attempt, err)
	}
	defer rollback(tx)
	const move = `UPDATE alert_rounds SET at = ?1, settled = ?2 WHERE at = ?3`
	done, err := tx.ExecContext(ctx, move, r.At.UnixMicro(), r.Settled.UnixMicro(), base.UnixMicro())
	if err != nil {
		return fail(ctx, attempt, err)
	}
	if n, err := done.RowsAffected(); err != nil {
		return fail(ctx, attempt, err)
	} else if n == 0 {
		return fmt.Errorf("%s: %w: the last round is not that of %s any more", attempt, rules.ErrConflict, base.Format(time.TimeOnly))
	}
	watches, forget, alerts := make([][]any, len(r.Watches)), make([][]any, len(r.Forget)), make([][]any, len(r.Alerts))
	for i, w := range r.Watches {
		watches[i] = []any{w.UID, w.Version, storage.EncodeFacts(w.Detectors)}
	}
	for i, id := range r.Forget {
		forget[i] = []any{id.UID, id.Version}
	}
	for i, a := range r.Alerts {
		alerts[i] = []any{a.ID, a.Domain, a.Since.UnixMicro(), orNull(a.Resolved), storage.EncodeFacts(a)}
	}
	for _, write := range []struct {
		statement string
		argument  any
	}{
		{`WITH list AS MATERIALIZED (SELECT value FROM jsonb_each(?1))
			INSERT INTO detectors (uid, version, state) SELECT value ->> 0, value ->> 1, value ->> 2 FROM list WHERE true
			ON CONFLICT (uid, version) DO UPDATE SET state = excluded.state`, storage.EncodeList(watches)},
		{`DELETE FROM detectors WHERE (uid, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))`, storage.EncodeList(forget)},
		{`WITH list AS MATERIALIZED (SELECT value FROM jsonb_each(?1))
			INSERT INTO alerts (id, domain, since, resolved, facts)
			SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM list WHERE true
			ON CONFLICT (id) DO UPDATE SET resolved = excluded.resolved, facts = excluded.facts`, storage.EncodeList(alerts)},
		{`DELETE FROM alerts WHERE resolved < ?1`, storage.EndOfKeeping(&r).UnixMicro()},
	} {
		if _, err := tx.ExecContext(ctx, write.statement, write.argument); err != nil {
			return fail(ctx, attempt, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fail(ctx, attempt, err)
	}
	return nil
}

// Alerts is part of alert.Store.
func (s *Store) Alerts(ctx context.Context, q alert.Query) ([]alert.Alert, error) {
	list, err := queryAlerts(ctx, s.read, q)
	if err != nil {
		return nil, s.fail(ctx, "read the alerts", err)
	}
	return list, nil
}

func queryAlerts(ctx context.Context, q querier, query alert.Query) ([]alert.Alert, error) {
	const some = `
		SELECT facts, (SELECT json_group_array(json_array(d.target, d.status)) FROM (
			SELECT target, status FROM alert_deliveries WHERE alert = alerts.id ORDER BY target, status) d)
		FROM alerts WHERE (?1 = '' OR domain = ?1) AND (resolved IS NULL OR NOT ?2 AND resolved > ?3)
		ORDER BY since DESC, id LIMIT ?4`
	return collect(ctx, q, some, []any{query.Domain, query.FiringOnly, query.ResolvedAfter.UnixMicro(), max(query.Limit, 0)}, func(row scanner) (alert.Alert, error) {
		var facts, delivered string
		if err := row.Scan(&facts, &delivered); err != nil {
			return alert.Alert{}, err
		}
		return storage.Alert(facts, delivered)
	})
}

// MarkDelivered is part of alert.Store. Of an alert that is gone nothing is noted.
func (s *Store) MarkDelivered(ctx context.Context, list []alert.Delivery) error {
	rows := make([][]any, len(list))
	for i, d := range list {
		rows[i] = []any{d.Alert, d.Target, string(d.Status)}
	}
	const insert = `
		INSERT INTO alert_deliveries (alert, target, status)
		SELECT a.id, value ->> 1, value ->> 2 FROM json_each(?1) JOIN alerts a ON a.id = value ->> 0 WHERE true
		ON CONFLICT DO NOTHING`
	if _, err := s.write.ExecContext(ctx, insert, storage.EncodeList(rows)); err != nil {
		return s.fail(ctx, "note what was delivered of alerts", err)
	}
	return nil
}
