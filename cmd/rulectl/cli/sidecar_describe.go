package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) describeSidecarCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "describe NODE",
		Short:   "Show all that is known of a sidecar",
		Example: "  rulectl sidecar describe cart-7f9-x2",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.describeSidecar(ctx, args[0]) }),
	}
}

func (a *app) diffSidecarCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff NODE",
		Short: "Show which rules a sidecar does not have in their newest state; exit 1 if there are any",
		Long: "Diff compares the rules as they stand with what the sidecar last acknowledged. Exit 0: it has them all. Exit 1: it\n" +
			"lacks some, or what it holds is of another history. Exit 2: they could not be compared.",
		Example: "  rulectl sidecar diff cart-7f9-x2",
		Args:    cobra.ExactArgs(1),
		RunE:    a.compare(func(ctx context.Context, args []string) error { return a.diffSidecar(ctx, args[0]) }),
	}
}

type lackItem struct {
	Rule     string `json:"rule"`
	Has      string `json:"has,omitempty"` // absent: nothing
	Wanted   string `json:"wanted"`
	Revision int64  `json:"revision"` // that made the wanted state
	Refused  bool   `json:"refused"`  // it was sent, and the sidecar refused it
}

func lackItems(lacks []*adminpb.Lack) []lackItem {
	items := make([]lackItem, len(lacks))
	for i, l := range lacks {
		items[i] = lackItem{l.GetRule(), l.GetHas(), l.GetWanted(), l.GetRevision(), l.GetRefused()}
	}
	return items
}

func lackTable(lacks []*adminpb.Lack) string {
	rows := make([][]string, len(lacks))
	for i, l := range lacks {
		reason := "not acknowledged"
		if l.GetRefused() {
			reason = "✖ refused"
		}
		rows[i] = []string{l.GetRule(), l.GetHas(), l.GetWanted(), number(l.GetRevision()), reason}
	}
	return renderTable([]string{"RULE", "HAS", "WANTED", "REVISION", "WHY"}, rows, "REVISION")
}

func (a *app) findSidecar(ctx context.Context, id string) (*adminpb.DescribeNodeResponse, error) {
	a.lists = "rulectl sidecar list"
	return ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.DescribeNodeResponse, error) {
		return client.DescribeNode(ctx, &adminpb.DescribeNodeRequest{Id: id})
	})
}

func (a *app) describeSidecar(ctx context.Context, id string) error {
	resp, err := a.findSidecar(ctx, id)
	if err != nil {
		return err
	}
	nodes, lacks := resp.GetNodes(), resp.GetLacks()
	if a.structured() {
		items := make([]nodeItem, len(nodes))
		for i, n := range nodes {
			items[i] = newNodeItem(n)
		}
		return a.printData(struct {
			APIVersion string     `json:"apiVersion"`
			Kind       string     `json:"kind"`
			Node       string     `json:"node"`
			Domains    []nodeItem `json:"domains"`
			Lacks      []lackItem `json:"lacks"`
		}{apiVersion, "Sidecar", id, items, lackItems(lacks)})
	}
	rows := make([][]string, len(nodes))
	for i, n := range nodes {
		rows[i] = []string{
			n.GetDomain(), stateText(n), number(n.GetWanted()), number(n.GetSent()), number(n.GetAcked()), number(n.GetNacked()),
			strconv.Itoa(int(n.GetLevel())), shortID(n.GetLineage()),
		}
	}
	newest := slices.MaxFunc(nodes, func(a, b *adminpb.Node) int { return a.GetSeen().AsTime().Compare(b.GetSeen().AsTime()) })
	seen := newest.GetSeen().AsTime()
	fmt.Fprintf(a.io.Out, "Node:      %s\nProgram:   %s\nLast seen: %s (%s ago)\n\n", oneLine(id), oneLine(newest.GetProgram()), when(seen), age(time.Since(seen)))
	t := table{
		header: []string{"DOMAIN", "STATUS", "WANTED", "SENT", "RUNNING", "REFUSED", "LEVEL", "HISTORY"},
		right:  []string{"WANTED", "SENT", "RUNNING", "REFUSED", "LEVEL"},
	}
	fmt.Fprint(a.io.Out, t.render(rows, func(i int) []string { return nodeNotes(nodes[i]) }))
	if len(lacks) > 0 {
		fmt.Fprintf(a.io.Out, "\nrules it does not have in their newest state\n%s", lackTable(lacks))
	}
	return nil
}

func (a *app) diffSidecar(ctx context.Context, id string) error {
	resp, err := a.findSidecar(ctx, id)
	if err != nil {
		return err
	}
	lacks := resp.GetLacks()
	switch {
	case a.structured():
		if err := printList(a, "LackList", lackItems(lacks)); err != nil {
			return err
		}
	case len(lacks) > 0:
		fmt.Fprint(a.io.Out, lackTable(lacks))
	}
	strange := false
	for _, n := range resp.GetNodes() {
		switch n.GetState() {
		case stateForeign, stateAhead:
			strange = true
			fmt.Fprintf(a.io.Err, "%s: cannot be compared: %s\n", oneLine(n.GetDomain()), oneLine(nodeNotes(n)[len(nodeNotes(n))-1]))
		case stateAway, stateGone:
			fmt.Fprintf(a.io.Err, "%s: the sidecar is not connected; this is what it last acknowledged\n", oneLine(n.GetDomain()))
		}
	}
	if len(lacks) > 0 || strange {
		return explained{exitFailed}
	}
	a.tell("✔ it has every rule in its newest state")
	return nil
}

func (a *app) adoptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt LINEAGE",
		Short: "Let sidecars that hold another history follow this one",
		Long: "After a database was restored or replaced, its history has another identity, and sidecars that hold the rules of the\n" +
			"old one keep them: a mistaken database must not change what a fleet enforces. Adopt says that the history LINEAGE,\n" +
			"which `rulectl sidecar list` names (its begin will do), is replaced by this one: all that those sidecars have is replaced at once, now\n" +
			"and when they come back. It asks at a terminal; elsewhere it needs --yes. Only an admin may.",
		Example: "  rulectl sidecar adopt 9f86d081884c7d659a2feaa0c55ad015 -m \"restored from the 02:00 backup\" --yes",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.adopt(ctx, args[0]) }),
	}
	a.messageFlag(cmd)
	a.yesFlag(cmd, "do not ask")
	return cmd
}

// holdersOf returns the history that the word, or its begin, names, and how many sidecars hold it.
func (a *app) holdersOf(ctx context.Context, word string) (lineage string, holders int, err error) {
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListNodesResponse, error) {
		return client.ListNodes(ctx, &adminpb.ListNodesRequest{})
	})
	if err != nil {
		return "", 0, err
	}
	found := map[string]map[string]bool{} // by history, the ids of its holders
	for _, n := range resp.GetNodes() {
		if l := n.GetLineage(); l != "" && strings.HasPrefix(l, word) {
			if found[l] == nil {
				found[l] = map[string]bool{}
			}
			found[l][n.GetId()] = true
		}
	}
	all := slices.Sorted(maps.Keys(found))
	switch {
	case found[word] != nil:
		return word, len(found[word]), nil
	case len(all) == 0:
		a.lists = "rulectl sidecar list"
		return "", 0, fmt.Errorf("no sidecar holds a history %s: %w", word, rules.ErrNotFound)
	case len(all) > 1:
		return "", 0, usagef("several histories begin with %s: %s", word, names(all))
	}
	return all[0], len(found[all[0]]), nil
}

func (a *app) adopt(ctx context.Context, word string) error {
	lineage, holders, err := a.holdersOf(ctx, word)
	if err != nil {
		return err
	}
	if !a.yes.given() {
		if err := a.confirm(ctx, fmt.Sprintf("replace the rules of every sidecar that holds the history %s, now %s", lineage, count(holders, "sidecar"))); err != nil {
			return err
		}
	}
	if err := a.allow(ctx, "replace the history "+lineage); err != nil {
		return err
	}
	a.changing, a.lists = true, "rulectl sidecar list"
	if _, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ReplaceLineageResponse, error) {
		return client.ReplaceLineage(ctx, &adminpb.ReplaceLineageRequest{Lineage: lineage, Message: a.message})
	}); err != nil {
		return err
	}
	if a.structured() {
		return a.printData(struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Lineage    string `json:"lineage"`
		}{apiVersion, "Adoption", lineage})
	}
	fmt.Fprintf(a.io.Out, "sidecars that hold the history %s follow this one from now on\n", lineage)
	a.tell("next: rulectl sidecar list")
	return nil
}
