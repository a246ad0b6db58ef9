// Package rollouttest has an in-memory ledger, for tests of what stands on one.
//
// The picture to hold: [Memory] is a database with one program on it. It keeps the contracts of rollout.Ledger,
// rollout.Fleet, rollout.Feed and alert.Store as the real ones do, and passes their suite: one change at a time, wholly or not at all,
// and what it returns is the caller's own. It gives up speed, and is gone with the test. Beside that it does what tests
// ask for: it fails, it loses notifications, it is restored as another history.
package rollouttest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
)

// Memory is a rollout.Ledger, rollout.Fleet, rollout.Feed and alert.Store. It is safe for concurrent use.
type Memory struct {
	turn chan struct{} // full while somebody makes a revision; readers do not wait for it

	mu          sync.Mutex
	head        rollout.Head
	replaces    []string
	domains     map[string][]rules.Domain // after each revision that touched it, oldest first
	rules       map[id][]rollout.Entry
	records     []rollout.Record
	keys        map[string]bool // of notes
	credentials []access.Credential
	sessions    []access.Session // the newest first
	nodes       map[id]rollout.Node
	taken       map[rollout.Taken]int64 // the revision, by all else
	alerts      alerts

	failure  error
	quiet    bool
	reads    int
	watchers map[chan struct{}]struct{}
	saved    chan struct{} // closed and replaced when nodes are saved
}

// id is a rule's, or a node's.
type id struct{ domain, name string }

func compareIDs(a, b id) int {
	return cmp.Or(strings.Compare(a.domain, b.domain), strings.Compare(a.name, b.name))
}

// New returns an empty ledger with a lineage of its own.
func New() *Memory {
	m := &Memory{
		turn: make(chan struct{}, 1), nodes: map[id]rollout.Node{}, alerts: newAlerts(),
		watchers: map[chan struct{}]struct{}{}, saved: make(chan struct{}),
	}
	m.Restore(rand.Text())
	return m
}

// call runs what a method does, unless it is to fail.
func call[T any](ctx context.Context, m *Memory, do func() (T, error)) (result T, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return result, err
	}
	if m.failure != nil {
		return result, m.failure
	}
	return do()
}

// write is call for what returns nothing.
func (m *Memory) write(ctx context.Context, do func() error) error {
	_, err := call(ctx, m, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// read is call for what returns something that is kept: the caller gets a copy.
func read[T any](ctx context.Context, m *Memory, do func() (T, error)) (T, error) {
	return call(ctx, m, func() (T, error) {
		kept, err := do()
		if err != nil {
			return *new(T), err
		}
		return clone(kept)
	})
}

// clone copies all of v, by way of the encoding in which specs are stored and sent. Nothing is validated: a test may keep
// what no sidecar takes.
func clone[T any](v T) (out T, err error) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return out, fmt.Errorf("%w: what cannot be encoded cannot be kept: %w", rules.ErrInvalid, err)
	}
	return out, nil
}

// Commit is part of rollout.Ledger.
func (m *Memory) Commit(ctx context.Context, domain string, decide func(rollout.Tx) (*rollout.Change, error)) (int64, error) {
	if domain == "" {
		return 0, fmt.Errorf("%w: a change names its domain", rules.ErrInvalid)
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case m.turn <- struct{}{}:
	}
	defer func() { <-m.turn }()
	next, err := call(ctx, m, func() (int64, error) { return m.head.Revision + 1, nil })
	if err != nil {
		return 0, err
	}
	change, err := decide(&tx{m, domain, next})
	if err != nil || change == nil {
		return 0, err
	}
	return call(ctx, m, func() (int64, error) {
		if change.Record.Domain != domain {
			return 0, fmt.Errorf("%w: a change of %q has an audit record of %q", rules.ErrInvalid, domain, change.Record.Domain)
		}
		if err := m.check(domain, change.Rules); err != nil {
			return 0, err
		}
		return m.store(change.Record, change.Rules, change.Settings)
	})
}

// check finds states that must not be stored.
func (m *Memory) check(domain string, list []rules.Rule) error {
	seen := map[string]bool{}
	for i := range list {
		r := &list[i]
		if r.Domain != domain || r.UID == "" || seen[r.UID] {
			return fmt.Errorf("%w: a change of %q holds %s (uid %q) twice, or without a uid, or of another domain", rules.ErrInvalid, domain, r.ID(), r.UID)
		}
		history := m.rules[id{domain, r.Name}]
		if seen["name "+r.Name] || history != nil && history[0].Rule.UID != r.UID || history == nil && m.knows(r.UID) {
			return fmt.Errorf("%w: %s has another uid than %s, or that is of another rule", rules.ErrConflict, r.ID(), r.UID)
		}
		seen[r.UID], seen["name "+r.Name] = true, true
		specs := map[int64]rules.Spec{}
		for _, e := range append(slices.Clip(history), rollout.Entry{Rule: *r}) {
			for _, v := range []*rules.Version{e.Rule.Stable, e.Rule.Candidate} {
				if v == nil {
					continue
				}
				if spec, ok := specs[v.Number]; ok && !spec.Equal(v.Spec) {
					return fmt.Errorf("%w: v%d of %s is already another spec", rules.ErrConflict, v.Number, r.ID())
				}
				specs[v.Number] = v.Spec
			}
		}
	}
	return nil
}

func (m *Memory) knows(uid string) bool {
	for _, history := range m.rules {
		if history[0].Rule.UID == uid {
			return true
		}
	}
	return false
}

// store makes a revision, of what can be encoded.
func (m *Memory) store(record rollout.Record, list []rules.Rule, settings *rules.Settings) (int64, error) {
	list, err := clone(list)
	if err != nil {
		return 0, err
	}
	settings, err = clone(settings)
	if err != nil {
		return 0, err
	}
	m.head.Revision++
	for _, r := range list {
		r.Revision = m.head.Revision
		if len(r.Overrides) == 0 {
			r.Overrides = nil
		}
		key := id{r.Domain, r.Name}
		m.rules[key] = append(m.rules[key], rollout.Entry{
			Action: record.Action, Rule: r, Time: micro(record.Time), Actor: record.Actor, Message: record.Message,
		})
	}
	d := m.domain(record.Domain)
	d.Revision = m.head.Revision
	if settings != nil {
		d.SettingsRevision = m.head.Revision
		d.Set(*settings)
	}
	m.domains[d.Name] = append(m.domains[d.Name], d)
	m.note(record, m.head.Revision)
	m.signal()
	return m.head.Revision, nil
}

// domain returns one as it stands. Its secret comes of its name, so that a test repeats itself.
func (m *Memory) domain(name string) rules.Domain {
	if all := m.domains[name]; all != nil {
		return all[len(all)-1]
	}
	sum := sha256.Sum256([]byte(name))
	return rules.Domain{Name: name, Secret: [16]byte(sum[:16])}
}

// Note is part of rollout.Ledger.
func (m *Memory) Note(ctx context.Context, record rollout.Record, key string) error {
	return m.write(ctx, func() error {
		if key == "" || !m.keys[key] {
			m.note(record, 0)
			m.keys[key] = true
		}
		return nil
	})
}

// note numbers, seals and keeps a record, as a database would return it.
func (m *Memory) note(r rollout.Record, revision int64) {
	m.head.Records++
	r.Number, r.Revision, r.Time = m.head.Records, revision, micro(r.Time)
	before, after := string(r.Before), string(r.After)
	clean(&r.Refused, &r.Domain, &r.Actor.Name, &r.Target, &r.Message, &r.Detail, &before, &after)
	r.Before, r.After = json.RawMessage(before), json.RawMessage(after)
	r.Seal = r.SealAfter(m.head.Seal)
	m.head.Seal = r.Seal
	m.records = append(m.records, r)
}

// clean makes texts what a database can keep: without NUL, and only UTF-8.
func clean(texts ...*string) {
	for _, s := range texts {
		*s = strings.ReplaceAll(strings.ToValidUTF8(*s, "\uFFFD"), "\x00", "\uFFFD")
	}
}

func micro(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// Rules is part of rollout.Ledger.
func (m *Memory) Rules(ctx context.Context, domain string) ([]rules.Rule, error) {
	return read(ctx, m, func() ([]rules.Rule, error) {
		return m.standing(func(r *rules.Rule) bool { return (domain == "" || r.Domain == domain) && !r.Deleted() }), nil
	})
}

// standing returns the newest states that are wanted, by domain and name.
func (m *Memory) standing(wanted func(*rules.Rule) bool) (list []rules.Rule) {
	for _, key := range slices.SortedFunc(maps.Keys(m.rules), compareIDs) {
		history := m.rules[key]
		if r := history[len(history)-1].Rule; wanted(&r) {
			list = append(list, r)
		}
	}
	return list
}

// Domains is part of rollout.Ledger.
func (m *Memory) Domains(ctx context.Context, domain string) ([]rules.Domain, error) {
	return read(ctx, m, func() ([]rules.Domain, error) {
		list := m.domainsSince(0)
		return slices.DeleteFunc(list, func(d rules.Domain) bool { return domain != "" && d.Name != domain }), nil
	})
}

func (m *Memory) domainsSince(revision int64) (list []rules.Domain) {
	for _, name := range slices.Sorted(maps.Keys(m.domains)) {
		if d := m.domain(name); d.Revision > revision {
			list = append(list, d)
		}
	}
	return list
}

// History is part of rollout.Ledger.
func (m *Memory) History(ctx context.Context, domain, name string) ([]rollout.Entry, error) {
	return read(ctx, m, func() ([]rollout.Entry, error) { return m.history(domain, name) })
}

func (m *Memory) history(domain, name string) ([]rollout.Entry, error) {
	if history := m.rules[id{domain, name}]; history != nil {
		return history, nil
	}
	return nil, fmt.Errorf("rule %s/%s: %w", domain, name, rules.ErrNotFound)
}

// Audit is part of rollout.Ledger.
func (m *Memory) Audit(ctx context.Context, query rollout.AuditQuery) ([]rollout.Record, error) {
	return call(ctx, m, func() (list []rollout.Record, err error) {
		for _, r := range slices.Backward(m.records) {
			if len(list) >= query.Limit {
				break
			}
			if asked(&query, &r) {
				r.Before, r.After = slices.Clone(r.Before), slices.Clone(r.After)
				list = append(list, r)
			}
		}
		return list, nil
	})
}

func asked(q *rollout.AuditQuery, r *rollout.Record) bool {
	return (q.Domain == "" || r.Domain == q.Domain) &&
		(q.Target == "" || r.Target == q.Target || strings.Contains("\n"+r.Detail, "\n"+q.Target+": ")) &&
		(q.Actor == "" || r.Actor.Name == q.Actor) && (q.Action == "" || r.Action == q.Action) &&
		!r.Time.Before(q.From) && (q.To.IsZero() || r.Time.Before(q.To)) &&
		(q.Before == 0 || r.Number < q.Before)
}

// Head is part of rollout.Ledger.
func (m *Memory) Head(ctx context.Context) (rollout.Head, error) {
	return call(ctx, m, func() (rollout.Head, error) { return m.head, nil })
}

// tx reads while Commit holds the turn, so that nothing changes meanwhile.
type tx struct {
	m      *Memory
	domain string
	next   int64
}

// Revision is part of rollout.Tx.
func (t *tx) Revision() int64 { return t.next }

// Domain is part of rollout.Tx.
func (t *tx) Domain(ctx context.Context) (rules.Domain, error) {
	return read(ctx, t.m, func() (rules.Domain, error) { return t.m.domain(t.domain), nil })
}

// SettingsAt is part of rollout.Tx.
func (t *tx) SettingsAt(ctx context.Context, revision int64) (rules.Settings, error) {
	return read(ctx, t.m, func() (s rules.Settings, err error) {
		for _, d := range t.m.domains[t.domain] {
			if d.Revision <= revision {
				s = d.Settings()
			}
		}
		return s, nil
	})
}

// Rules is part of rollout.Tx.
func (t *tx) Rules(ctx context.Context) ([]rules.Rule, error) {
	return read(ctx, t.m, func() ([]rules.Rule, error) {
		return t.m.standing(func(r *rules.Rule) bool { return r.Domain == t.domain }), nil
	})
}

// Rule is part of rollout.Tx.
func (t *tx) Rule(ctx context.Context, name string) (rules.Rule, error) {
	return read(ctx, t.m, func() (rules.Rule, error) {
		history, err := t.m.history(t.domain, name)
		if err != nil {
			return rules.Rule{}, err
		}
		return history[len(history)-1].Rule, nil
	})
}

// Histories is part of rollout.Tx.
func (t *tx) Histories(ctx context.Context, uids ...string) (map[string][]rollout.Entry, error) {
	return read(ctx, t.m, func() (map[string][]rollout.Entry, error) {
		all := map[string][]rollout.Entry{}
		for key, history := range t.m.rules {
			if uid := history[0].Rule.UID; key.domain == t.domain && slices.Contains(uids, uid) {
				all[uid] = history
			}
		}
		return all, nil
	})
}

// RulesAt is part of rollout.Tx.
func (t *tx) RulesAt(ctx context.Context, revision int64) ([]rules.Rule, error) {
	return read(ctx, t.m, func() (list []rules.Rule, err error) {
		for key, history := range t.m.rules {
			at := slices.IndexFunc(history, func(e rollout.Entry) bool { return e.Rule.Revision > revision })
			if at < 0 {
				at = len(history)
			}
			if key.domain == t.domain && at > 0 {
				list = append(list, history[at-1].Rule)
			}
		}
		slices.SortFunc(list, func(a, b rules.Rule) int { return strings.Compare(a.Name, b.Name) })
		return list, nil
	})
}

// Pasts is part of rollout.Tx.
func (t *tx) Pasts(ctx context.Context) (map[string]rollout.Past, error) {
	return read(ctx, t.m, func() (map[string]rollout.Past, error) {
		all := map[string]rollout.Past{}
		for key, history := range t.m.rules {
			if key.domain != t.domain {
				continue
			}
			var past rollout.Past
			for _, e := range history {
				past.RolledBack = past.RolledBack || slices.Contains(rollout.Rollbacks(), string(e.Action))
				for _, v := range []*rules.Version{e.Rule.Stable, e.Rule.Candidate} {
					if v != nil {
						past.Versions = max(past.Versions, v.Number)
					}
				}
			}
			all[history[0].Rule.UID] = past
		}
		return all, nil
	})
}

// Ahead is part of rollout.Tx.
func (t *tx) Ahead(ctx context.Context) (node string, revision int64, err error) {
	_, err = read(ctx, t.m, func() (struct{}, error) {
		for _, n := range t.m.nodes {
			if n.Connected && n.Lineage == t.m.head.Lineage && n.Acked > t.m.head.Revision && (node == "" || n.ID < node) {
				node, revision = n.ID, n.Acked
			}
		}
		return struct{}{}, nil
	})
	return node, revision, err
}
