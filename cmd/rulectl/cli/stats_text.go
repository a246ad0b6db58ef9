package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// refusals is how often a version itself refused, for whatever reason.
func refusals(f *adminpb.VersionFigures) int64 {
	return f.GetRefused() + f.GetFailedClosed() + f.GetLocalRefused()
}

// affected is how often it refused, or would have.
func affected(f *adminpb.VersionFigures) int64 { return refusals(f) + f.GetWouldRefuse() }

// ruleStatsText are the figures of a rule as people read them.
func (a *app) ruleStatsText(rule string, r *adminpb.StatsResponse, byVersion bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Rule:   %s\nTime:   %s, in steps of %s\n", oneLine(rule), localSpan(r.GetFrom().AsTime(), r.GetTo().AsTime()), stepText(r))
	if len(r.GetVersions()) > 0 {
		b.WriteString("\n" + versionsTable(r.GetVersions()) + "\n" + a.overTime(r, byVersion))
	}
	if text := missingText(r.GetMissing()); text != "" {
		b.WriteString("\n" + text)
	}
	return b.String()
}

func stepText(r *adminpb.StatsResponse) string {
	step := r.GetStep().AsDuration()
	if days := step / (24 * time.Hour); days > 0 {
		return fmt.Sprintf("%dd", days)
	}
	return age(step)
}

// versionsTable has the sums of each version, and below them what they mean.
func versionsTable(list []*adminpb.VersionStats) string {
	t := table{header: []string{"VERSION", "STAGE", "DECISIONS", "ALLOWED", "REFUSED", "JUDGED", "WOULD REFUSE"}, right: []string{"DECISIONS", "ALLOWED", "REFUSED", "JUDGED", "WOULD REFUSE"}}
	rows := make([][]string, len(list))
	for i, v := range list {
		f := v.GetTotal()
		rows[i] = []string{
			fmt.Sprintf("v%d", v.GetVersion()), v.GetRole(), tally.Thousands(f.GetDecided()), tally.Thousands(f.GetAllowed()), tally.Thousands(refusals(f)),
			tally.Thousands(f.GetJudged()), tally.Thousands(f.GetWouldRefuse()),
		}
	}
	return t.render(rows, func(row int) []string { return versionNotes(list[row]) })
}

// versionNotes say what the sums of a version mean, and what is behind them.
func versionNotes(v *adminpb.VersionStats) (notes []string) {
	f := v.GetTotal()
	if v.GetRefused() != nil {
		notes = append(notes, "refused "+intervalText(v.GetRefused())+limitsText(v.GetLimits())+reasonsText(f))
	}
	if v.GetWouldRefuse() != nil {
		notes = append(notes, "would refuse "+intervalText(v.GetWouldRefuse()))
		if f.GetJudgedShared() > 0 {
			notes = append(notes, estimateText(f))
		}
	}
	if v.GetDifference() != nil {
		notes = append(notes, fmt.Sprintf("newly refused %s, no longer refused %s: %s", tally.Thousands(f.GetNewlyRefused()), tally.Thousands(f.GetNoLongerRefused()), intervalText(v.GetDifference())))
	}
	if f.GetUnknown() > 0 {
		notes = append(notes, fmt.Sprintf("⚠ unknown: %s, since the store did not answer", tally.Thousands(f.GetUnknown())))
	}
	return notes
}

// limitsText says which limits refused, where a rule has several or none did.
func limitsText(list []*adminpb.LimitRefusals) string {
	var parts []string
	for _, l := range list {
		switch {
		case l.GetNumber() == 0:
			parts = append(parts, tally.Thousands(l.GetRefused())+" for a value of the key that was missing or given twice")
		case l.GetName() != "":
			parts = append(parts, oneLine(l.GetName())+" "+tally.Thousands(l.GetRefused()))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// reasonsText has what was decided in another way than by a limit of the version.
func reasonsText(f *adminpb.VersionFigures) string {
	text := ""
	for _, reason := range []struct {
		n    int64
		what string
	}{
		{f.GetRefusedByOther(), "refused by other rules"},
		{f.GetFailedOpen(), "allowed without the store"},
		{f.GetFailedClosed(), "refused without the store"},
		{f.GetLocalAllowed(), "allowed by the local count"},
		{f.GetLocalRefused(), "refused by the local count"},
	} {
		if reason.n > 0 {
			text += fmt.Sprintf("; %s %s", tally.Thousands(reason.n), reason.what)
		}
	}
	return text
}

// estimateText labels would-be refusals that are not known one for one.
func estimateText(f interface {
	GetJudgedShared() int64
	GetWouldRefuse() int64
	GetWouldRefuseShared() int64
},
) string {
	return fmt.Sprintf("estimate: other rules refused %s of what it judged, and %s of the %s that it would refuse",
		tally.Thousands(f.GetJudgedShared()), tally.Thousands(f.GetWouldRefuseShared()), tally.Thousands(f.GetWouldRefuse()))
}

// timeColumn is how the begin of a step is written.
func timeColumn(r *adminpb.StatsResponse) string {
	switch {
	case r.GetTo().AsTime().Sub(r.GetFrom().AsTime()) > 24*time.Hour:
		return "2006-01-02 15:04"
	case r.GetStep().AsDuration() < time.Minute:
		return time.TimeOnly
	}
	return "15:04"
}

// overTime is the table of the steps, from the first with a request.
func (a *app) overTime(r *adminpb.StatsResponse, byVersion bool) string {
	starts, at := steps(r)
	header := []string{"TIME", "DECISIONS", "REFUSED", "JUDGED", "WOULD REFUSE"}
	if byVersion {
		header = []string{"TIME", "VERSION", "DECISIONS", "REFUSED", "JUDGED", "WOULD REFUSE", "NEWLY", "NO LONGER"}
	}
	var rows [][]string
	var curve []int64
	for _, start := range starts {
		var sum adminpb.VersionFigures
		clock := start.Local().Format(timeColumn(r))
		for _, v := range r.GetVersions() {
			f := at[v][start.Unix()]
			sum.Decided += f.GetDecided()
			sum.Refused += refusals(f)
			sum.Judged += f.GetJudged()
			sum.WouldRefuse += f.GetWouldRefuse()
			if byVersion {
				rows = append(rows, []string{
					clock, fmt.Sprintf("v%d", v.GetVersion()), tally.Thousands(f.GetDecided()), tally.Thousands(refusals(f)), tally.Thousands(f.GetJudged()), tally.Thousands(f.GetWouldRefuse()),
					tally.Thousands(f.GetNewlyRefused()), tally.Thousands(f.GetNoLongerRefused()),
				})
			}
		}
		if !byVersion {
			rows = append(rows, []string{clock, tally.Thousands(sum.GetDecided()), tally.Thousands(sum.GetRefused()), tally.Thousands(sum.GetJudged()), tally.Thousands(sum.GetWouldRefuse())})
		}
		curve = append(curve, affected(&sum))
	}
	first, rest, _ := strings.Cut(renderTable(header, rows, header[1:]...), "\n")
	return first + between + a.sparkline(curve) + "\n" + rest
}

// steps are the begins of the steps from the first with a request on, and the figures of each version by them.
func steps(r *adminpb.StatsResponse) (starts []time.Time, at map[*adminpb.VersionStats]map[int64]*adminpb.VersionFigures) {
	at = map[*adminpb.VersionStats]map[int64]*adminpb.VersionFigures{}
	first := r.GetTo().AsTime()
	for _, v := range r.GetVersions() {
		at[v] = map[int64]*adminpb.VersionFigures{}
		for _, p := range v.GetPoints() {
			start := p.GetStart().AsTime()
			at[v][start.Unix()] = p.GetFigures()
			if start.Before(first) {
				first = start
			}
		}
	}
	return stepsFrom(r, first), at
}

// stepsFrom are the begins of the steps from a time on.
func stepsFrom(r *adminpb.StatsResponse, first time.Time) (starts []time.Time) {
	const most = 1000 // more than a control plane sends
	step := max(r.GetStep().AsDuration(), time.Second)
	for start := first; start.Before(r.GetTo().AsTime()) && len(starts) < most; start = start.Add(step) {
		starts = append(starts, start)
	}
	return starts
}

// domainStatsText are the figures of a domain as people read them.
func (a *app) domainStatsText(domain string, r *adminpb.StatsResponse) string {
	var b strings.Builder
	q := r.GetRequests().GetTotal()
	fmt.Fprintf(&b, "Domain:     %s\nTime:       %s, in steps of %s\n", oneLine(domain), localSpan(r.GetFrom().AsTime(), r.GetTo().AsTime()), stepText(r))
	fmt.Fprintf(&b, "Requests:   %s allowed, %s refused, %s exempt, %s unmatched, %s malformed\n", tally.Thousands(q.GetAllowed()), tally.Thousands(q.GetRefused()),
		tally.Thousands(q.GetExempt()), tally.Thousands(q.GetUnmatched()), tally.Thousands(q.GetMalformed()))
	if len(r.GetVersions()) > 0 {
		b.WriteString("\n" + a.domainTable(r))
	}
	if r.GetLeftOut() > 0 {
		fmt.Fprintf(&b, "… %s that refused least left out; see: rulectl stats DOMAIN/RULE\n", count(int(r.GetLeftOut()), "version"))
	}
	if text := missingText(r.GetMissing()); text != "" {
		b.WriteString("\n" + text)
	}
	return b.String()
}

// domainTable has a line for each version, those that refuse most first.
func (a *app) domainTable(r *adminpb.StatsResponse) string {
	list := slices.SortedStableFunc(slices.Values(r.GetVersions()), func(a, b *adminpb.VersionStats) int {
		return cmp.Compare(affected(b.GetTotal()), affected(a.GetTotal()))
	})
	t := table{header: []string{"RULE", "VERSION", "STAGE", "DECISIONS", "REFUSED", "WOULD REFUSE", "TREND"}, right: []string{"DECISIONS", "REFUSED", "WOULD REFUSE"}}
	starts := stepsFrom(r, r.GetFrom().AsTime())
	rows := make([][]string, len(list))
	for i, v := range list {
		f, curve := v.GetTotal(), make([]int64, len(starts))
		for _, p := range v.GetPoints() {
			if at := slices.IndexFunc(starts, func(s time.Time) bool { return s.Equal(p.GetStart().AsTime()) }); at >= 0 {
				curve[at] = affected(p.GetFigures())
			}
		}
		rows[i] = []string{
			v.GetRule(), fmt.Sprintf("v%d", v.GetVersion()), v.GetRole(), tally.Thousands(f.GetDecided()), shareOf(refusals(f), f.GetDecided()),
			shareOf(f.GetWouldRefuse(), f.GetJudged()), a.sparkline(curve),
		}
	}
	return t.render(rows, func(row int) []string {
		if f := list[row].GetTotal(); f.GetJudgedShared() > 0 {
			return []string{estimateText(f)}
		}
		return nil
	})
}

// shareOf is "6,499 (0.8%)".
func shareOf(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", tally.Thousands(part), tally.Percent(float64(part)/float64(whole)))
}
