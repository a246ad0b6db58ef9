package ui

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

// rulePage is one rule. Of its tabs, the one that is looked at is filled.
type rulePage struct {
	Domain, Name, Path string
	Rollout            *adminpb.Rollout // where it stands
	Stable, Candidate  *version         // nil: none
	Silence            *adminpb.SilenceState
	Alerts             []*adminpb.Alert // that fire
	Span               span
	Tab                string
	Tabs               []tab

	Traffic     *trafficTab
	Keys        *keysTab
	Found       *found // what was looked up
	Try         *tryTab
	Shadow      *shadowTab
	RolloutTab  *rolloutTab
	Versions    *versionsTab
	Definitions []definition
}

// version is a version of a rule, with what it says. Spec is nil where a newer program wrote what this one does not know.
type version struct {
	Number  int64
	Spec    *rules.Spec
	Summary string
	Stored  string // canonical JSON
}

// tab is a part of a page that has an address of its own.
type tab struct {
	Name, Text, To string
	Here           bool
}

var ruleTabs = []struct{ name, text string }{
	{"traffic", "Traffic"},
	{"shadow", "Shadow"},
	{"keys", "Keys"},
	{"try", "Try a limit"},
	{"rollout", "Rollout"},
	{"versions", "Versions"},
	{"definition", "Definition"},
}

func (u *UI) rule(ctx context.Context, r *request) (view, error) { return u.rulePage(ctx, r, nil) }

// A fill reads what a part of the page shows, while others are read.
type fill func(ctx context.Context, r *request, page *rulePage) error

// rulePage reads the page, with something more where that is asked for.
func (u *UI) rulePage(ctx context.Context, r *request, more fill) (view, error) {
	page, err := newRulePage(r)
	if err != nil {
		return view{}, err
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return u.ruleHead(running, page) })
	group.Go(func() error { return u.ruleSilence(running, page) })
	for _, part := range []fill{u.ruleTab(page.Tab), more} {
		if part != nil {
			group.Go(func() error { return part(running, r, page) })
		}
	}
	if err := group.Wait(); err != nil {
		return view{}, err
	}
	if err := u.ofHead(ctx, r, page); err != nil {
		return view{}, err
	}
	return view{Title: page.Name, Crumb: []link{{"Overview", "/"}, {page.Domain, "/d/" + page.Domain}}, Data: page}, nil
}

// ofHead fills the tabs that need to know what the versions say.
func (u *UI) ofHead(ctx context.Context, r *request, page *rulePage) (err error) {
	switch page.Tab {
	case "definition":
		page.Definitions, err = u.definitions(ctx, page)
	case "try":
		err = u.tryTab(ctx, r, page)
	}
	return err
}

// ruleTab is what fills a tab.
func (u *UI) ruleTab(name string) fill {
	switch name {
	case "traffic":
		return u.trafficTab
	case "shadow":
		return u.shadowTab
	case "keys":
		return u.keysTab
	case "rollout":
		return u.rolloutTab
	case "versions":
		return u.versionsTab
	}
	return nil
}

// newRulePage reads what the address asks for.
func newRulePage(r *request) (*rulePage, error) {
	page := &rulePage{Domain: r.PathValue("domain"), Name: r.PathValue("rule")}
	page.Path = rulePath(page.Domain, page.Name)
	names := make([]string, len(ruleTabs))
	for i, t := range ruleTabs {
		names[i] = t.name
	}
	var err error
	if page.Tab, err = r.choice("tab", names...); err != nil {
		return nil, err
	}
	if page.Span, err = r.span(time.Now()); err != nil {
		return nil, err
	}
	for _, t := range ruleTabs {
		to := url.Values{"tab": {t.name}}
		page.Span.keep(to)
		page.Tabs = append(page.Tabs, tab{Name: t.name, Text: t.text, To: page.Path + "?" + to.Encode(), Here: t.name == page.Tab})
	}
	return page, nil
}

// ruleHead reads where the rule stands.
func (u *UI) ruleHead(ctx context.Context, page *rulePage) error {
	resp, err := u.api.GetRollout(ctx, &adminpb.GetRolloutRequest{Domain: page.Domain, Rule: page.Name})
	if err != nil {
		return err
	}
	page.Rollout = resp.GetRollout()
	page.Stable, page.Candidate = versionOf(page.Rollout.GetRule().GetStable()), versionOf(page.Rollout.GetRule().GetCandidate())
	return nil
}

// ruleSilence reads whether alerts of the rule fire, and whether they are sent. A control plane without alerts has none.
func (u *UI) ruleSilence(ctx context.Context, page *rulePage) error {
	resp, err := u.api.ListAlerts(ctx, &adminpb.ListAlertsRequest{Domain: page.Domain})
	if errors.Is(err, rules.ErrNotFound) {
		return nil // what is missing is the domain, which is said by others
	}
	if err != nil {
		return err
	}
	for _, s := range resp.GetSilences() {
		if s.GetRule() == page.Name {
			page.Silence = s
		}
	}
	page.Alerts = slices.DeleteFunc(resp.GetAlerts(), func(a *adminpb.Alert) bool { return a.GetRule() != page.Name })
	return nil
}

func versionOf(v *adminpb.Version) *version {
	if v == nil {
		return nil
	}
	made := &version{Number: v.GetNumber(), Stored: v.GetSpec()}
	spec, err := rules.DecodeSpec([]byte(v.GetSpec()))
	if err != nil {
		made.Summary = fmt.Sprintf("what v%d says was written by a newer program, and is not known to this one", v.GetNumber())
		return made
	}
	made.Spec, made.Summary = &spec, rules.Summary(&spec)
	return made
}

// Ranges lead to the same tab with another range.
func (p *rulePage) Ranges() []tab { return p.Span.choices(p.Path, p.Tab) }

// Newest is the candidate, or else the stable.
func (p *rulePage) Newest() *version {
	if p.Candidate != nil {
		return p.Candidate
	}
	return p.Stable
}

// Owner, Labels and Description are those of the newest version.
func (p *rulePage) Owner() string { return p.text().Owner }

// Description says what the rule is for.
func (p *rulePage) Description() string { return p.text().Description }

// Labels are the rule's labels. One whose value is the address of a page is a link: a runbook, a ticket.
func (p *rulePage) Labels() []link {
	labels := p.text().Labels
	list := make([]link, 0, len(labels))
	for name, value := range labels {
		to := ""
		if strings.HasPrefix(value, "https://") || strings.HasPrefix(value, "http://") {
			to = value
		}
		list = append(list, link{name + ": " + value, to})
	}
	slices.SortFunc(list, func(a, b link) int { return strings.Compare(a.Text, b.Text) })
	return list
}

func (p *rulePage) text() *rules.Spec {
	if v := p.Newest(); v != nil && v.Spec != nil {
		return v.Spec
	}
	return &rules.Spec{}
}
