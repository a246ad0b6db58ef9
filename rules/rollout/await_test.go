package rollout_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/rules/rollout"
)

func TestNodeStates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	node := func(edit func(*rollout.Node)) rollout.Node {
		n := rollout.Node{ID: "n", Domain: "d", Connected: true, Seen: now, Sent: 7, Acked: 7}
		edit(&n)
		return n
	}
	refused := func(n *rollout.Node) { n.Acked, n.Nacked, n.NackReason = 6, 7, "d/r: bad" }
	for name, c := range map[string]struct {
		node      rollout.Node
		now, wait rollout.NodeState // in the list of the fleet; for somebody who waits for revision 7
	}{
		"has it":                   {node(func(*rollout.Node) {}), rollout.NodeSynced, rollout.NodeSynced},
		"no answer yet":            {node(func(n *rollout.Node) { n.Acked = 6 }), rollout.NodePending, rollout.NodePending},
		"refused it":               {node(refused), rollout.NodeNacked, rollout.NodeNacked},
		"refuses an earlier one":   {node(func(n *rollout.Node) { n.Nacked, n.NackReason = 5, "d/r: bad" }), rollout.NodeNacked, rollout.NodeSynced},
		"went away after it":       {node(func(n *rollout.Node) { n.Connected = false }), rollout.NodeAway, rollout.NodeSynced},
		"away before it":           {node(func(n *rollout.Node) { n.Connected, n.Acked = false, 6 }), rollout.NodeAway, rollout.NodeAway},
		"stream open, but no sign": {node(func(n *rollout.Node) { n.Seen, n.Acked = now.Add(-time.Minute), 6 }), rollout.NodeAway, rollout.NodeAway},
		"silent for too long":      {node(func(n *rollout.Node) { n.Seen, n.Acked = now.Add(-11*time.Minute), 6 }), rollout.NodeGone, rollout.NodeGone},
		"was stopped before it":    {node(func(n *rollout.Node) { n.Connected, n.Departed, n.Acked = false, true, 6 }), rollout.NodeGone, rollout.NodeGone},
		"of another history":       {node(func(n *rollout.Node) { n.Lineage = "two" }), rollout.NodeForeign, rollout.NodeForeign},
		"ahead of the history":     {node(func(n *rollout.Node) { n.Acked = 12 }), rollout.NodeAhead, rollout.NodeAhead},
		"refused, then went away":  {node(func(n *rollout.Node) { refused(n); n.Connected = false }), rollout.NodeAway, rollout.NodeAway},
	} {
		head := rollout.Head{Revision: 9, Lineage: "one"}
		if got := c.node.StateNow(now, 7, head); got != c.now {
			t.Errorf("%s: StateNow is %s, want %s", name, got, c.now)
		}
		if got := c.node.StateAt(now, 7, head); got != c.wait {
			t.Errorf("%s: StateAt is %s, want %s", name, got, c.wait)
		}
	}
}
