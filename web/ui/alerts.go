package ui

import (
	"context"
	"fmt"
	"html/template"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// pastAlerts is how many of the alerts that are over are shown: the last ones.
const pastAlerts = 50

// alertsPage is what fires, what is silenced, and what fired.
type alertsPage struct {
	Show     string
	Tabs     []tab
	Firing   []*firing
	Silenced []*firing
	Quiet    []*adminpb.SilenceState // silences of rules that no alert fires of
	Past     []*adminpb.Alert
	PastOf   int // with those that are not shown
}

// firing is an alert that is not over.
type firing struct {
	*adminpb.Alert

	Silence *adminpb.SilenceState // nil: none
	Runbook link                  // of the rule; without an address where it names none
	Frozen  bool
	Gone    bool // the rule is not there any more
	Chart   *alertChart
}

var alertShows = []string{"all", "firing", "silenced", "past"}

func (u *UI) alerts(ctx context.Context, r *request) (view, error) {
	page := &alertsPage{}
	var err error
	if page.Show, err = r.choice("show", alertShows...); err != nil {
		return view{}, err
	}
	var alerts *adminpb.ListAlertsResponse
	var rules *adminpb.ListRulesResponse
	group, running := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		alerts, err = u.api.ListAlerts(running, &adminpb.ListAlertsRequest{All: true})
		return err
	})
	group.Go(func() (err error) {
		rules, err = u.api.ListRules(running, &adminpb.ListRulesRequest{})
		return err
	})
	if err := group.Wait(); err != nil {
		return view{}, err
	}
	page.fill(alerts, rules.GetRules())
	if err := u.charts(ctx, page.Firing); err != nil {
		return view{}, err
	}
	for _, show := range alertShows {
		text := strings.ToUpper(show[:1]) + show[1:]
		switch show {
		case "firing":
			text = fmt.Sprintf("%s (%d)", text, len(page.Firing))
		case "silenced":
			text = fmt.Sprintf("%s (%d)", text, len(page.Silenced)+len(page.Quiet))
		case "past":
			text = fmt.Sprintf("%s (%d)", text, page.PastOf)
		}
		page.Tabs = append(page.Tabs, tab{Name: show, Text: text, To: r.with("show", show), Here: show == page.Show})
	}
	return view{Title: "Alerts", Nav: "alerts", Data: page}, nil
}

func (p *alertsPage) fill(resp *adminpb.ListAlertsResponse, list []*adminpb.Rule) {
	silences := map[string]*adminpb.SilenceState{}
	for _, s := range resp.GetSilences() {
		silences[s.GetDomain()+"/"+s.GetRule()] = s
	}
	standing := map[string]*adminpb.Rule{}
	for _, r := range list {
		standing[r.GetDomain()+"/"+r.GetName()] = r
	}
	loud := map[string]bool{}
	for _, a := range resp.GetAlerts() {
		if a.GetResolved() != nil {
			p.Past = append(p.Past, a)
			continue
		}
		id := a.GetDomain() + "/" + a.GetRule()
		f := &firing{Alert: a, Silence: silences[id], Gone: standing[id] == nil}
		if !f.Gone {
			f.Runbook, f.Frozen = runbook(standing[id]), standing[id].GetFrozenUntil() != nil
		}
		if f.Silence == nil {
			p.Firing = append(p.Firing, f)
			continue
		}
		p.Silenced = append(p.Silenced, f)
		loud[id] = true
	}
	for _, s := range resp.GetSilences() {
		if !loud[s.GetDomain()+"/"+s.GetRule()] {
			p.Quiet = append(p.Quiet, s)
		}
	}
	p.PastOf = len(p.Past)
	p.Past = p.Past[:min(len(p.Past), pastAlerts)]
}

// runbook is what the label of that name says: an address, or where to look.
func runbook(r *adminpb.Rule) link {
	row := newRuleRow(r)
	l := link{Text: row.Labels["runbook"]}
	if strings.HasPrefix(l.Text, "https://") || strings.HasPrefix(l.Text, "http://") {
		l.To = l.Text
	}
	return l
}

// Happened says in a sentence what happened.
func (f *firing) Happened() string {
	who := "unknown who"
	switch f.GetHits() {
	case "one_client":
		who = "one client"
	case "many":
		who = "about " + tally.Thousands(f.GetDistinct()) + " keys"
	case "everybody":
		who = "everybody, since its key tells no callers apart"
	}
	verb := "refused"
	if f.GetKind() == "would_refuse" {
		verb = "would have refused"
	}
	return fmt.Sprintf("v%d %s %s of %s requests in five minutes, %s where %s is usual: it hits %s.", f.GetVersion(), verb,
		tally.Thousands(f.GetRefused()), tally.Thousands(f.GetRequests()), f.Ratio(), tally.Percent(f.GetBaseline()), who)
}

// Ratio is how much was refused, as it was measured.
func (f *firing) Ratio() string { return shareWords(f.GetRefused(), f.GetRequests()) }

// Path is the address of the rule.
func (f *firing) Path() string { return rulePath(f.GetDomain(), f.GetRule()) }

// Most is the refusals of the key that was hit most.
func (f *firing) Most(count int64) template.HTML {
	return bar(share{outcomeClass(f.GetKind()), count}, share{"rest", max(0, f.GetRefused()-count)})
}

// Lasted is how long an alert fired.
func lasted(a *adminpb.Alert) string {
	return lasting(a.GetResolved().AsTime().Sub(a.GetSince().AsTime()).Round(time.Second))
}

// Figure draws the test that fired: what the ratio surely is, against what is usual and what it had to be above. What it
// shows stands beside it in words.
func (f *firing) Figure() template.HTML {
	const wide, high = 240.0, 34.0
	ratio := 0.0
	if f.GetRequests() > 0 {
		ratio = float64(f.GetRefused()) / float64(f.GetRequests())
	}
	most := min(1, 1.15*max(ratio, f.GetBound(), f.GetLimit(), f.GetBaseline(), 0.01))
	x := func(share float64) float64 { return wide * min(1, share/most) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="test" viewBox="0 0 %g %g" preserveAspectRatio="none" aria-hidden="true">`, wide, high)
	fmt.Fprintf(&b, `<rect class="whole" x="0" y="12" width="%g" height="12"/>`, wide)
	fmt.Fprintf(&b, `<rect class="is %s" x="0" y="12" width="%.1f" height="12"/>`, outcomeClass(f.GetKind()), x(ratio))
	fmt.Fprintf(&b, `<rect class="sure %s" x="0" y="12" width="%.1f" height="12"/>`, outcomeClass(f.GetKind()), x(f.GetBound()))
	fmt.Fprintf(&b, `<path class="usual" d="M%.1f 6V30"/>`, x(f.GetBaseline()))
	fmt.Fprintf(&b, `<path class="limit" d="M%.1f 2V34"/></svg>`, x(f.GetLimit()))
	return template.HTML(b.String()) //nolint:gosec // made of numbers, and of classes of this package
}

// outcomeClass is the class of what an alert is about.
func outcomeClass(kind string) string {
	if kind == "would_refuse" {
		return "would"
	}
	return "refused"
}
