package ui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/web/api/adminpb"
)

// versionsTab is what a rule was, and how two versions of it differ.
type versionsTab struct {
	Versions []*versionLife // the newest first
	Events   []*adminpb.HistoryEntry
	LeftOut  int // events that are not shown
	A, B     int64
	Diff     *textDiff // nil: they say the same, or there is only one
}

// mostEvents is how much of a rule's history is shown.
const mostEvents = 200

// versionLife is a version with who made it, and what it was when.
type versionLife struct {
	version
	Made   *adminpb.HistoryEntry
	Stages []stageSpan
	Role   string // as the rule stands; "" for neither
}

// stageSpan is a time in which a version stood in a stage. Until is zero where it still does.
type stageSpan struct {
	Stage       string
	From, Until time.Time
}

// Lasted is how long it was; "" where it still is.
func (s stageSpan) Lasted() string {
	if s.Until.IsZero() {
		return ""
	}
	return lasting(s.Until.Sub(s.From))
}

// Back reports whether the rule can go back to the version: it was the stable, and is not now.
func (l *versionLife) Back() bool {
	return l.Role != "stable" && slices.ContainsFunc(l.Stages, func(s stageSpan) bool { return s.Stage == "stable" })
}

func (u *UI) versionsTab(ctx context.Context, r *request, page *rulePage) error {
	history, err := u.api.History(ctx, &adminpb.HistoryRequest{Domain: page.Domain, Rule: page.Name})
	if err != nil {
		return err
	}
	tab := &versionsTab{Versions: lives(history.GetEntries()), Events: history.GetEntries()}
	if n := len(tab.Events); n > mostEvents {
		tab.Events, tab.LeftOut = tab.Events[:mostEvents], n-mostEvents
	}
	page.Versions = tab
	if len(tab.Versions) == 0 {
		return nil
	}
	newest := tab.Versions[0].Number
	before := newest
	if len(tab.Versions) > 1 {
		before = tab.Versions[1].Number
	}
	if tab.B, err = r.version("b", newest); err != nil {
		return err
	}
	if tab.A, err = r.version("a", before); err != nil {
		return err
	}
	return tab.compare(page)
}

// version reads the number of a version from the query.
func (r *request) version(name string, otherwise int64) (int64, error) {
	text := r.Query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %s is %q; it is the number of a version, such as 2", rules.ErrInvalid, name, text)
	}
	return n, nil
}

// lives are the versions of a history, which comes with the newest first.
func lives(entries []*adminpb.HistoryEntry) []*versionLife {
	by := map[int64]*versionLife{}
	var all []*versionLife
	for _, e := range slices.Backward(entries) {
		at := e.GetTime().AsTime()
		stood := map[int64]string{}
		for _, v := range []*adminpb.Version{e.GetStable(), e.GetCandidate()} {
			if v == nil {
				continue
			}
			if by[v.GetNumber()] == nil {
				by[v.GetNumber()] = &versionLife{version: *versionOf(v), Made: e}
				all = append(all, by[v.GetNumber()])
			}
			stood[v.GetNumber()] = stageOf(e, v)
		}
		for _, life := range all {
			life.stand(stood[life.Number], at)
			life.Role = ""
			switch life.Number {
			case e.GetStable().GetNumber():
				life.Role = "stable"
			case e.GetCandidate().GetNumber():
				life.Role = "candidate"
			}
		}
	}
	slices.SortFunc(all, func(a, b *versionLife) int { return int(b.Number - a.Number) })
	return all
}

func stageOf(e *adminpb.HistoryEntry, v *adminpb.Version) string {
	switch {
	case v == e.GetStable():
		return "stable"
	case e.GetPercent() > 0:
		return keyShare(e.GetPercent())
	}
	return "shadow"
}

// stand takes down that the version is in a stage from then on; "" for none.
func (l *versionLife) stand(stage string, at time.Time) {
	last := len(l.Stages) - 1
	if last >= 0 && l.Stages[last].Until.IsZero() {
		if l.Stages[last].Stage == stage {
			return
		}
		l.Stages[last].Until = at
	}
	if stage != "" {
		l.Stages = append(l.Stages, stageSpan{Stage: stage, From: at})
	}
}

// compare makes the diff of the two versions that are picked.
func (t *versionsTab) compare(page *rulePage) error {
	var texts [2]string
	for i, number := range []int64{t.A, t.B} {
		at := slices.IndexFunc(t.Versions, func(l *versionLife) bool { return l.Number == number })
		if at < 0 {
			return fmt.Errorf("%w: %s/%s has no version %d", rules.ErrNotFound, page.Domain, page.Name, number)
		}
		texts[i] = ruleText(page.Domain, page.Name, &t.Versions[at].version)
	}
	var err error
	t.Diff, err = newTextDiff(fmt.Sprintf("v%d", t.A), fmt.Sprintf("v%d", t.B), texts[0], texts[1])
	return err
}

// ruleText is a version as a rule file, or as it is stored where this program does not know all that it says.
func ruleText(domain, name string, v *version) string {
	if v.Spec == nil {
		return v.Stored + "\n"
	}
	return string(rulefile.Format(rulefile.RuleSet{Domain: domain, Rules: []rulefile.Rule{{Name: name, Spec: *v.Spec}}}))
}
