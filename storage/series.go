package storage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// Steps returns from when until before when steps begin that a query asks for.
func Steps(q *tally.Query) (from, to time.Time) {
	return stepsFrom(q.From, q.Step), stepsFrom(q.To, q.Step)
}

// stepsFrom is when the first step begins that does not begin before t.
func stepsFrom(t time.Time, step tally.Step) time.Time {
	start := StepOf(t, step)
	if start.Before(t) {
		start = start.Add(time.Duration(step))
	}
	return start
}

// OpenRow is an open window as a row holds it.
type OpenRow struct {
	Start  time.Time
	Totals []byte
}

// Points lays out what a query found, and adds open windows. What a newer program wrote is left out, and told.
func Points(points []tally.Point, open []OpenRow, q *tally.Query, skipped func(error)) []tally.Point {
	wanted := make(map[string]bool, len(q.UIDs))
	for _, uid := range q.UIDs {
		wanted[uid] = true
	}
	for _, o := range open {
		versions, _, err := tally.DecodeTotals(o.Totals)
		if err != nil {
			skipped(err)
			continue
		}
		for i := range versions {
			if v := &versions[i]; (q.Domain == "" || v.Domain == q.Domain) && (q.UIDs == nil || wanted[v.UID]) {
				points = append(points, tally.Point{Domain: v.Domain, UID: v.UID, Version: v.Version, Start: StepOf(o.Start, q.Step), Counts: v.Counts})
			}
		}
	}
	return fold(points, func(a, b *tally.Point) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version), a.Start.Compare(b.Start))
	}, func(into, p *tally.Point) { into.Counts.Add(&p.Counts) })
}

// DomainPoints does the same for domains.
func DomainPoints(points []tally.DomainPoint, open []OpenRow, q *tally.Query, skipped func(error)) []tally.DomainPoint {
	for _, o := range open {
		_, domains, err := tally.DecodeTotals(o.Totals)
		if err != nil {
			skipped(err)
			continue
		}
		for i := range domains {
			if d := &domains[i]; q.Domain == "" || d.Domain == q.Domain {
				points = append(points, tally.DomainPoint{Domain: d.Domain, Start: StepOf(o.Start, q.Step), Counts: d.Counts})
			}
		}
	}
	return fold(points, func(a, b *tally.DomainPoint) int {
		return cmp.Or(strings.Compare(a.Domain, b.Domain), a.Start.Compare(b.Start))
	}, func(into, p *tally.DomainPoint) { into.Counts.Add(&p.Counts) })
}

// fold sorts points and adds up those of the same place. Here rather than in the database, where the wide rows of a
// thousand rules are sorted on disk.
func fold[P any](points []P, compare func(a, b *P) int, add func(into, p *P)) []P {
	order := make([]*P, len(points))
	for i := range points {
		order[i] = &points[i]
	}
	slices.SortFunc(order, compare)
	folded := make([]P, 0, len(points))
	for _, p := range order {
		if last := len(folded) - 1; last >= 0 && compare(&folded[last], p) == 0 {
			add(&folded[last], p)
		} else {
			folded = append(folded, *p)
		}
	}
	return folded
}

// KeyPart is a time of a query, and in which steps its keys are read.
type KeyPart struct {
	Step     tally.Step
	From, To time.Time
}

// KeyParts returns the whole hours of a query, and the minutes around them: so a day is a few dozen rows of some kilobytes
// each, rather than 1,440.
func KeyParts(q *tally.Query) []KeyPart {
	from, to := stepsFrom(q.From, tally.StepMinute), stepsFrom(q.To, tally.StepMinute)
	first, last := stepsFrom(from, tally.StepHour), StepOf(to, tally.StepHour)
	if !first.Before(last) {
		return []KeyPart{{tally.StepMinute, from, to}}
	}
	return []KeyPart{{tally.StepMinute, from, first}, {tally.StepHour, first, last}, {tally.StepMinute, last, to}}
}

// KeysRead is a row of keys as it is read.
type KeysRead struct {
	UID          string
	Version      int64
	Start        time.Time
	Keys, Sketch []byte
}

// KeySums adds up the keys of each rule version. The zero value is ready.
type KeySums struct{ all map[StepID]*keySum }

type keySum struct {
	KeysRow

	starts []time.Time // of the lists
	domain string
}

// Add adds a row of a rule whose domain is known. The error says that it is unreadable, and leaves it out.
func (s *KeySums) Add(row *KeysRead, domains map[string]string) error {
	domain, there := domains[row.UID]
	if !there {
		return nil
	}
	keys, distinct, err := parseKeys(row.Keys, row.Sketch)
	if err != nil {
		return err
	}
	if s.all == nil {
		s.all = map[StepID]*keySum{}
	}
	sum := at(s.all, StepID{UID: row.UID, Version: row.Version})
	sum.domain = domain
	sum.add(keys, &distinct)
	sum.starts = append(sum.starts, row.Start)
	return nil
}

// List returns the sums in the order of rules and versions.
func (s *KeySums) List() []tally.VersionKeys {
	list := make([]tally.VersionKeys, 0, len(s.all))
	for id, sum := range s.all {
		v := tally.VersionKeys{Domain: sum.domain, UID: id.UID, Version: id.Version, Distinct: sum.distinct}
		v.Keys.Merge(tally.MergeKeys(sum.lists...))
		for i, keys := range sum.lists {
			v.See(keys, sum.starts[i])
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b tally.VersionKeys) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version))
	})
	return list
}
