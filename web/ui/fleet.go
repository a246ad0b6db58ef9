package ui

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// fleetPage is the sidecars and where each stands.
type fleetPage struct {
	Fleet   fleetSummary
	Nodes   []fleetNode
	All     int // before any filter
	Pager   pager
	State   string
	Domain  string
	Text    string
	Domains []string // that some sidecar serves
}

// sidecarsOnPage is how many sidecars are shown at a time.
const sidecarsOnPage = 200

// fleetNode is a sidecar with each domain that it serves.
type fleetNode struct {
	ID, Program string
	Of          []*adminpb.Node
}

// states are those of a sidecar, as it serves a domain.
var states = []string{"all", "synced", "pending", "nacked", "away", "gone", "foreign", "ahead"}

// States are what can be chosen.
func (*fleetPage) States() []string { return states }

func (u *UI) fleet(ctx context.Context, r *request) (view, error) {
	page := &fleetPage{Domain: r.Query.Get("domain"), Text: strings.TrimSpace(r.Query.Get("q"))}
	var err error
	if page.State, err = r.choice("state", states...); err != nil {
		return view{}, err
	}
	resp, err := u.api.ListNodes(ctx, &adminpb.ListNodesRequest{})
	if err != nil {
		return view{}, err
	}
	page.Fleet = summarise(resp.GetNodes())
	nodes := byNode(resp.GetNodes())
	page.All = len(nodes)
	for _, n := range resp.GetNodes() {
		page.Domains = append(page.Domains, n.GetDomain())
	}
	slices.Sort(page.Domains)
	page.Domains = slices.Compact(page.Domains)
	nodes = slices.DeleteFunc(nodes, func(n fleetNode) bool { return !page.takes(&n) })
	if page.Pager, err = r.paged(len(nodes), sidecarsOnPage); err != nil {
		return view{}, err
	}
	page.Nodes = nodes[page.Pager.From:page.Pager.To]
	return view{Title: "Fleet", Nav: "fleet", Data: page}, nil
}

// takes keeps the domains of a sidecar that are asked for, and reports whether any is left.
func (p *fleetPage) takes(n *fleetNode) bool {
	if !strings.Contains(strings.ToLower(n.ID+" "+n.Program), strings.ToLower(p.Text)) {
		return false
	}
	return slices.ContainsFunc(n.Of, func(of *adminpb.Node) bool {
		return (p.Domain == "" || of.GetDomain() == p.Domain) && (p.State == states[0] || of.GetState() == p.State)
	})
}

// byNode puts what is known of a sidecar together: those that need somebody first, then by name.
func byNode(list []*adminpb.Node) []fleetNode {
	at := map[string]int{}
	var nodes []fleetNode
	for _, n := range list {
		i, known := at[n.GetId()]
		if !known {
			i, at[n.GetId()] = len(nodes), len(nodes)
			nodes = append(nodes, fleetNode{ID: n.GetId()})
		}
		nodes[i].Of = append(nodes[i].Of, n)
		nodes[i].Program = n.GetProgram()
	}
	slices.SortStableFunc(nodes, func(a, b fleetNode) int {
		if a.worst() != b.worst() {
			return b.worst() - a.worst()
		}
		return strings.Compare(a.ID, b.ID)
	})
	return nodes
}

// worst is the worst state of the sidecar; one that is gone needs nobody.
func (n *fleetNode) worst() int {
	worst := 0
	for _, of := range n.Of {
		worst = max(worst, severity(of.GetState()))
	}
	return worst
}

// behind says how far the sidecar is behind in words; "" where it is not.
func behind(n *adminpb.Node) string {
	switch by := n.GetWanted() - n.GetAcked(); {
	case n.GetAcked() == 0 && n.GetWanted() > 0:
		return "has taken nothing yet"
	case by <= 0 || n.GetState() == "synced":
		return ""
	case by == 1:
		return "1 revision behind"
	default:
		return tally.Thousands(by) + " revisions behind"
	}
}

// stands says what a state means, and what helps.
func stands(n *adminpb.Node) string {
	switch n.GetState() {
	case "synced":
		return "has what it should have"
	case "pending":
		return "was sent the newest revision, and has not answered"
	case "nacked":
		return "refuses a rule, and keeps its last good version"
	case "away":
		return "is not connected, and goes on with the rules that it has"
	case "gone":
		return "was stopped, or silent for ten minutes: it is not waited for"
	case "foreign":
		return "holds the rules of another history and keeps them, until an admin says: rulectl sidecar adopt " + n.GetLineage()
	case "ahead":
		return "runs a revision that this control plane never made: is this an older copy of its database?"
	}
	return "is in a state that this program does not know"
}

// nodePath is the address of a sidecar's page.
func nodePath(id string) string { return "/sidecars/" + url.PathEscape(id) }

// sidecarPage is one sidecar.
type sidecarPage struct {
	ID      string
	Program string
	Level   int32
	Of      []*adminpb.Node
	Lacks   []*adminpb.Lack
	Unruled []string // domains that it serves and that are not there
}

func (u *UI) sidecar(ctx context.Context, r *request) (view, error) {
	page := &sidecarPage{ID: r.PathValue("node")}
	var domains *adminpb.ListDomainsResponse
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		resp, err := u.api.DescribeNode(running, &adminpb.DescribeNodeRequest{Id: page.ID})
		if err != nil {
			return fmt.Errorf("%w; those that are known: rulectl sidecar list", err)
		}
		page.Of, page.Lacks = resp.GetNodes(), resp.GetLacks()
		return nil
	})
	group.Go(func() (err error) {
		domains, err = u.api.ListDomains(running, &adminpb.ListDomainsRequest{})
		return err
	})
	if err := group.Wait(); err != nil {
		return view{}, err
	}
	for _, of := range page.Of {
		page.Program, page.Level = of.GetProgram(), of.GetLevel()
		if !slices.ContainsFunc(domains.GetDomains(), func(d *adminpb.Domain) bool { return d.GetName() == of.GetDomain() }) {
			page.Unruled = append(page.Unruled, of.GetDomain())
		}
	}
	return view{Title: page.ID, Nav: "fleet", Crumb: []link{{"Fleet", "/sidecars"}}, Data: page}, nil
}
