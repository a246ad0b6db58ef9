package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) sidecarCommand() *cobra.Command {
	return group(&cobra.Command{Use: "sidecar", Aliases: []string{"sidecars"}, Short: "Look at the fleet", GroupID: groupLook},
		a.listSidecarsCommand("list"), a.describeSidecarCommand(), a.diffSidecarCommand(), a.sidecarFreezesCommand(), a.adoptCommand())
}

// listSidecarsCommand is `sidecar list`, and `get sidecars` for those who look for it there.
func (a *app) listSidecarsCommand(use string, aliases ...string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use,
		Aliases: aliases,
		Short:   "Show the sidecars and which revision each has taken",
		Long: "The sidecars are shown for each domain they serve: the revision each should have, the one it runs (the\n" +
			"last it acknowledged), and when it was last heard of.\n\n" +
			"Synced has it. No rules: there is no such domain. Pending was not heard of since. Nacked refuses a rule, and keeps\n" +
			"its last good version. Away is not connected; Gone was stopped, or silent for ten minutes, and is not waited for.\n" +
			"Foreign holds the rules of another history: see `rulectl sidecar adopt`. Ahead runs a revision that this control\n" +
			"plane never made.",
		Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error { return a.listSidecars(ctx) }),
	}
	a.domainFlag(cmd, "only the sidecars of this domain")
	a.listFlags(cmd)
	a.watchFlag(cmd)
	hasNames(cmd)
	return cmd
}

func (a *app) listSidecars(ctx context.Context) error {
	return a.nodes().list(ctx, a, func(ctx context.Context) ([]*adminpb.Node, error) {
		resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListNodesResponse, error) {
			return client.ListNodes(ctx, &adminpb.ListNodesRequest{Domain: a.domain})
		})
		return resp.GetNodes(), err
	})
}

// nodes are shown by a row for each domain that a node serves.
func (a *app) nodes() *listing[*adminpb.Node] {
	return &listing[*adminpb.Node]{
		kind:   "SidecarList",
		header: []string{"NODE", "DOMAIN", "STATUS", "WANTED", "RUNNING", "SEEN", "PROGRAM"},
		wide:   []string{"SENT", "REFUSED", "LEVEL", "HISTORY"},
		right:  []string{"WANTED", "RUNNING", "SENT", "REFUSED", "LEVEL"},
		texts:  []string{"PROGRAM"},
		row:    nodeRow,
		notes:  func(n *adminpb.Node, _ time.Time) []string { return nodeNotes(n) },
		item:   func(n *adminpb.Node) any { return newNodeItem(n) },
		name:   (*adminpb.Node).GetId,
		id:     func(n *adminpb.Node) string { return n.GetId() + " of " + n.GetDomain() },
		steady: func(n *adminpb.Node) any {
			item := newNodeItem(n)
			item.Seen = "" // at every heartbeat
			return item
		},
		none: func() { a.nothing("sidecars", "each appears when it has connected") },
	}
}

func nodeRow(n *adminpb.Node, wide bool) []string {
	row := []string{
		n.GetId(), n.GetDomain(), stateText(n), number(n.GetWanted()), number(n.GetAcked()),
		age(time.Since(n.GetSeen().AsTime())) + " ago", n.GetProgram(),
	}
	if wide {
		row = append(row, number(n.GetSent()), number(n.GetNacked()), strconv.Itoa(int(n.GetLevel())), shortID(n.GetLineage()))
	}
	return row
}

// shortID is the begin of an id, which tells it from others, and by which adopt finds a history.
func shortID(id string) string { return id[:min(len(id), 12)] }

type nodeItem struct {
	Node    string `json:"node"`
	Domain  string `json:"domain"`
	Program string `json:"program,omitempty"`
	State   string `json:"state"` // synced, pending, nacked, away, gone, foreign or ahead
	Seen    string `json:"seen"`
	Wanted  int64  `json:"wanted"`
	Sent    int64  `json:"sent"`
	Acked   int64  `json:"acked"` // what it runs
	Nacked  int64  `json:"nacked"`
	Reason  string `json:"reason,omitempty"` // of the refusal that stands

	Level      int32    `json:"level,omitempty"`      // the highest feature level of rules it can take
	Lineage    string   `json:"lineage,omitempty"`    // the history it holds
	Refused    []string `json:"refused,omitempty"`    // rules whose newest version it does not have
	BreakGlass []string `json:"breakGlass,omitempty"` // freezes made at the sidecar itself
}

func newNodeItem(n *adminpb.Node) nodeItem {
	return nodeItem{
		Node: n.GetId(), Domain: n.GetDomain(), Program: n.GetProgram(), State: n.GetState(),
		Seen: n.GetSeen().AsTime().UTC().Format(time.RFC3339), Wanted: n.GetWanted(), Sent: n.GetSent(), Acked: n.GetAcked(),
		Nacked: n.GetNacked(), Reason: n.GetNackReason(),
		Level: n.GetLevel(), Lineage: n.GetLineage(), Refused: n.GetRefused(), BreakGlass: n.GetBreakGlass(),
	}
}

func nodeNotes(n *adminpb.Node) []string {
	var list []string
	for _, freeze := range n.GetBreakGlass() {
		list = append(list, "❄ BREAK-GLASS on this sidecar alone: "+freeze)
	}
	switch {
	case unruled(n):
		return append(list, fmt.Sprintf("there is no domain %s, so nothing is limited: is the name right? see: rulectl get domains", n.GetDomain()))
	case n.GetState() == stateForeign:
		return append(list, foreignText(n))
	case n.GetState() == stateAhead:
		return append(list, aheadText(n))
	case n.GetNackReason() != "":
		list = append(list, fmt.Sprintf("refuses revision %d: %s", n.GetNacked(), n.GetNackReason()))
	}
	return list
}

// foreignText says why a node does not follow, and what lets it.
func foreignText(n *adminpb.Node) string {
	if n.GetNackReason() != "" {
		return n.GetNackReason() // the control plane says it in full
	}
	return fmt.Sprintf("holds the rules of another history, %s, and keeps them; an admin lets it follow with: rulectl sidecar adopt %s",
		n.GetLineage(), n.GetLineage())
}

func aheadText(n *adminpb.Node) string {
	return fmt.Sprintf("runs revision %d, which this control plane never made: its database was restored from a backup; "+
		"after that an admin has to run: controlplane renew-lineage", n.GetAcked())
}

// The states of a node, as the control plane names them.
const (
	stateSynced  = "synced"
	statePending = "pending"
	stateNacked  = "nacked"
	stateAway    = "away"
	stateGone    = "gone"
	stateForeign = "foreign"
	stateAhead   = "ahead"
)

// unruled reports that a node serves a domain that does not exist: it has all there is, and limits nothing.
func unruled(n *adminpb.Node) bool { return n.GetState() == stateSynced && n.GetWanted() == 0 }

// stateText is a state as icon and word, so that neither colour nor font carries it alone.
func stateText(n *adminpb.Node) string {
	switch n.GetState() {
	case stateSynced:
		if unruled(n) {
			return "⚠ No rules"
		}
		return "✔ Synced"
	case statePending:
		return "◌ Pending"
	case stateNacked:
		return "✖ Nacked"
	case stateAway:
		return "⚠ Away"
	case stateGone:
		return "• Gone"
	case stateForeign:
		return "⚠ Foreign"
	case stateAhead:
		return "⚠ Ahead"
	}
	return oneLine(n.GetState())
}

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}
