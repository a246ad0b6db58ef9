package ui

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/web/api/adminpb"
)

// shadowTab is what the candidate would do, where it only judges, against what the rule does as it stands.
type shadowTab struct {
	Version int64 // the candidate
	Stable  bool  // there is a version beside it
	Stats   *adminpb.VersionStats
	Matrix  matrix
	Numbers *numbers
	Plot    plot
	Missing []*adminpb.MissingCounts
}

// matrix tells the requests that the candidate judged apart, by what became of them and by what it said.
type matrix struct{ BothAllow, Newly, NoLonger, BothRefuse int64 }

func newMatrix(f *adminpb.VersionFigures) matrix {
	m := matrix{Newly: f.GetNewlyRefused(), NoLonger: f.GetNoLongerRefused()}
	m.BothRefuse = f.GetWouldRefuse() - m.Newly
	m.BothAllow = f.GetCompared() - f.GetWouldRefuse() - m.NoLonger
	return m
}

func (u *UI) shadowTab(ctx context.Context, _ *request, page *rulePage) error {
	stats, marks, err := u.counted(ctx, page)
	if err != nil {
		return err
	}
	page.Shadow = newShadow(stats, marks)
	return nil
}

// newShadow has no figures where nothing was counted of a candidate.
func newShadow(stats *adminpb.StatsResponse, marks []mark) *shadowTab {
	tab := &shadowTab{Missing: stats.GetMissing()}
	var stable *adminpb.VersionStats
	for _, v := range stats.GetVersions() {
		switch v.GetRole() {
		case "candidate":
			tab.Stats, tab.Version = v, v.GetVersion()
		case "stable":
			stable = v
		}
	}
	if tab.Stats == nil {
		return tab
	}
	tab.Stable = stable != nil
	tab.Matrix = newMatrix(tab.Stats.GetTotal())
	would := fmt.Sprintf("candidate v%d would refuse", tab.Version)
	columns := []column{{would, "would"}, {"newly refused", "would"}, {"no longer refused", "allowed"}}
	if stable != nil {
		columns = append(columns, column{fmt.Sprintf("stable v%d refused", stable.GetVersion()), "refused"})
	}
	n := newNumbers("shadow", stats.GetFrom().AsTime(), stats.GetTo().AsTime(), stats.GetStep().AsDuration(), columns...)
	n.Marks = marks
	for _, p := range tab.Stats.GetPoints() {
		if values := n.at(p.GetStart().AsTime()); values != nil {
			f := p.GetFigures()
			values[0], values[1], values[2] = f.GetWouldRefuse(), f.GetNewlyRefused(), f.GetNoLongerRefused()
		}
	}
	shown := []int{0}
	if stable != nil {
		for _, p := range stable.GetPoints() {
			if values := n.at(p.GetStart().AsTime()); values != nil {
				values[3] = refusedOf(p.GetFigures())
			}
		}
		shown = []int{3, 0}
	}
	tab.Numbers = n
	tab.Plot = plot{ID: "chart-shadow", Title: "Refusals in each " + n.Each(), Of: n, Columns: shown, Lines: true}
	return tab
}
