package rollouttest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
)

// RenewLineage is part of rollout.Ledger.
func (m *Memory) RenewLineage(ctx context.Context, record rollout.Record) (string, error) {
	return call(ctx, m, func() (string, error) {
		m.head.Lineage, m.replaces, m.taken = rand.Text(), nil, map[rollout.Taken]int64{}
		record.Target = cmp.Or(record.Target, m.head.Lineage)
		m.note(record, 0)
		m.signal()
		return m.head.Lineage, nil
	})
}

// ReplaceLineage is part of rollout.Ledger.
func (m *Memory) ReplaceLineage(ctx context.Context, lineage string, record rollout.Record) error {
	return m.write(ctx, func() error {
		if !slices.Contains(m.replaces, lineage) {
			m.replaces = append(m.replaces, lineage)
		}
		m.note(record, 0)
		m.signal()
		return nil
	})
}

// AddCredential is part of rollout.Ledger.
func (m *Memory) AddCredential(ctx context.Context, c access.Credential, record rollout.Record) error {
	return m.write(ctx, func() error {
		if slices.ContainsFunc(m.credentials, func(other access.Credential) bool { return other.ID == c.ID || other.Hash == c.Hash }) {
			return fmt.Errorf("%w: credential %s, or another one with its hash, is there already", rules.ErrConflict, c.ID)
		}
		clean(&c.Name)
		c.Domains = slices.Clone(c.Domains)
		c.Created, c.Expires, c.Revoked = micro(c.Created), micro(c.Expires), micro(c.Revoked)
		m.credentials = append(m.credentials, c)
		m.note(record, 0)
		return nil
	})
}

// RevokeCredential is part of rollout.Ledger.
func (m *Memory) RevokeCredential(ctx context.Context, id string, at time.Time, record rollout.Record) error {
	return m.write(ctx, func() error {
		i := slices.IndexFunc(m.credentials, func(c access.Credential) bool { return c.ID == id })
		if i < 0 {
			return fmt.Errorf("credential %s: %w", id, rules.ErrNotFound)
		}
		if c := &m.credentials[i]; c.Revoked.IsZero() {
			c.Revoked = micro(at)
		}
		m.note(record, 0)
		return nil
	})
}

// Credentials is part of rollout.Ledger.
func (m *Memory) Credentials(ctx context.Context) ([]access.Credential, error) {
	return read(ctx, m, func() ([]access.Credential, error) {
		return slices.SortedFunc(slices.Values(m.credentials), func(a, b access.Credential) int {
			return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
		}), nil
	})
}

// Credential is part of rollout.Ledger.
func (m *Memory) Credential(ctx context.Context, hash string) (access.Credential, error) {
	return read(ctx, m, func() (access.Credential, error) {
		i := slices.IndexFunc(m.credentials, func(c access.Credential) bool { return c.Hash == hash })
		if i < 0 {
			return access.Credential{}, fmt.Errorf("credential: %w", rules.ErrNotFound)
		}
		return m.credentials[i], nil
	})
}

// SaveNodes is part of rollout.Fleet.
func (m *Memory) SaveNodes(ctx context.Context, nodes []rollout.Node) error {
	return m.write(ctx, func() error {
		nodes, err := clone(nodes)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			clean(&n.ID, &n.Domain, &n.Program, &n.Identity, &n.Lineage, &n.NackReason)
			n.Seen = micro(n.Seen)
			old, known := m.nodes[id{n.Domain, n.ID}]
			inOrder := cmp.Or(cmp.Compare(n.Stream, old.Stream), n.Seen.Compare(old.Seen)) >= 0
			if !known || inOrder || n.Seen.Sub(old.Seen) > time.Minute {
				m.nodes[id{n.Domain, n.ID}] = n
			}
		}
		close(m.saved)
		m.saved = make(chan struct{})
		return nil
	})
}

// Nodes is part of rollout.Fleet.
func (m *Memory) Nodes(ctx context.Context, domain string) ([]rollout.Node, error) {
	return read(ctx, m, func() (list []rollout.Node, err error) {
		for key, n := range m.nodes {
			if domain == "" || key.domain == domain {
				list = append(list, n)
			}
		}
		slices.SortFunc(list, func(a, b rollout.Node) int {
			return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Domain, b.Domain))
		})
		return list, nil
	})
}

// ForgetNodes is part of rollout.Fleet.
func (m *Memory) ForgetNodes(ctx context.Context, seenBefore time.Time) (int64, error) {
	return call(ctx, m, func() (int64, error) {
		before := len(m.nodes)
		maps.DeleteFunc(m.nodes, func(_ id, n rollout.Node) bool { return n.Seen.Before(seenBefore) })
		return int64(before - len(m.nodes)), nil
	})
}

// SaveTaken is part of rollout.Fleet.
func (m *Memory) SaveTaken(ctx context.Context, taken []rollout.Taken) error {
	return m.write(ctx, func() error {
		for _, t := range taken {
			revision := t.Revision
			t.Revision = 0
			m.taken[t] = max(m.taken[t], revision)
		}
		return nil
	})
}

// Taken is part of rollout.Fleet.
func (m *Memory) Taken(ctx context.Context, domain string) ([]rollout.Taken, error) {
	return call(ctx, m, func() (list []rollout.Taken, err error) {
		for t, revision := range m.taken {
			if t.Domain == domain {
				t.Revision = revision
				list = append(list, t)
			}
		}
		slices.SortFunc(list, func(a, b rollout.Taken) int {
			return cmp.Or(strings.Compare(a.Rule, b.Rule), cmp.Compare(a.Level, b.Level))
		})
		return list, nil
	})
}

// Changes is part of rollout.Feed.
func (m *Memory) Changes(ctx context.Context, since int64) (rollout.Changes, error) {
	return read(ctx, m, func() (rollout.Changes, error) {
		m.reads++
		newer := func(r *rules.Rule) bool { return r.Revision > since && (since > 0 || !r.Deleted()) }
		return rollout.Changes{
			Head: m.head.Revision, Lineage: m.head.Lineage, Replaces: m.replaces,
			Domains: m.domainsSince(since), Rules: m.standing(newer),
		}, nil
	})
}

// RuleAt is part of rollout.Feed.
func (m *Memory) RuleAt(ctx context.Context, domain, name string, revision int64) (rules.Rule, error) {
	return read(ctx, m, func() (r rules.Rule, err error) {
		for _, e := range m.rules[id{domain, name}] {
			if e.Rule.Revision <= revision {
				r = e.Rule
			}
		}
		if r.Deleted() {
			return r, fmt.Errorf("rule %s/%s at revision %d: %w", domain, name, revision, rules.ErrNotFound)
		}
		return r, nil
	})
}

// Watch is part of rollout.Feed.
func (m *Memory) Watch(ctx context.Context) <-chan struct{} {
	w := make(chan struct{}, 1) // one may wait: a change during a read must lead to another read
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, w)
		close(w)
	})
	return w
}

func (m *Memory) signal() {
	if m.quiet {
		return
	}
	for w := range m.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}
