package ui

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	// rulesOnPage is how many rules the table of a domain shows at a time: a page of them is below 300 KB.
	rulesOnPage = 100
	// domainStep is the step of the lines in it, which are small.
	domainStep = 5 * time.Minute
)

// domainPage is one domain, with some of its rules.
type domainPage struct {
	*adminpb.Domain

	Requests *adminpb.DomainFigures // of the last hour
	Spark    template.HTML
	Missing  []*adminpb.MissingCounts
	Filter   ruleFilter
	Owners   []string // to choose from
	Sorts    []tab
	Rows     []ruleRow
	Pager    pager
	All      int // its rules, before any filter
	Changes  domainChanges
}

func (u *UI) domain(ctx context.Context, r *request) (view, error) {
	name := r.PathValue("domain")
	var page domainPage
	var err error
	if page.Filter, err = newRuleFilter(r); err != nil {
		return view{}, err
	}
	if _, err := r.paged(0, rulesOnPage); err != nil {
		return view{}, err
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		resp, err := u.api.ListDomains(running, &adminpb.ListDomainsRequest{Domain: name})
		if err == nil && len(resp.GetDomains()) == 0 {
			return rules.ErrNotFound
		}
		if err == nil {
			page.Domain = resp.GetDomains()[0]
		}
		return err
	})
	group.Go(func() error { return u.domainRules(running, r, name, &page) })
	group.Go(func() (err error) {
		page.Changes, err = u.domainChanges(running, r, name)
		return err
	})
	err = group.Wait()
	if errors.Is(err, rules.ErrNotFound) { // all that is read says so, and this is what helps
		err = fmt.Errorf("%w: there is no domain %s; one begins with its first rule: rulectl apply -f rules.yaml", rules.ErrNotFound, name)
	}
	if err != nil {
		return view{}, err
	}
	return view{Title: name, Crumb: []link{{"Overview", "/"}}, Data: &page}, nil
}

// domainRules fills what is shown of the rules. What they counted is asked of those that are shown alone.
func (u *UI) domainRules(ctx context.Context, r *request, name string, page *domainPage) error {
	resp, err := u.api.ListRules(ctx, &adminpb.ListRulesRequest{Domain: name})
	if err != nil {
		return err
	}
	page.All = len(resp.GetRules())
	rows := make([]ruleRow, page.All)
	for i, rule := range resp.GetRules() {
		rows[i] = newRuleRow(rule)
	}
	page.Owners = owners(rows)
	rows = slices.DeleteFunc(rows, func(row ruleRow) bool { return !page.Filter.takes(&row) })
	if page.Filter.Sort != sortName {
		if err := u.countAll(ctx, name, rows); err != nil {
			return err
		}
	}
	page.Filter.sort(rows)
	if page.Pager, err = r.paged(len(rows), rulesOnPage); err != nil {
		return err
	}
	page.Rows = rows[page.Pager.From:page.Pager.To]
	for _, by := range sorts {
		page.Sorts = append(page.Sorts, tab{Name: by, To: r.with("sort", by), Here: by == page.Filter.Sort})
	}
	return u.countShown(ctx, name, page)
}

// countAll puts into rows what decides their order: counts of whole hours, which are quick to read.
func (u *UI) countAll(ctx context.Context, domain string, rows []ruleRow) error {
	stats, err := u.api.Stats(ctx, &adminpb.StatsRequest{Domain: domain, Step: durationpb.New(time.Hour)})
	if err != nil {
		return err
	}
	countRows(rows, stats)
	return nil
}

// countShown fills what was counted in the last hour: the requests of the domain, and the rules that are shown.
func (u *UI) countShown(ctx context.Context, domain string, page *domainPage) error {
	names := []string{""} // no rule is called so: nothing is counted of rules where none is shown
	for i := range page.Rows {
		names = append(names, page.Rows[i].GetName())
	}
	stats, err := u.api.Stats(ctx, &adminpb.StatsRequest{Domain: domain, Rules: names, Step: durationpb.New(domainStep)})
	if err != nil {
		return err
	}
	countRows(page.Rows, stats)
	page.Requests, page.Missing = stats.GetRequests().GetTotal(), stats.GetMissing()
	page.Spark = spark(stepsOf(stats.GetRequests().GetPoints(), stats.GetFrom().AsTime(), stats.GetTo().AsTime(), stats.GetStep().AsDuration()))
	page.Filter.sort(page.Rows)
	for i := range page.Rows {
		page.Rows[i].describe()
	}
	return nil
}

// owners are those of some rules, each once.
func owners(rows []ruleRow) []string {
	var list []string
	for i := range rows {
		if rows[i].Owner != "" {
			list = append(list, rows[i].Owner)
		}
	}
	slices.SortFunc(list, strings.Compare)
	return slices.Compact(list)
}
