package ui

import (
	"cmp"
	"encoding/json"
	"html/template"
	"slices"
	"strings"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// ruleRow is a rule in the table of its domain.
type ruleRow struct {
	*adminpb.Rule
	specText

	Limit, Trying string // in words: in force, and of the candidate where that has another
	// What was counted of all its versions where they decided, and of the candidate where it only judged.
	Decided, Refused, Judged, Would int64
	Estimate                        bool // other rules refused as well
	Spark                           template.HTML
}

// specText is what a spec says to people.
type specText struct {
	Description string            `json:"description"`
	Owner       string            `json:"owner"`
	Labels      map[string]string `json:"labels"`
}

func newRuleRow(r *adminpb.Rule) ruleRow {
	row := ruleRow{Rule: r}
	newest := cmp.Or(r.GetCandidate(), r.GetStable())
	// A spec that a newer program wrote says nothing here.
	_ = json.Unmarshal([]byte(newest.GetSpec()), &row.specText)
	return row
}

// describe puts the limits into words: only of the rules that are shown, since it reads their whole specs.
func (row *ruleRow) describe() {
	stable, candidate := limitWords(row.GetStable()), limitWords(row.GetCandidate())
	row.Limit = cmp.Or(stable, candidate)
	if candidate != row.Limit {
		row.Trying = candidate
	}
}

// limitWords is the first sentence of what a version says; "" without one.
func limitWords(v *adminpb.Version) string {
	if v == nil {
		return ""
	}
	first, _, _ := strings.Cut(versionOf(v).Summary, ". ")
	return first
}

// Share and WouldShare are the refused of what was decided, and of what was judged; "" where nothing was.
func (row *ruleRow) Share() string { return shareWords(row.Refused, row.Decided) }

// WouldShare is how much of what it judged the candidate would refuse.
func (row *ruleRow) WouldShare() string { return shareWords(row.Would, row.Judged) }

func shareWords(n, of int64) string {
	if of == 0 {
		return ""
	}
	return tally.Percent(float64(n) / float64(of))
}

// countRows puts what was counted into rows.
func countRows(rows []ruleRow, stats *adminpb.StatsResponse) {
	by := make(map[string]*ruleRow, len(rows))
	steps := make(map[string][]outcomes, len(rows))
	from, step := stats.GetFrom().AsTime(), stats.GetStep().AsDuration()
	for i := range rows {
		row := &rows[i]
		row.Decided, row.Refused, row.Judged, row.Would, row.Estimate = 0, 0, 0, 0, false
		by[row.GetName()] = row
	}
	for _, v := range stats.GetVersions() {
		row := by[v.GetRule()]
		if row == nil {
			continue // filtered out, or born just now
		}
		row.add(v)
		if steps[v.GetRule()] == nil {
			steps[v.GetRule()] = make([]outcomes, int(stats.GetTo().AsTime().Sub(from)/step)+1)
		}
		for _, p := range v.GetPoints() {
			if i := int(p.GetStart().AsTime().Sub(from) / step); i >= 0 && i < len(steps[v.GetRule()]) {
				row.outcomes(&steps[v.GetRule()][i], v, p.GetFigures())
			}
		}
	}
	for name, of := range steps {
		for i := range of {
			of[i].Would = min(of[i].Would, of[i].Allowed)
		}
		by[name].Spark = spark(of)
	}
}

func (row *ruleRow) add(v *adminpb.VersionStats) {
	t := v.GetTotal()
	row.Decided += t.GetDecided()
	row.Refused += refusals(t)
	if v.GetVersion() == row.GetCandidate().GetNumber() {
		row.Judged, row.Would, row.Estimate = t.GetJudged(), t.GetWouldRefuse(), t.GetJudgedShared() > 0
	}
}

// outcomes adds what became of requests in a step. What no version decides passes.
func (row *ruleRow) outcomes(o *outcomes, v *adminpb.VersionStats, f *adminpb.VersionFigures) {
	o.Refused += refusals(f)
	o.Allowed += f.GetDecided() - refusals(f)
	if v.GetVersion() != row.GetCandidate().GetNumber() {
		return
	}
	o.Would += f.GetWouldRefuse()
	if row.GetStable() == nil {
		o.Allowed += f.GetJudged()
	}
}

// refusals are all refusals of a version, whether by its limits or because the store was away.
func refusals(f *adminpb.VersionFigures) int64 {
	return f.GetRefused() + f.GetFailedClosed() + f.GetLocalRefused()
}

// What the table can be sorted by.
const (
	sortName    = "name"
	sortRefused = "refused"
	sortWould   = "would"
)

var sorts = []string{sortName, sortRefused, sortWould}

// ruleFilter is what is shown of the rules, and in which order.
type ruleFilter struct {
	Text, Stage, Owner, Label, Sort string
}

var stages = []string{"all", "shadow", "partial", "stable", "frozen"}

// Stages are what can be chosen.
func (*ruleFilter) Stages() []string { return stages }

func newRuleFilter(r *request) (f ruleFilter, err error) {
	f = ruleFilter{Text: strings.TrimSpace(r.Query.Get("q")), Owner: r.Query.Get("owner"), Label: strings.TrimSpace(r.Query.Get("label"))}
	if f.Stage, err = r.choice("stage", stages...); err != nil {
		return f, err
	}
	f.Sort, err = r.choice("sort", sorts...)
	return f, err
}

func (f *ruleFilter) takes(row *ruleRow) bool {
	switch f.Stage {
	case stages[0]:
	case "frozen":
		if row.GetFrozenUntil() == nil {
			return false
		}
	default:
		if row.GetStage() != f.Stage {
			return false
		}
	}
	return (f.Owner == "" || f.Owner == row.Owner) && f.labelled(row) && f.mentioned(row)
}

// labelled takes "name", "name=value" and what stands between.
func (f *ruleFilter) labelled(row *ruleRow) bool {
	name, value, both := strings.Cut(f.Label, "=")
	has, there := row.Labels[strings.TrimSpace(name)]
	return f.Label == "" || there && (!both || has == strings.TrimSpace(value))
}

func (f *ruleFilter) mentioned(row *ruleRow) bool {
	text := strings.ToLower(f.Text)
	return strings.Contains(row.GetName(), text) || strings.Contains(strings.ToLower(row.Description), text)
}

func (f *ruleFilter) sort(rows []ruleRow) {
	slices.SortStableFunc(rows, func(a, b ruleRow) int {
		most := 0
		switch f.Sort {
		case sortRefused:
			most = cmp.Compare(b.Refused, a.Refused)
		case sortWould:
			most = cmp.Compare(b.Would, a.Would)
		}
		return cmp.Or(most, strings.Compare(a.GetName(), b.GetName()))
	})
}
