package ui

import (
	"context"
	"html/template"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	// alertBefore is how long before an alert fired its chart begins, and alertAfter how long after it the chart ends.
	alertBefore = 30 * time.Minute
	alertAfter  = 2 * time.Hour
	// alertCharts is how many of the alerts that fire have a chart: the last ones.
	alertCharts = 5
)

// alertChart is what the version of an alert did around the time when it fired.
type alertChart struct {
	From, To time.Time
	Spark    template.HTML
	Numbers  string // where they are
}

// chart reads what the version did. A version that met nothing has no chart.
func (u *UI) chart(ctx context.Context, f *firing) error {
	from := f.GetSince().AsTime().Add(-alertBefore)
	to := time.Now()
	if end := from.Add(alertBefore + alertAfter); end.Before(to) {
		to = end
	}
	resp, err := u.api.Stats(ctx, &adminpb.StatsRequest{
		Domain: f.GetDomain(), Rule: f.GetRule(), From: timestamppb.New(from), To: timestamppb.New(to),
	})
	if err != nil {
		return err
	}
	begun, step := resp.GetFrom().AsTime(), resp.GetStep().AsDuration()
	for _, v := range resp.GetVersions() {
		if v.GetVersion() != f.GetVersion() || step <= 0 {
			continue
		}
		steps := make([]outcomes, int(resp.GetTo().AsTime().Sub(begun)/step)) // without the last one, which has only begun
		for _, p := range v.GetPoints() {
			if i := int(p.GetStart().AsTime().Sub(begun) / step); i < len(steps) {
				steps[i] = f.outcomes(p.GetFigures())
			}
		}
		query := url.Values{"tab": {"traffic"}, "from": {from.UTC().Format(time.RFC3339)}, "to": {to.UTC().Format(time.RFC3339)}}
		f.Chart = &alertChart{From: begun, To: resp.GetTo().AsTime(), Spark: spark(steps), Numbers: f.Path() + "?" + query.Encode()}
	}
	return nil
}

// outcomes are those that the alert is about: what the version decided, or what it judged.
func (f *firing) outcomes(of *adminpb.VersionFigures) outcomes {
	if f.GetKind() == "would_refuse" {
		return outcomes{Allowed: of.GetJudged(), Would: of.GetWouldRefuse()}
	}
	return outcomes{Allowed: of.GetDecided() - refusals(of), Refused: refusals(of)}
}

// charts reads those of the last alerts that fire.
func (u *UI) charts(ctx context.Context, list []*firing) error {
	group, running := errgroup.WithContext(ctx)
	for _, f := range list[:min(len(list), alertCharts)] {
		if !f.Gone {
			group.Go(func() error { return u.chart(running, f) })
		}
	}
	return group.Wait()
}
