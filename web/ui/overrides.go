package ui

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// overridesOnPage is how many overrides are shown at a time.
const overridesOnPage = 100

// overridesPage is the overrides of all rules that have not ended.
type overridesPage struct {
	Rows    []*adminpb.Override
	Pager   pager
	All     int // before any filter
	Domain  string
	Text    string
	Domains []string
	Rules   []*adminpb.Rule // that the caller may make one of, some of them
	Left    int             // of them that are not shown
}

// rulesToChoose is of how many rules one can be made here: the others are found by the filter, or on pages of their own.
const rulesToChoose = 12

func (u *UI) overrides(ctx context.Context, r *request) (view, error) {
	page := &overridesPage{Domain: r.Query.Get("domain"), Text: strings.TrimSpace(r.Query.Get("q"))}
	if _, err := r.paged(0, overridesOnPage); err != nil {
		return view{}, err
	}
	var list []*adminpb.Override
	var rules []*adminpb.Rule
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		resp, err := u.api.ListOverrides(running, &adminpb.ListOverridesRequest{})
		list = resp.GetOverrides()
		return err
	})
	group.Go(func() error {
		resp, err := u.api.ListRules(running, &adminpb.ListRulesRequest{})
		rules = resp.GetRules()
		return err
	})
	if err := group.Wait(); err != nil {
		return view{}, err
	}
	page.All = len(list)
	for _, rule := range rules {
		page.Domains = append(page.Domains, rule.GetDomain())
		switch {
		case r.Who.May(access.Operator, rule.GetDomain()) != nil, !page.names(rule):
		case len(page.Rules) == rulesToChoose:
			page.Left++
		default:
			page.Rules = append(page.Rules, rule)
		}
	}
	slices.Sort(page.Domains)
	page.Domains = slices.Compact(page.Domains)
	list = slices.DeleteFunc(list, func(o *adminpb.Override) bool { return !page.takes(o) })
	slices.SortStableFunc(list, func(a, b *adminpb.Override) int { return a.GetUntil().AsTime().Compare(b.GetUntil().AsTime()) })
	var err error
	if page.Pager, err = r.paged(len(list), overridesOnPage); err != nil {
		return view{}, err
	}
	page.Rows = list[page.Pager.From:page.Pager.To]
	return view{Title: "Overrides", Nav: "overrides", Data: page}, nil
}

func (p *overridesPage) takes(o *adminpb.Override) bool {
	text := strings.ToLower(strings.Join([]string{o.GetRule(), o.GetKey(), o.GetRate(), o.GetActor(), o.GetMessage()}, "\n"))
	return (p.Domain == "" || domainOf(o.GetRule()) == p.Domain) && strings.Contains(text, strings.ToLower(strings.TrimPrefix(p.Text, "#")))
}

// names reports whether the filter is about the rule itself.
func (p *overridesPage) names(r *adminpb.Rule) bool {
	return (p.Domain == "" || r.GetDomain() == p.Domain) && strings.Contains(r.GetDomain()+"/"+r.GetName(), strings.ToLower(p.Text))
}

// keyHash is how the hash of a key is shown: its begin, which tells it from others.
func keyHash(key string) string { return "#" + key[:min(len(key), 8)] }

// domainOf is the domain of "domain/name".
func domainOf(rule string) string {
	domain, _, _ := strings.Cut(rule, "/")
	return domain
}
