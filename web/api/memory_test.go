package api_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// memory is a ledger and a fleet in maps. It keeps the contract of both as far as one process can: one change at a
// time, all of it or nothing.
type memory struct {
	mu       sync.Mutex
	revision int64
	rules    map[string]rules.Rule // by ID
	history  map[string][]rollout.Entry
	records  []rollout.Record
	nodes    map[string]rollout.Node // by domain and ID
}

func newMemory() *memory {
	return &memory{
		rules: map[string]rules.Rule{}, history: map[string][]rollout.Entry{}, nodes: map[string]rollout.Node{},
	}
}

func (m *memory) Commit(_ context.Context, domain string, decide func(rollout.Tx) (*rollout.Change, error)) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change, err := decide(memoryTx{m, domain})
	if err != nil || change == nil {
		return 0, err
	}
	m.revision++
	m.records = append(m.records, change.Record)
	for _, r := range change.Rules {
		m.rules[r.ID()] = r
		m.history[r.UID] = append(m.history[r.UID], rollout.Entry{Action: change.Record.Action, Rule: r})
	}
	return m.revision, nil
}

func (m *memory) Rules(_ context.Context, domain string) ([]rules.Rule, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list(domain), nil
}

func (m *memory) list(domain string) []rules.Rule {
	list := slices.SortedFunc(maps.Values(m.rules), func(a, b rules.Rule) int { return strings.Compare(a.ID(), b.ID()) })
	return slices.DeleteFunc(list, func(r rules.Rule) bool { return domain != "" && r.Domain != domain })
}

func (m *memory) Audit(context.Context, string, int) ([]rollout.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Clone(m.records)
	slices.Reverse(list)
	return list, nil
}

func (m *memory) Refuse(_ context.Context, r rollout.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
	return nil
}

func (m *memory) SaveNodes(_ context.Context, nodes []rollout.Node) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		if key := n.Domain + "/" + n.ID; !n.Seen.Before(m.nodes[key].Seen) {
			m.nodes[key] = n
		}
	}
	return nil
}

func (m *memory) Nodes(_ context.Context, domain string) ([]rollout.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.SortedFunc(maps.Values(m.nodes), func(a, b rollout.Node) int { return strings.Compare(a.ID, b.ID) })
	return slices.DeleteFunc(list, func(n rollout.Node) bool { return domain != "" && n.Domain != domain }), nil
}

// memoryTx reads under the lock that Commit holds.
type memoryTx struct {
	m      *memory
	domain string
}

func (tx memoryTx) Revision() int64 { return tx.m.revision + 1 }

func (tx memoryTx) Rules(context.Context) ([]rules.Rule, error) { return tx.m.list(tx.domain), nil }

func (tx memoryTx) Rule(_ context.Context, name string) (rules.Rule, error) {
	r, ok := tx.m.rules[tx.domain+"/"+name]
	if !ok {
		return rules.Rule{}, rules.ErrNotFound
	}
	return r, nil
}

func (tx memoryTx) History(_ context.Context, uid string) ([]rollout.Entry, error) {
	return tx.m.history[uid], nil
}

func (tx memoryTx) Versions(_ context.Context, uid string) (int64, error) {
	most := int64(0)
	for _, e := range tx.m.history[uid] {
		for _, v := range []*rules.Version{e.Rule.Stable, e.Rule.Candidate} {
			if v != nil {
				most = max(most, v.Number)
			}
		}
	}
	return most, nil
}
