package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/rules"
)

// ForgetAfter is how long a silent node still counts as part of the fleet. Within it a node that is away is waited for:
// silence is not success.
const ForgetAfter = 10 * time.Minute

// aliveFor is how long the last sign of an open stream holds: three times the interval at which the control plane
// refreshes Seen for open streams.
const aliveFor = 30 * time.Second

// awaitPoll is how often Await looks. Acknowledgements arrive through other replicas too, so the ledger is the only
// place that has them all.
const awaitPoll = 50 * time.Millisecond

// After awaitSoon it looks every awaitLater: what has not come by then does not come in a moment, and whoever waits for an
// hour should not cost twenty reads a second.
const (
	awaitSoon  = 5 * time.Second
	awaitLater = 500 * time.Millisecond
)

// NodeState says where a node stands with respect to a revision.
type NodeState string

// The states.
const (
	NodeSynced  NodeState = "synced"  // has acknowledged the revision, and refuses nothing
	NodePending NodeState = "pending" // connected, no answer yet
	NodeNacked  NodeState = "nacked"  // refused a rule, which keeps its last good version there
	NodeAway    NodeState = "away"    // its stream is down
	NodeGone    NodeState = "gone"    // stopped, or silent for longer than ForgetAfter; no longer counted
	// NodeForeign holds the rules of another history, and keeps them until an admin lets it follow this one.
	NodeForeign NodeState = "foreign"
	// NodeAhead has acknowledged a revision that this history does not have: the database was restored from a backup, and
	// its lineage was not renewed.
	NodeAhead NodeState = "ahead"
)

// StateNow says where the node stands at the time now, when wanted is the last revision of its domain, at that head. A
// node that is away is not synced, whatever it acknowledged before: nobody knows what it runs now.
func (n Node) StateNow(now time.Time, wanted int64, head Head) NodeState {
	silent := now.Sub(n.Seen)
	switch {
	case silent > ForgetAfter || n.Departed && !n.Connected:
		return NodeGone
	case !n.Connected || silent > aliveFor:
		return NodeAway
	case n.Lineage != "" && n.Lineage != head.Lineage:
		return NodeForeign
	case n.Acked > head.Revision:
		return NodeAhead
	case n.NackReason != "":
		return NodeNacked
	case n.Acked < wanted:
		return NodePending
	}
	return NodeSynced
}

// StateAt says where the node stands for somebody who waits for a revision. Having acknowledged it is enough, also for a
// node that went away since (it had the revision in force, and finds it again where it keeps a last good file), and for
// one that refuses a rule of an earlier revision.
func (n Node) StateAt(now time.Time, revision int64, head Head) NodeState {
	state := n.StateNow(now, revision, head)
	if state != NodeGone && state != NodeForeign && state != NodeAhead && n.Acked >= revision && n.Nacked < revision {
		return NodeSynced
	}
	return state
}

// NodeStatus is a node and where it stands.
type NodeStatus struct {
	Node
	State  NodeState
	Wanted int64 // the revision it should have
}

// Fleet returns the nodes of a domain ("": of all domains) and where each stands with respect to the domain's last
// revision.
func (s *Service) Fleet(ctx context.Context, domain string) ([]NodeStatus, error) {
	domains, err := s.store.Domains(ctx, domain)
	if err != nil {
		return nil, err
	}
	wanted := map[string]int64{}
	for _, d := range domains {
		wanted[d.Name] = d.Revision
	}
	// The nodes first: one that acknowledges a revision between the two reads must not look as if it were ahead.
	nodes, err := s.store.Nodes(ctx, domain)
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	head, err := s.store.Head(ctx)
	if err != nil {
		return nil, err
	}
	now, states := s.now(), make([]NodeStatus, len(nodes))
	for i, n := range nodes {
		states[i] = NodeStatus{Node: n, State: n.StateNow(now, wanted[n.Domain], head), Wanted: wanted[n.Domain]}
	}
	return states, nil
}

// Await blocks until every node of the domain has acknowledged the revision, and calls report with their states first
// and whenever they change. It returns nil when all have, ctx's error when that ends first, and report's error. Nodes
// that are gone do not count; with no node at all there is nothing to wait for.
func (s *Service) Await(ctx context.Context, domain string, revision int64, report func([]NodeStatus) error) error {
	if head, err := s.store.Head(ctx); err != nil {
		return err
	} else if revision > head.Revision {
		return fmt.Errorf("%w: revision %d has not been made yet; the last one is %d", rules.ErrInvalid, revision, head.Revision)
	}
	tick := time.NewTicker(awaitPoll)
	defer tick.Stop()
	slower := time.AfterFunc(awaitSoon, func() { tick.Reset(awaitLater) })
	defer slower.Stop()
	var last string
	for {
		nodes, err := s.store.Nodes(ctx, domain)
		if err != nil {
			return fmt.Errorf("list the nodes: %w", err)
		}
		head, err := s.store.Head(ctx)
		if err != nil {
			return err
		}
		at, list := s.now(), make([]NodeStatus, len(nodes))
		for i, n := range nodes {
			list[i] = NodeStatus{Node: n, State: n.StateAt(at, revision, head), Wanted: revision}
		}
		if now := digest(list); now != last {
			last = now
			if err := report(list); err != nil {
				return err
			}
		}
		if Missing(list) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Missing counts the nodes that are part of the fleet and have not taken the revision.
func Missing(list []NodeStatus) int {
	n := 0
	for _, s := range list {
		if s.State != NodeSynced && s.State != NodeGone {
			n++
		}
	}
	return n
}

func digest(list []NodeStatus) string {
	var b []byte
	for _, s := range list {
		b = fmt.Appendf(b, "%s %s %d %d %s\n", s.ID, s.State, s.Acked, s.Nacked, s.NackReason)
	}
	// The trailing mark makes the digest of no nodes differ from "nothing reported yet".
	return string(append(b, '.'))
}
