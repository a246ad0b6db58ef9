package xdstest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// Ledger is a rollout.Feed and a rollout.Fleet in memory. Several control planes may share one, as replicas share a
// database.
type Ledger struct {
	mu       sync.Mutex
	lineage  string
	replaces []string
	head     int64
	domains  map[string]rules.Domain
	rules    map[string][]rules.Rule // by "domain/name": every state, the last one that in force
	nodes    map[string]rollout.Node
	taken    map[rollout.Taken]int64 // without the revision, which is the value
	err      error
	lookUps  error // of RuleAt and Taken
	quiet    bool
	watchers map[chan struct{}]struct{}
	moved    chan struct{} // closed and replaced when a node is saved
	reads    int
}

// NewLedger returns an empty ledger of lineage "one".
func NewLedger() *Ledger {
	l := &Ledger{watchers: map[chan struct{}]struct{}{}, moved: make(chan struct{}), nodes: map[string]rollout.Node{}, taken: map[rollout.Taken]int64{}}
	l.Restore("one")
	return l
}

// Restore empties the ledger, as a restored or a lost database would: it numbers anew, under another lineage.
func (l *Ledger) Restore(lineage string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lineage, l.replaces, l.head = lineage, nil, 0
	l.domains, l.rules = map[string]rules.Domain{}, map[string][]rules.Rule{}
	clear(l.taken)
	l.notify()
}

// Replace lets the clients of another lineage follow this one, as an admin does.
func (l *Ledger) Replace(lineage string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaces = append(slices.Clone(l.replaces), lineage)
	l.notify()
}

// Quiet loses all notifications from now on, or none.
func (l *Ledger) Quiet(quiet bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet = quiet
}

// Fail lets every call fail with err until it is called with nil.
func (l *Ledger) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.notify()
}

// FailLookUps lets the reads fail that a last good rule takes, until it is called with nil.
func (l *Ledger) FailLookUps(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookUps = err
}

// Put makes one revision in which each of the named rules of the domain has the limit as its stable version, and returns
// its number.
func (l *Ledger) Put(tb testing.TB, domain, limit string, names ...string) int64 {
	tb.Helper()
	spec := Spec(tb, limit)
	return l.Change(domain, func(revision int64) []rules.Rule {
		list := make([]rules.Rule, len(names))
		for i, name := range names {
			list[i] = rules.Rule{
				Domain: domain, Name: name, UID: "uid-" + name, Revision: revision,
				Stable: &rules.Version{Number: revision, Spec: spec},
			}
		}
		return list
	})
}

// Delete makes one revision in which the named rules of the domain are deleted, and returns its number.
func (l *Ledger) Delete(domain string, names ...string) int64 {
	return l.Change(domain, func(revision int64) []rules.Rule {
		list := make([]rules.Rule, len(names))
		for i, name := range names {
			list[i] = rules.Rule{Domain: domain, Name: name, UID: "uid-" + name, Revision: revision}
		}
		return list
	})
}

// Set makes one revision in which the domain has other settings, and returns its number.
func (l *Ledger) Set(domain string, s rules.Settings) int64 {
	return l.change(domain, func(d *rules.Domain) []rules.Rule {
		d.SettingsRevision = d.Revision
		d.Set(s)
		return nil
	})
}

// Change makes one revision of the domain with the rules that change returns.
func (l *Ledger) Change(domain string, change func(revision int64) []rules.Rule) int64 {
	return l.change(domain, func(d *rules.Domain) []rules.Rule { return change(d.Revision) })
}

func (l *Ledger) change(domain string, change func(*rules.Domain) []rules.Rule) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head++
	d := l.domains[domain]
	d.Name, d.Revision, d.Secret = domain, l.head, [16]byte{15: 1}
	for _, r := range change(&d) {
		l.rules[r.ID()] = append(l.rules[r.ID()], r)
	}
	l.domains[domain] = d
	l.notify()
	return l.head
}

func (l *Ledger) notify() {
	if l.quiet {
		return
	}
	for w := range l.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// Changes implements rollout.Feed.
func (l *Ledger) Changes(_ context.Context, since int64) (rollout.Changes, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.err != nil {
		return rollout.Changes{}, l.err
	}
	out := rollout.Changes{Head: l.head, Lineage: l.lineage, Replaces: l.replaces}
	for _, d := range l.domains {
		if d.Revision > since {
			out.Domains = append(out.Domains, d)
		}
	}
	for _, states := range l.rules {
		r := states[len(states)-1]
		if r.Revision > since && (since > 0 || !r.Deleted()) {
			out.Rules = append(out.Rules, r)
		}
	}
	return out, nil
}

// RuleAt implements rollout.Feed.
func (l *Ledger) RuleAt(_ context.Context, domain, name string, revision int64) (rules.Rule, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := cmp.Or(l.lookUps, l.err); err != nil {
		return rules.Rule{}, err
	}
	for _, r := range slices.Backward(l.rules[domain+"/"+name]) {
		switch {
		case r.Revision > revision:
			continue
		case r.Deleted():
			return rules.Rule{}, rules.ErrNotFound
		}
		return r, nil
	}
	return rules.Rule{}, rules.ErrNotFound
}

// Watch implements rollout.Feed.
func (l *Ledger) Watch(ctx context.Context) <-chan struct{} {
	w := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, w)
	})
	return w
}

// SaveNodes implements rollout.Fleet.
func (l *Ledger) SaveNodes(_ context.Context, nodes []rollout.Node) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	for _, n := range nodes {
		key := n.ID + " " + n.Domain
		if old := l.nodes[key]; n.Stream > old.Stream || n.Stream == old.Stream && !n.Seen.Before(old.Seen) {
			l.nodes[key] = n
		}
	}
	close(l.moved)
	l.moved = make(chan struct{})
	return nil
}

// ForgetNodes implements rollout.Fleet.
func (l *Ledger) ForgetNodes(_ context.Context, seenBefore time.Time) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.nodes)
	maps.DeleteFunc(l.nodes, func(_ string, n rollout.Node) bool { return n.Seen.Before(seenBefore) })
	return int64(before - len(l.nodes)), l.err
}

// SaveTaken implements rollout.Fleet.
func (l *Ledger) SaveTaken(_ context.Context, taken []rollout.Taken) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	for _, t := range taken {
		revision := t.Revision
		t.Revision = 0
		l.taken[t] = max(l.taken[t], revision)
	}
	close(l.moved)
	l.moved = make(chan struct{})
	return nil
}

// Taken implements rollout.Fleet.
func (l *Ledger) Taken(_ context.Context, domain string) ([]rollout.Taken, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := cmp.Or(l.lookUps, l.err); err != nil {
		return nil, err
	}
	var out []rollout.Taken
	for t, revision := range l.taken {
		if t.Domain == domain {
			t.Revision = revision
			out = append(out, t)
		}
	}
	return out, nil
}

// WaitTaken blocks until it is stored that a node of level 1 has the rule ("": all of the domain) at the revision.
func (l *Ledger) WaitTaken(tb testing.TB, domain, rule string, revision int64) {
	tb.Helper()
	late := time.After(Patience)
	for {
		l.mu.Lock()
		at, moved := l.taken[rollout.Taken{Domain: domain, Rule: rule, Level: 1}], l.moved
		l.mu.Unlock()
		if at >= revision {
			return
		}
		select {
		case <-moved:
		case <-late:
			tb.Fatalf("rule %q of %s was taken at revision %d, not %d", rule, domain, at, revision)
		}
	}
}

// Nodes implements rollout.Fleet.
func (l *Ledger) Nodes(_ context.Context, domain string) ([]rollout.Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []rollout.Node
	for _, n := range l.nodes {
		if domain == "" || n.Domain == domain {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b rollout.Node) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// Reads is how often changes were asked for.
func (l *Ledger) Reads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

// Patience is how long a test waits for what must happen.
const Patience = 20 * time.Second

// WaitNode blocks until the saved state of the node in the domain satisfies is, and returns it.
func (l *Ledger) WaitNode(tb testing.TB, id, domain string, is func(rollout.Node) bool) rollout.Node {
	tb.Helper()
	late := time.After(Patience)
	for {
		l.mu.Lock()
		n, moved := l.nodes[id+" "+domain], l.moved
		l.mu.Unlock()
		if n.ID != "" && is(n) {
			return n
		}
		select {
		case <-moved:
		case <-late:
			tb.Fatalf("node %s in %s did not come to the wanted state: it is %+v", id, domain, n)
		}
	}
}

// Acked is for WaitNode: the node has taken the revision, and refuses nothing.
func Acked(revision int64) func(rollout.Node) bool {
	return func(n rollout.Node) bool { return n.Connected && n.Acked == revision && n.NackReason == "" }
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

// Names returns "prefix-0000", "prefix-0001", … n of them.
func Names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return names
}
