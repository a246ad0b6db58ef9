package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) sidecarCommand() *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "Show the sidecars and which revision each has taken",
		Long: "Sidecar list shows every sidecar for each domain it serves: the revision it should have, the one it runs (the\n" +
			"last it acknowledged), and when it was last heard of.",
		Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error { return a.listSidecars(ctx) }),
	}
	a.domainFlag(list, "only the sidecars of this domain")
	return group(&cobra.Command{Use: "sidecar", Aliases: []string{"sidecars"}, Short: "Look at the fleet", GroupID: groupLook}, list)
}

func (a *app) listSidecars(ctx context.Context) error {
	client, closeConn, err := a.connect()
	if err != nil {
		return err
	}
	defer closeConn()
	ctx, cancel := a.call(ctx)
	defer cancel()
	resp, err := client.ListNodes(ctx, &adminpb.ListNodesRequest{Domain: a.domain})
	if err != nil {
		return err
	}
	nodes := resp.GetNodes()
	if a.output == outputJSON {
		items := make([]nodeItem, len(nodes))
		for i, n := range nodes {
			items[i] = newNodeItem(n)
		}
		return printList(a, "SidecarList", items)
	}
	if len(nodes) == 0 {
		a.nothing("sidecars", "each appears when it has connected")
		return nil
	}
	_, err = fmt.Fprint(a.io.Out, nodeTable(nodes, time.Now()))
	return err
}

type nodeItem struct {
	Node    string `json:"node"`
	Domain  string `json:"domain"`
	Program string `json:"program,omitempty"`
	State   string `json:"state"` // synced, pending, nacked, away or gone
	Seen    string `json:"seen"`
	Wanted  int64  `json:"wanted"`
	Sent    int64  `json:"sent"`
	Acked   int64  `json:"acked"` // what it runs
	Nacked  int64  `json:"nacked"`
	Reason  string `json:"reason,omitempty"` // of the refusal that stands
}

func newNodeItem(n *adminpb.Node) nodeItem {
	return nodeItem{
		Node: n.GetId(), Domain: n.GetDomain(), Program: n.GetProgram(), State: n.GetState(),
		Seen: n.GetSeen().AsTime().UTC().Format(time.RFC3339), Wanted: n.GetWanted(), Sent: n.GetSent(), Acked: n.GetAcked(),
		Nacked: n.GetNacked(), Reason: n.GetNackReason(),
	}
}

// nodeTable has a row for each node, and below it the reason for which it refuses.
func nodeTable(nodes []*adminpb.Node, now time.Time) string {
	rows := make([][]string, len(nodes))
	for i, n := range nodes {
		rows[i] = []string{
			n.GetId(), n.GetDomain(), stateText(n.GetState()), number(n.GetWanted()), number(n.GetAcked()),
			age(now.Sub(n.GetSeen().AsTime())) + " ago", n.GetProgram(),
		}
	}
	header := []string{"NODE", "DOMAIN", "STATUS", "WANTED", "RUNNING", "SEEN", "PROGRAM"}
	lines := strings.Split(renderTable(header, rows, "WANTED", "RUNNING"), "\n")
	var b strings.Builder
	for i, line := range lines[:len(lines)-1] {
		b.WriteString(line + "\n")
		if i > 0 && nodes[i-1].GetNackReason() != "" {
			fmt.Fprintf(&b, "   refuses revision %d: %s\n", nodes[i-1].GetNacked(), oneLine(nodes[i-1].GetNackReason()))
		}
	}
	return b.String()
}

// The states of a node, as the control plane names them.
const (
	stateSynced  = "synced"
	statePending = "pending"
	stateNacked  = "nacked"
	stateAway    = "away"
	stateGone    = "gone"
)

// stateText is a state as icon and word, so that neither colour nor font carries it alone.
func stateText(state string) string {
	switch state {
	case stateSynced:
		return "✔ Synced"
	case statePending:
		return "◌ Pending"
	case stateNacked:
		return "✖ Nacked"
	case stateAway:
		return "⚠ Away"
	case stateGone:
		return "• Gone"
	}
	return state
}

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}
