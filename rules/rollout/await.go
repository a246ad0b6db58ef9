package rollout

import (
	"context"
	"fmt"
	"time"
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

// NodeState says where a node stands with respect to a revision.
type NodeState string

// The states.
const (
	NodeSynced  NodeState = "synced"  // has acknowledged the revision, and refuses nothing
	NodePending NodeState = "pending" // connected, no answer yet
	NodeNacked  NodeState = "nacked"  // refused a rule, which keeps its last good version there
	NodeAway    NodeState = "away"    // its stream is down
	NodeGone    NodeState = "gone"    // stopped, or silent for longer than ForgetAfter; no longer counted
)

// StateNow says where the node stands at the time now, when wanted is the last revision of its domain. A node that is away
// is not synced, whatever it acknowledged before: nobody knows what it runs now.
func (n Node) StateNow(now time.Time, wanted int64) NodeState {
	silent := now.Sub(n.Seen)
	switch {
	case silent > ForgetAfter || n.Departed && !n.Connected:
		return NodeGone
	case !n.Connected || silent > aliveFor:
		return NodeAway
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
func (n Node) StateAt(now time.Time, revision int64) NodeState {
	state := n.StateNow(now, revision)
	if state != NodeGone && n.Acked >= revision && n.Nacked < revision {
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
	list, err := s.ledger.Rules(ctx, domain)
	if err != nil {
		return nil, err
	}
	wanted := map[string]int64{}
	for _, r := range list {
		wanted[r.Domain] = max(wanted[r.Domain], r.Revision)
	}
	nodes, err := s.fleet.Nodes(ctx, domain)
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	now, states := s.now(), make([]NodeStatus, len(nodes))
	for i, n := range nodes {
		states[i] = NodeStatus{Node: n, State: n.StateNow(now, wanted[n.Domain]), Wanted: wanted[n.Domain]}
	}
	return states, nil
}

// Await blocks until every node of the domain has acknowledged the revision, and calls report with their states first
// and whenever they change. It returns nil when all have, ctx's error when that ends first, and report's error. Nodes
// that are gone do not count; with no node at all there is nothing to wait for.
func (s *Service) Await(ctx context.Context, domain string, revision int64, report func([]NodeStatus) error) error {
	tick := time.NewTicker(awaitPoll)
	defer tick.Stop()
	var last string
	for {
		nodes, err := s.fleet.Nodes(ctx, domain)
		if err != nil {
			return fmt.Errorf("list the nodes: %w", err)
		}
		at, list := s.now(), make([]NodeStatus, len(nodes))
		for i, n := range nodes {
			list[i] = NodeStatus{Node: n, State: n.StateAt(at, revision), Wanted: revision}
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
