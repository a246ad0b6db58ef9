package tallytest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// look calls see with each window that begins in a step of the query, and with when that begins.
func (m *Memory) look(q *tally.Query, step tally.Step, open bool, see func(w *tally.Window, start time.Time)) {
	windows := slices.Clone(m.windows)
	for _, o := range m.open {
		if open && m.shows(&o) && time.Since(o.End) <= tally.OpenFor {
			windows = append(windows, o.Window)
		}
	}
	for i := range windows {
		start := windows[i].Start.UTC().Truncate(time.Duration(step))
		if !start.Before(q.From) && start.Before(q.To) && m.kept(start, step) {
			see(&windows[i], start)
		}
	}
}

// lookAt calls see with the tallies of the query's rules.
func (m *Memory) lookAt(q *tally.Query, step tally.Step, open bool, see func(v *tally.VersionTally, start time.Time)) {
	m.look(q, step, open, func(w *tally.Window, start time.Time) {
		for i := range w.Versions {
			v := &w.Versions[i]
			if (q.Domain == "" || q.Domain == v.Domain) && (q.UIDs == nil || slices.Contains(q.UIDs, v.UID)) {
				see(v, start)
			}
		}
	})
}

// Series is part of tally.Store.
func (m *Memory) Series(ctx context.Context, q tally.Query) ([]tally.Point, error) {
	return call(ctx, m, func() (list []tally.Point) {
		m.lookAt(&q, q.Step, true, func(v *tally.VersionTally, start time.Time) {
			if v.Counts == (tally.Counts{}) {
				return
			}
			i := slices.IndexFunc(list, func(p tally.Point) bool { return p.UID == v.UID && p.Version == v.Version && p.Start.Equal(start) })
			if i < 0 {
				i, list = len(list), append(list, tally.Point{Domain: v.Domain, UID: v.UID, Version: v.Version, Start: start})
			}
			list[i].Counts.Add(&v.Counts)
		})
		slices.SortFunc(list, func(a, b tally.Point) int {
			return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version), a.Start.Compare(b.Start))
		})
		return list
	})
}

// DomainSeries is part of tally.Store.
func (m *Memory) DomainSeries(ctx context.Context, q tally.Query) ([]tally.DomainPoint, error) {
	return call(ctx, m, func() (list []tally.DomainPoint) {
		m.look(&q, q.Step, true, func(w *tally.Window, start time.Time) {
			for _, d := range w.Domains {
				if q.Domain != "" && q.Domain != d.Domain {
					continue
				}
				i := slices.IndexFunc(list, func(p tally.DomainPoint) bool { return p.Domain == d.Domain && p.Start.Equal(start) })
				if i < 0 {
					i, list = len(list), append(list, tally.DomainPoint{Domain: d.Domain, Start: start})
				}
				list[i].Counts.Add(&d.Counts)
			}
		})
		slices.SortFunc(list, func(a, b tally.DomainPoint) int {
			return cmp.Or(strings.Compare(a.Domain, b.Domain), a.Start.Compare(b.Start))
		})
		return list
	})
}

// Keys is part of tally.Store.
func (m *Memory) Keys(ctx context.Context, q tally.Query) ([]tally.VersionKeys, error) {
	return call(ctx, m, func() []tally.VersionKeys {
		list := []tally.VersionKeys{}
		m.lookAt(&q, tally.StepMinute, false, func(v *tally.VersionTally, _ time.Time) {
			if len(v.Keys) == 0 {
				return
			}
			i := slices.IndexFunc(list, func(k tally.VersionKeys) bool { return k.UID == v.UID && k.Version == v.Version })
			if i < 0 {
				i, list = len(list), append(list, tally.VersionKeys{Domain: v.Domain, UID: v.UID, Version: v.Version})
			}
			list[i].Keys.Merge(v.Keys)
			_ = list[i].Distinct.Merge(&v.Distinct) // fails only for another precision, and there is one
		})
		m.lookAt(&q, tally.StepMinute, false, func(v *tally.VersionTally, start time.Time) {
			if i := slices.IndexFunc(list, func(k tally.VersionKeys) bool { return k.UID == v.UID && k.Version == v.Version }); i >= 0 {
				list[i].See(v.Keys, stepOfKeys(&q, start))
			}
		})
		slices.SortFunc(list, func(a, b tally.VersionKeys) int {
			return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version))
		})
		return list
	})
}

// stepOfKeys is the beginning of the step in which a database keeps the keys of a minute: of the hours that a query has whole,
// it reads the hour.
func stepOfKeys(q *tally.Query, minute time.Time) time.Time {
	hour := minute.Truncate(time.Hour)
	if hour.Before(q.From) || hour.Add(time.Hour).After(q.To) {
		return minute
	}
	return hour
}

// Rates is part of tally.Store.
func (m *Memory) Rates(ctx context.Context, q tally.Query) ([]tally.VersionRates, error) {
	return call(ctx, m, func() []tally.VersionRates {
		list := []tally.VersionRates{}
		m.lookAt(&q, tally.StepMinute, false, func(v *tally.VersionTally, start time.Time) {
			if v.Rates.IsZero() || !m.pruned.IsZero() && start.Before(m.pruned.Add(-tally.KeepRates)) {
				return
			}
			i := slices.IndexFunc(list, func(r tally.VersionRates) bool {
				return r.UID == v.UID && r.Version == v.Version && r.Start.Equal(start)
			})
			if i < 0 {
				i, list = len(list), append(list, tally.VersionRates{Domain: v.Domain, UID: v.UID, Version: v.Version, Start: start})
			}
			list[i].Rates.Add(&v.Rates)
		})
		slices.SortFunc(list, func(a, b tally.VersionRates) int {
			return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version), a.Start.Compare(b.Start))
		})
		return list
	})
}

// Refusals is part of tally.Store.
func (m *Memory) Refusals(ctx context.Context, q tally.RefusalQuery) ([]tally.Refusal, error) {
	return call(ctx, m, func() (list []tally.Refusal) {
		for _, ring := range m.refusals {
			for _, r := range ring {
				if (q.Domain == "" || q.Domain == r.Domain) && (q.UID == "" || q.UID == r.UID) && (q.Key == tally.KeyID{} || q.Key == r.Key) &&
					(q.Reference == "" || q.Reference == r.Reference) && !r.Time.Before(q.From) && r.Time.Before(q.To) && m.kept(r.Time, tally.StepMinute) {
					list = append(list, r)
				}
			}
		}
		slices.SortFunc(list, func(a, b tally.Refusal) int {
			return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.UID, b.UID))
		})
		return list[:min(len(list), max(q.Limit, 0))]
	})
}

// Missing is part of tally.Store.
func (m *Memory) Missing(ctx context.Context, from, to time.Time) ([]tally.Missing, error) {
	return call(ctx, m, func() []tally.Missing {
		list := slices.Clone(m.gaps)
		for _, p := range m.sources {
			if next, ok := m.next(&p); ok && !p.Stopped {
				list = append(list, p.Left(next.Began))
			}
		}
		list = slices.DeleteFunc(list, func(g tally.Missing) bool { return g.To.Before(from) || !g.From.Before(to) })
		slices.SortFunc(list, func(a, b tally.Missing) int {
			return cmp.Or(b.From.Compare(a.From), strings.Compare(a.Node, b.Node), strings.Compare(a.Epoch, b.Epoch))
		})
		return list
	})
}

// next returns the source of the same node that began after p.
func (m *Memory) next(p *tally.Progress) (next tally.Progress, ok bool) {
	later := func(a, b *tally.Progress) bool {
		return cmp.Or(a.Began.Compare(b.Began), strings.Compare(a.Epoch, b.Epoch)) > 0
	}
	for _, other := range m.sources {
		if other.Node == p.Node && later(&other, p) && (!ok || later(&next, &other)) {
			next, ok = other, true
		}
	}
	return next, ok
}
