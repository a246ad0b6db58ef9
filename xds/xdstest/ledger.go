package xdstest

import (
	"cmp"
	"context"
	"fmt"
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
	head     int64
	domains  map[string]rules.Domain
	rules    map[string]rules.Rule // by "domain/name"
	nodes    map[string]rollout.Node
	err      error
	quiet    bool
	watchers map[chan struct{}]struct{}
	moved    chan struct{} // closed and replaced when a node is saved
	reads    int
}

// NewLedger returns an empty ledger of lineage "one".
func NewLedger() *Ledger {
	l := &Ledger{watchers: map[chan struct{}]struct{}{}, moved: make(chan struct{}), nodes: map[string]rollout.Node{}}
	l.Restore("one")
	return l
}

// Restore empties the ledger, as a restored or a lost database would: it numbers anew, under another lineage.
func (l *Ledger) Restore(lineage string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lineage, l.head = lineage, 0
	l.domains, l.rules = map[string]rules.Domain{}, map[string]rules.Rule{}
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

// Change makes one revision of the domain with the rules that make returns.
func (l *Ledger) Change(domain string, change func(revision int64) []rules.Rule) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head++
	d := l.domains[domain]
	d.Name, d.Revision, d.Secret = domain, l.head, [16]byte{15: 1}
	l.domains[domain] = d
	for _, r := range change(l.head) {
		l.rules[r.ID()] = r
	}
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
	out := rollout.Changes{Head: l.head, Lineage: l.lineage}
	for _, d := range l.domains {
		if d.Revision > since {
			out.Domains = append(out.Domains, d)
		}
	}
	for _, r := range l.rules {
		if r.Revision > since {
			out.Rules = append(out.Rules, r)
		}
	}
	return out, nil
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
		if !n.Seen.Before(l.nodes[key].Seen) {
			l.nodes[key] = n
		}
	}
	close(l.moved)
	l.moved = make(chan struct{})
	return nil
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
