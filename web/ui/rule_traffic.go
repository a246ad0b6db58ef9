package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	// mostRows bounds a chart's table, which is sent anew about once a second while somebody looks at it: about 30 KB.
	mostRows = 120
	// mostVersions is how many versions have a chart of their own: the newest.
	mostVersions = 3
	leastStep    = 10 * time.Second // as counts are kept
)

// trafficTab is what became of the requests that a rule met.
type trafficTab struct {
	Numbers  *numbers
	Plot     plot
	ByPlot   []plot // one for each version, where there are several
	Versions []*adminpb.VersionStats
	Missing  []*adminpb.MissingCounts
}

// The first columns of the table; those of versions follow, three for each.
const (
	colRefused = iota
	colWould
	colOther
	colAllowed
	colVersions
)

func (u *UI) trafficTab(ctx context.Context, _ *request, page *rulePage) error {
	stats, marks, err := u.counted(ctx, page)
	if err != nil {
		return err
	}
	page.Traffic = newTraffic(stats, marks)
	return nil
}

// counted reads what was counted of the rule in the time that is looked at, and what was done to it.
func (u *UI) counted(ctx context.Context, page *rulePage) (stats *adminpb.StatsResponse, marks []mark, err error) {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		stats, err = u.ruleStats(running, page)
		return err
	})
	group.Go(func() (err error) {
		marks, err = u.marks(running, page)
		return err
	})
	err = group.Wait()
	return stats, marks, err
}

func (u *UI) ruleStats(ctx context.Context, page *rulePage) (*adminpb.StatsResponse, error) {
	s := page.Span
	step := max(leastStep, (s.To.Sub(s.From) / mostRows).Round(time.Second))
	req := &adminpb.StatsRequest{Domain: page.Domain, Rule: page.Name, From: timestamppb.New(s.From), Step: durationpb.New(step)}
	if s.Range == "" {
		req.To = timestamppb.New(s.To)
	}
	return u.api.Stats(ctx, req)
}

// marks are what was done to the rule in the time that is looked at, by time.
func (u *UI) marks(ctx context.Context, page *rulePage) ([]mark, error) {
	history, err := u.api.History(ctx, &adminpb.HistoryRequest{Domain: page.Domain, Rule: page.Name})
	if err != nil {
		return nil, err
	}
	var list []mark
	for _, e := range slices.Backward(history.GetEntries()) {
		if at := e.GetTime().AsTime(); !at.Before(page.Span.From) && !at.After(page.Span.To) {
			list = append(list, mark{At: at, Text: fmt.Sprintf("%s by %s: %s", e.GetAction(), e.GetActor(), e.GetState())})
		}
	}
	return list, nil
}

func newTraffic(stats *adminpb.StatsResponse, marks []mark) *trafficTab {
	from, to := stats.GetFrom().AsTime(), stats.GetTo().AsTime()
	t := &trafficTab{Versions: slices.Clone(stats.GetVersions()), Missing: stats.GetMissing()}
	slices.SortFunc(t.Versions, func(a, b *adminpb.VersionStats) int { return cmp.Compare(b.GetVersion(), a.GetVersion()) })
	charted := t.Versions[:min(len(t.Versions), mostVersions)]
	if len(t.Versions) == 1 {
		charted = nil // it would be the same once more
	}
	columns := []column{{"refused", "refused"}, {"would refuse", "would"}, {"refused by other rules", "other"}, {"allowed", "allowed"}}
	for _, v := range charted {
		columns = append(columns, versionColumns(v.GetVersion())...)
	}
	t.Numbers = newNumbers("traffic", from, to, stats.GetStep().AsDuration(), columns...)
	t.Numbers.Marks = marks
	t.fill(charted)
	shown := []int{colRefused, colWould, colOther, colAllowed}
	if !t.Numbers.used(colOther) {
		shown = slices.Delete(shown, colOther, colOther+1)
	}
	t.Plot = plot{ID: "chart-traffic", Title: "Requests in each " + t.Numbers.Each(), Of: t.Numbers, Columns: shown}
	for i, v := range charted {
		at := colVersions + 3*i
		t.ByPlot = append(t.ByPlot, plot{
			ID: fmt.Sprintf("chart-v%d", v.GetVersion()), Title: fmt.Sprintf("v%d, %s", v.GetVersion(), v.GetRole()), Prefix: fmt.Sprintf("v%d ", v.GetVersion()),
			Of: t.Numbers, Columns: []int{at, at + 1, at + 2},
		})
	}
	return t
}

func versionColumns(number int64) []column {
	v := fmt.Sprintf("v%d ", number)
	return []column{{v + "refused", "refused"}, {v + "would refuse", "would"}, {v + "allowed or would allow", "allowed"}}
}

// fill counts each request once. Most have one version that decides, whose outcome is the request's; of what is allowed, a
// candidate may have refused some. Where no version decides, everything passes.
func (t *trafficTab) fill(charted []*adminpb.VersionStats) {
	matched := make(map[*int64]int64, len(t.Numbers.Rows)) // of the version that met most, by step
	for _, v := range t.Versions {
		for _, p := range v.GetPoints() {
			values, f := t.Numbers.at(p.GetStart().AsTime()), p.GetFigures()
			if values == nil {
				continue
			}
			values[colRefused] += refusedOf(f)
			values[colOther] += f.GetRefusedByOther()
			values[colAllowed] += allowedOf(f)
			values[colWould] += f.GetNewlyRefused()
			matched[&values[0]] = max(matched[&values[0]], f.GetMatched())
			if i := slices.Index(charted, v); i >= 0 {
				own := values[colVersions+3*i:]
				own[0], own[1] = refusedOf(f), f.GetWouldRefuse()
				own[2] = f.GetDecided() - own[0] + f.GetJudged() - own[1]
			}
		}
	}
	for _, r := range t.Numbers.Rows {
		v := r.Values
		v[colAllowed] += max(0, matched[&v[0]]-v[colRefused]-v[colOther]-v[colAllowed])
		v[colWould] = min(v[colWould], v[colAllowed])
		v[colAllowed] -= v[colWould]
	}
}

// refusedOf are the requests that a version refused, for whatever reason of its own.
func refusedOf(f *adminpb.VersionFigures) int64 {
	return f.GetRefused() + f.GetLocalRefused() + f.GetFailedClosed()
}

func allowedOf(f *adminpb.VersionFigures) int64 {
	return f.GetAllowed() + f.GetLocalAllowed() + f.GetFailedOpen()
}

// Sum are the totals, each request once.
func (t *trafficTab) Sum() outcomes {
	n := t.Numbers
	return outcomes{Allowed: n.Total(colAllowed) + n.Total(colWould), Would: n.Total(colWould), Refused: n.Total(colRefused)}
}

// Other are the requests that other rules refused.
func (t *trafficTab) Other() int64 { return t.Numbers.Total(colOther) }

// Counted reports that a request was met.
func (t *trafficTab) Counted() bool { return len(t.Versions) > 0 }
