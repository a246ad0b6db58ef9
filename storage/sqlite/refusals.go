package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// writeRefusals puts refusals into the rings of their rules, in place of the oldest where a ring is full.
func writeRefusals(ctx context.Context, tx *sql.Tx, fresh *storage.Fresh) error {
	const upsert = `
		INSERT INTO refusals (uid, slot, at, node, domain, version, limit_name, outcome, key, label, path, reference)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
		ON CONFLICT (uid, slot) DO UPDATE SET
			at = excluded.at, node = excluded.node, domain = excluded.domain, version = excluded.version, limit_name = excluded.limit_name, outcome = excluded.outcome,
			key = excluded.key, label = excluded.label, path = excluded.path, reference = excluded.reference`
	for i := range fresh.Rings {
		ring := &fresh.Rings[i]
		next, err := turnRing(ctx, tx, ring)
		if err != nil {
			return err
		}
		_, err = insertEach(ctx, tx, upsert, len(ring.Refusals), func(j int) []any {
			r := &ring.Refusals[j]
			return []any{
				ring.UID, ring.Slot(j, next), r.Time.UnixMicro(), r.Node, r.Domain, r.Version, r.Limit, int64(r.Outcome), r.Key[:],
				r.Label, r.Path, r.Reference,
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// turnRing returns how many refusals there have been of a rule, with the new ones.
func turnRing(ctx context.Context, tx *sql.Tx, ring *storage.Ring) (next int64, err error) {
	const turn = `
		INSERT INTO refusal_rings AS r (uid, next) VALUES (?1, ?2)
		ON CONFLICT (uid) DO UPDATE SET next = r.next + excluded.next
		RETURNING next`
	err = tx.QueryRowContext(ctx, turn, ring.UID, len(ring.Refusals)).Scan(&next)
	return next, err
}

// Refusals is part of tally.Store.
func (s *Store) Refusals(ctx context.Context, query tally.RefusalQuery) ([]tally.Refusal, error) {
	statement := `
		SELECT at, node, domain, uid, version, limit_name, outcome, key, label, path, reference
		FROM refusals
		WHERE at >= ?1 AND at < ?2`
	args := []any{query.From.UnixMicro(), query.To.UnixMicro(), max(query.Limit, 0)}
	where := func(column string, value any) {
		args = append(args, value)
		statement += fmt.Sprintf(` AND %s = ?%d`, column, len(args))
	}
	if query.Domain != "" {
		where("domain", query.Domain)
	}
	if query.UID != "" {
		where("uid", query.UID)
	}
	if query.Key != (tally.KeyID{}) {
		where("key", query.Key[:])
	}
	if query.Reference != "" {
		where("reference", query.Reference)
		statement += ` AND reference <> ''` // says which index serves
	}
	list, err := collect(ctx, s.read, statement+` ORDER BY at DESC, uid, slot DESC LIMIT ?3`, args, func(row scanner) (r tally.Refusal, err error) {
		var at int64
		var key []byte
		err = row.Scan(&at, &r.Node, &r.Domain, &r.UID, &r.Version, &r.Limit, &r.Outcome, &key, &r.Label, &r.Path, &r.Reference)
		r.Time = fromMicro(at)
		copy(r.Key[:], key)
		return r, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read refusals", err)
	}
	return list, nil
}

// Missing is part of tally.Store. What a node that was killed left behind is not noted but seen: its source was not
// stopped, and another began, or nobody has seen the node since. So a window that arrives later corrects it.
func (s *Store) Missing(ctx context.Context, from, to time.Time) ([]tally.Missing, error) {
	const read = `
		SELECT node, epoch, since, until, windows FROM missing WHERE until >= ?1 AND since < ?2
		UNION ALL
		SELECT s.node, s.epoch, s.until, max(s.until, n.began), 0
		FROM sources s JOIN sources n ON n.rowid = (
			SELECT rowid FROM sources n WHERE n.node = s.node AND (n.began, n.epoch) > (s.began, s.epoch) ORDER BY n.began, n.epoch LIMIT 1)
		WHERE NOT s.stopped AND s.until < ?2 AND max(s.until, n.began) >= ?1
		UNION ALL
		SELECT s.node, s.epoch, s.until, n.seen, 0
		FROM sources s JOIN (SELECT id, max(seen) AS seen FROM nodes GROUP BY id) n ON n.id = s.node
		WHERE NOT s.stopped AND s.until < ?2 AND n.seen >= ?1 AND n.seen > s.until AND n.seen < ?3 AND NOT EXISTS (
			SELECT 1 FROM sources l WHERE l.node = s.node AND (l.began, l.epoch) > (s.began, s.epoch))
		ORDER BY since DESC, node, epoch`
	silent := time.Now().Add(-tally.SilentFor)
	list, err := collect(ctx, s.read, read, []any{from.UnixMicro(), to.UnixMicro(), silent.UnixMicro()}, func(row scanner) (m tally.Missing, err error) {
		var since, until int64
		err = row.Scan(&m.Node, &m.Epoch, &since, &until, &m.Windows)
		m.From, m.To = fromMicro(since), fromMicro(until)
		return m, err
	})
	if err != nil {
		return nil, s.fail(ctx, "read what is missing", err)
	}
	return list, nil
}
