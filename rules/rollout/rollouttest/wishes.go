package rollouttest

import (
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// Fail lets every call fail with err until it is called with nil.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = err
	m.signal()
}

// Quiet loses all notifications from now on, or none.
func (m *Memory) Quiet(quiet bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quiet = quiet
}

// Reads is how often changes were asked for.
func (m *Memory) Reads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

// Restore empties the ledger, as a restored or a lost database would be: it numbers anew, under another lineage. Nodes
// and credentials stay.
func (m *Memory) Restore(lineage string) {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.head, m.replaces, m.records = rollout.Head{Lineage: lineage}, nil, nil
	m.domains, m.rules = map[string][]rules.Domain{}, map[id][]rollout.Entry{}
	m.keys, m.taken = map[string]bool{}, map[rollout.Taken]int64{}
	m.signal()
}

// Put makes one revision in which each of the named rules of the domain has the limit as its stable version, and returns
// its number.
func (m *Memory) Put(tb testing.TB, domain, limit string, names ...string) int64 {
	tb.Helper()
	spec := Spec(tb, limit)
	return m.Change(tb, domain, func(revision int64) []rules.Rule {
		list := make([]rules.Rule, len(names))
		for i, name := range names {
			version := &rules.Version{Number: revision, Spec: spec}
			list[i] = rules.Rule{Domain: domain, Name: name, UID: "uid-" + domain + "-" + name, Stable: version}
		}
		return list
	})
}

// Change makes one revision of the domain, of the rules that change returns for its number, and returns that. The rules
// are not checked: no other ledger would hold them all.
func (m *Memory) Change(tb testing.TB, domain string, change func(revision int64) []rules.Rule) int64 {
	tb.Helper()
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.mu.Lock()
	defer m.mu.Unlock()
	record := rollout.Record{Domain: domain, Action: rollout.ActionApply, Target: domain}
	revision, err := m.store(record, change(m.head.Revision+1), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return revision
}

// Spec is a valid spec with the limit.
func Spec(tb testing.TB, limit string) rules.Spec {
	tb.Helper()
	rate, err := rules.ParseRate(limit)
	if err != nil {
		tb.Fatal(err)
	}
	return rules.Spec{Key: []rules.KeySource{}, Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rate}}}
}

// WaitNode blocks until the saved state of the node in the domain satisfies is, and returns it.
func (m *Memory) WaitNode(tb testing.TB, name, domain string, is func(rollout.Node) bool) rollout.Node {
	tb.Helper()
	late := time.After(20 * time.Second)
	for {
		m.mu.Lock()
		n, saved := m.nodes[id{domain, name}], m.saved
		m.mu.Unlock()
		if n, err := clone(n); err == nil && n.ID != "" && is(n) {
			return n
		}
		select {
		case <-saved:
		case <-late:
			tb.Fatalf("node %s in %s did not come to the wanted state: it is %+v", name, domain, n)
		}
	}
}
