package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

// describeDomain says what holds for all rules of a domain, and lists its rules and sidecars.
func (a *app) describeDomain(ctx context.Context, name string) error {
	a.lists = "rulectl get domains"
	var of *adminpb.ListRulesResponse
	var nodes *adminpb.ListNodesResponse
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListDomainsResponse, error) {
		var err error
		if of, err = client.ListRules(ctx, &adminpb.ListRulesRequest{Domain: name}); err != nil {
			return nil, err
		}
		if nodes, err = client.ListNodes(ctx, &adminpb.ListNodesRequest{Domain: name}); err != nil {
			return nil, err
		}
		return client.ListDomains(ctx, &adminpb.ListDomainsRequest{Domain: name})
	})
	if err != nil {
		return err
	}
	if len(resp.GetDomains()) == 0 {
		return fmt.Errorf("domain %s: %w", name, rules.ErrNotFound)
	}
	d := describedDomain{
		APIVersion: apiVersion, Kind: "DomainDescription", domainItem: newDomainItem(resp.GetDomains()[0], len(of.GetRules())),
		RulesOf: []ruleSummary{}, Sidecars: []nodeItem{},
	}
	for _, r := range of.GetRules() {
		d.RulesOf = append(d.RulesOf, newRuleSummary(r))
	}
	for _, n := range nodes.GetNodes() {
		d.Sidecars = append(d.Sidecars, newNodeItem(n))
	}
	if a.structured() {
		return a.printData(d)
	}
	text := d.text(time.Now())
	if len(nodes.GetNodes()) > 0 {
		text += "\nSidecars\n" + a.nodes().render(a.nodes().table(a), nodes.GetNodes())
	}
	_, err = fmt.Fprint(a.io.Out, text)
	return err
}

type describedDomain struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	domainItem
	RulesOf  []ruleSummary `json:"rulesOf"`
	Sidecars []nodeItem    `json:"sidecars"`
}

type ruleSummary struct {
	Rule    string `json:"rule"`
	State   string `json:"state"`
	Summary string `json:"summary"`           // of the candidate, where there is one
	InForce string `json:"inForce,omitempty"` // beside it: of the stable
}

func newRuleSummary(r *adminpb.Rule) ruleSummary {
	s := ruleSummary{Rule: r.GetDomain() + "/" + r.GetName(), State: r.GetState(), Summary: summary(newest(r))}
	if r.GetCandidate() != nil {
		s.InForce = summary(r.GetStable())
	}
	return s
}

func (d *describedDomain) text(now time.Time) string {
	var b strings.Builder
	line := func(label, text string) { fmt.Fprintf(&b, "%-11s %s\n", label, oneLine(text)) }
	line("Domain:", d.Domain)
	revision := strconv.FormatInt(d.Revision, 10)
	if d.SettingsRevision > 0 {
		revision += fmt.Sprintf("; its settings are of %d", d.SettingsRevision)
	}
	line("Revision:", revision)
	line("Shard:", cmp.Or(d.Shard, "none: the counters of each key are in one Redis slot"))
	if len(d.Exempt) == 0 {
		line("Exempt:", "nothing: every request meets the rules")
	}
	for _, e := range d.Exempt {
		line("Exempt:", fmt.Sprintf("%s: requests with %s meet no rule", e.Name, e.Match))
	}
	for _, f := range d.Freezes {
		if f.Rule != "" {
			line("Frozen:", f.Rule+": "+f.text(now))
			continue
		}
		line("Frozen:", f.text(now))
	}
	if len(d.RulesOf) == 0 {
		line("Rules:", "none")
		return b.String()
	}
	b.WriteString("\nRules\n")
	for _, r := range d.RulesOf {
		fmt.Fprintf(&b, "  %s: %s\n", oneLine(r.Rule), oneLine(r.State))
		switch {
		case r.InForce != "" && r.InForce != r.Summary:
			fmt.Fprintf(&b, "      stable:    %s.\n      candidate: %s.\n", oneLine(r.InForce), oneLine(r.Summary))
		case r.Summary != "":
			fmt.Fprintf(&b, "      %s.\n", oneLine(r.Summary))
		}
	}
	return b.String()
}
