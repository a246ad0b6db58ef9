package ui

import (
	"cmp"
	"context"
	"html/template"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	// overviewTrail is how many records of the audit trail the overview shows, and overviewRollouts how many rollouts with
	// their evidence; those that changed last.
	overviewTrail    = 10
	overviewRollouts = 8
)

// overviewPage is what somebody has to know first.
type overviewPage struct {
	Domains  []domainCard
	Rollouts []*adminpb.Rollout
	Open     int // rollouts, with those that are not shown
	Alerts   []*adminpb.Alert
	Fleet    fleetSummary
	Records  []*adminpb.Record
	Scoped   bool // the audit trail is not theirs to see whole
}

// domainCard is a domain over the last hour, and at the end of it.
type domainCard struct {
	Name                 string
	Rules, Shadow, Rolls int
	Last                 outcomes // of the last hour
	Now                  outcomes // of the last whole step
	Step                 time.Duration
	Spark                template.HTML
	Frozen               bool
}

func (u *UI) overview(ctx context.Context, r *request) (view, error) {
	var (
		page     overviewPage
		requests *adminpb.OverviewResponse
		rules    *adminpb.ListRulesResponse
		domains  *adminpb.ListDomainsResponse
	)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		requests, err = u.api.Overview(running, &adminpb.OverviewRequest{})
		return err
	})
	group.Go(func() (err error) {
		if rules, err = u.api.ListRules(running, &adminpb.ListRulesRequest{}); err != nil {
			return err
		}
		page.Rollouts, page.Open, err = u.openRollouts(running, rules.GetRules())
		return err
	})
	group.Go(func() (err error) {
		domains, err = u.api.ListDomains(running, &adminpb.ListDomainsRequest{})
		return err
	})
	group.Go(func() error {
		resp, err := u.api.ListAlerts(running, &adminpb.ListAlertsRequest{})
		page.Alerts = resp.GetAlerts()
		slices.SortStableFunc(page.Alerts, func(a, b *adminpb.Alert) int { return cmp.Compare(b.GetSeverity(), a.GetSeverity()) }) // page, then info
		return err
	})
	group.Go(func() error {
		resp, err := u.api.ListNodes(running, &adminpb.ListNodesRequest{})
		page.Fleet = summarise(resp.GetNodes())
		return err
	})
	page.Scoped = r.Who.May(access.Viewer, "") != nil
	group.Go(func() error {
		if page.Scoped {
			return nil
		}
		resp, err := u.api.ListAudit(running, &adminpb.ListAuditRequest{Limit: overviewTrail})
		page.Records = resp.GetRecords()
		return err
	})
	if err := group.Wait(); err != nil {
		return view{}, err
	}
	page.Domains = cards(requests, rules.GetRules(), domains.GetDomains())
	return view{Title: "Overview", Nav: "overview", Data: page}, nil
}

// openRollouts returns where the candidates stand, those that changed last, and how many there are in all.
func (u *UI) openRollouts(ctx context.Context, list []*adminpb.Rule) ([]*adminpb.Rollout, int, error) {
	open := slices.DeleteFunc(slices.Clone(list), func(r *adminpb.Rule) bool { return r.GetCandidate() == nil })
	slices.SortFunc(open, func(a, b *adminpb.Rule) int { return int(b.GetRevision() - a.GetRevision()) })
	shown := make([]*adminpb.Rollout, min(len(open), overviewRollouts))
	group, running := errgroup.WithContext(ctx)
	for i := range shown {
		group.Go(func() error {
			resp, err := u.api.GetRollout(running, &adminpb.GetRolloutRequest{Domain: open[i].GetDomain(), Rule: open[i].GetName()})
			shown[i] = resp.GetRollout()
			return err
		})
	}
	return shown, len(open), group.Wait()
}

func cards(requests *adminpb.OverviewResponse, list []*adminpb.Rule, domains []*adminpb.Domain) []domainCard {
	all := make([]domainCard, 0, len(requests.GetDomains()))
	for _, d := range requests.GetDomains() {
		steps := stepsOf(d.GetRequests().GetPoints(), requests.GetFrom().AsTime(), requests.GetTo().AsTime(), requests.GetStep().AsDuration())
		c := domainCard{Name: d.GetDomain(), Last: ofDomain(d.GetRequests().GetTotal()), Step: requests.GetStep().AsDuration(), Spark: spark(steps)}
		if len(steps) > 1 {
			c.Now = steps[len(steps)-2] // the last one has only begun
		}
		for _, r := range list {
			if r.GetDomain() != c.Name {
				continue
			}
			c.Rules++
			switch {
			case r.GetCandidate() == nil:
			case r.GetPercent() == 0:
				c.Shadow++
			default:
				c.Rolls++
			}
		}
		c.Frozen = slices.ContainsFunc(domains, func(d *adminpb.Domain) bool { return d.GetName() == c.Name && len(d.GetFreezes()) > 0 })
		all = append(all, c)
	}
	return all
}

// stepsOf puts points into steps without gaps.
func stepsOf(points []*adminpb.DomainPoint, from, to time.Time, step time.Duration) []outcomes {
	if step <= 0 {
		return nil
	}
	steps := make([]outcomes, int(to.Sub(from)/step)+1)
	for _, p := range points {
		if i := int(p.GetStart().AsTime().Sub(from) / step); i >= 0 && i < len(steps) {
			steps[i] = ofDomain(p.GetFigures())
		}
	}
	return steps
}

func ofDomain(f *adminpb.DomainFigures) outcomes {
	return outcomes{Allowed: f.GetAllowed(), Would: f.GetWouldRefuse(), Refused: f.GetRefused()}
}

// fleetSummary is how many sidecars are in which state, each by the worst state of its domains.
type fleetSummary struct {
	Nodes, Synced, Pending, Away, Nacked, Gone int
}

func summarise(nodes []*adminpb.Node) fleetSummary {
	worst := map[string]int{}
	for _, n := range nodes {
		worst[n.GetId()] = max(worst[n.GetId()], severity(n.GetState()))
	}
	s := fleetSummary{Nodes: len(worst)}
	for _, w := range worst {
		switch w {
		case 0:
			s.Gone++
		case 1:
			s.Synced++
		case 2:
			s.Pending++
		case 3:
			s.Away++
		case 4:
			s.Nacked++
		}
	}
	return s
}

// severity orders the states of sidecars: those that need somebody come last.
func severity(state string) int {
	switch state {
	case "gone":
		return 0
	case "synced":
		return 1
	case "pending":
		return 2
	case "away":
		return 3
	}
	return 4 // nacked, foreign, ahead, and what a newer program says
}

// Bar shows the parts of the fleet.
func (s fleetSummary) Bar() template.HTML {
	return bar(share{"good", int64(s.Synced)}, share{"warn", int64(s.Pending)}, share{"quiet", int64(s.Away)}, share{"bad", int64(s.Nacked)}, share{"rest", int64(s.Gone)})
}

// targetPath is the page of what an audit record is about; "" where there is none.
func targetPath(target string) string {
	domain, rule, ok := strings.Cut(target, "/")
	switch {
	case domain == "":
		return ""
	case ok:
		return rulePath(domain, rule)
	}
	return "/d/" + domain
}
