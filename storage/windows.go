package storage

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// Columns are those of a table that hold counts, one for each cell, in their order.
type Columns []string

// TallyColumns returns the columns of the cells of a rule version.
func TallyColumns() Columns {
	list := make(Columns, tally.Cells)
	for i := range list {
		list[i] = tally.Cell(i).String()
	}
	return list
}

// DomainColumns returns the columns of the cells of a domain.
func DomainColumns() Columns {
	list := make(Columns, tally.DomainCells)
	for i := range list {
		list[i] = tally.DomainCell(i).String()
	}
	return list
}

// SQL returns a list with the text for each column, where {c} is its name and {n} its number, the first one's as given.
func (c Columns) SQL(text string, first int) string {
	list := make([]string, len(c))
	for i, name := range c {
		list[i] = strings.NewReplacer("{c}", name, "{n}", strconv.Itoa(first+i)).Replace(text)
	}
	return strings.Join(list, ", ")
}

// StepID names the row of a rule version in a step.
type StepID struct {
	UID     string
	Step    tally.Step
	Start   time.Time
	Version int64
}

func compareSteps(a, b StepID) int {
	return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Step, b.Step), a.Start.Compare(b.Start), cmp.Compare(a.Version, b.Version))
}

// Seconds is the step as a row holds it.
func Seconds(s tally.Step) int64 { return int64(time.Duration(s) / time.Second) }

// StepRow is what is added to such a row.
type StepRow struct {
	StepID
	Counts tally.Counts
}

// DomainStepRow is what is added to the row of a domain in a step.
type DomainStepRow struct {
	Domain string
	Step   tally.Step
	Start  time.Time
	Counts tally.DomainCounts
}

// KeysRow is what is added to the keys of a rule version in a minute or an hour.
type KeysRow struct {
	StepID
	lists    [][]tally.KeyCount
	distinct tally.Distinct
}

// Merge adds what the row holds so far.
func (r *KeysRow) Merge(keys, sketch []byte) error {
	more, distinct, err := parseKeys(keys, sketch)
	if err != nil {
		return err
	}
	r.add(more, &distinct)
	return nil
}

func (r *KeysRow) add(keys []tally.KeyCount, distinct *tally.Distinct) {
	r.lists = append(r.lists, keys)
	_ = r.distinct.Merge(distinct) // fails only for another precision, and there is one
}

// Encode returns what the row holds then.
func (r *KeysRow) Encode() (keys, sketch []byte) {
	return tally.EncodeKeys(tally.MergeKeys(r.lists...)), append([]byte{}, r.distinct.Bytes()...) // none is not NULL
}

func parseKeys(keys, sketch []byte) ([]tally.KeyCount, tally.Distinct, error) {
	list, err := tally.DecodeKeys(keys)
	if err != nil {
		return nil, tally.Distinct{}, unreadable("keys", err)
	}
	distinct, err := tally.ParseDistinct(sketch)
	if err != nil {
		return nil, tally.Distinct{}, unreadable("the number of keys", err)
	}
	return list, distinct, nil
}

// Ring is what is added to the ring of a rule's refusals.
type Ring struct {
	UID      string
	Refusals []tally.Refusal
}

// Slot is where in the ring the refusal stands, when next is how many there have been with all of these.
func (r *Ring) Slot(i int, next int64) int64 {
	return (next - int64(len(r.Refusals)-i)) % tally.MaxRefusals
}

// BySource returns a copy of a batch with each source once and its windows by number, with texts as both databases can
// hold them. The order of the sources is fixed: replicas wait for each other's row locks instead of deadlocking.
func BySource(batch []tally.SourceWindows) []tally.SourceWindows {
	all := map[tally.Source][]tally.Window{}
	for _, s := range batch {
		source := tally.Source{Node: Text(s.Node), Epoch: Text(s.Epoch)}
		for i := range s.Windows {
			if s.Windows[i].Number > 0 {
				all[source] = append(all[source], s.Windows[i])
			}
		}
	}
	list := make([]tally.SourceWindows, 0, len(all))
	for source, windows := range all {
		slices.SortStableFunc(windows, func(a, b tally.Window) int { return cmp.Compare(a.Number, b.Number) })
		list = append(list, tally.SourceWindows{Source: source, Windows: windows})
	}
	slices.SortFunc(list, func(a, b tally.SourceWindows) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Epoch, b.Epoch))
	})
	return list
}

// Fresh is what of a batch of windows is not stored yet, summed up as rows hold it, each in the order in which all
// replicas write them.
type Fresh struct {
	Sources []tally.Progress // those that go on
	Gaps    []tally.Missing
	Steps   []StepRow
	Domains []DomainStepRow
	Keys    []KeysRow
	Rates   []RatesRow
	Rings   []Ring
}

// Sum moves the sources on over a batch that BySource returned. Stored is how far they are.
func Sum(batch []tally.SourceWindows, stored []tally.Progress) *Fresh {
	known := make(map[tally.Source]tally.Progress, len(stored))
	for _, p := range stored {
		known[p.Source] = p
	}
	var f Fresh
	s := sums{
		steps: map[StepID]*tally.Counts{}, domains: map[domainStep]*tally.DomainCounts{}, keys: map[StepID]*KeysRow{},
		rates: map[StepID]*tally.Rates{}, rings: map[string][]tally.Refusal{},
	}
	for i := range batch {
		p, ok := known[batch[i].Source]
		if !ok {
			p.Source = batch[i].Source
		}
		fresh, gaps := p.Take(batch[i].Windows)
		if len(fresh) == 0 {
			continue
		}
		f.Sources, f.Gaps = append(f.Sources, p), append(f.Gaps, gaps...)
		for i := range fresh {
			s.add(p.Node, &fresh[i])
		}
	}
	s.lay(&f)
	return &f
}

type domainStep struct {
	domain string
	step   tally.Step
	start  time.Time
}

type sums struct {
	steps   map[StepID]*tally.Counts
	domains map[domainStep]*tally.DomainCounts
	keys    map[StepID]*KeysRow
	rates   map[StepID]*tally.Rates
	rings   map[string][]tally.Refusal
}

// at returns what the map has under the key, made when it is asked for first.
func at[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

func (s *sums) add(node string, w *tally.Window) {
	for i := range w.Versions {
		v := &w.Versions[i]
		id := StepID{UID: Text(v.UID), Version: v.Version}
		for _, id.Step = range tally.Steps() {
			if id.Step == tally.StepWindow && v.Counts == (tally.Counts{}) {
				continue // it only has the rates of a minute, whose row of counts is locked for them
			}
			id.Start = StepOf(w.Start, id.Step)
			at(s.steps, id).Add(&v.Counts)
		}
		id.Step, id.Start = tally.StepMinute, StepOf(w.Start, tally.StepMinute)
		if len(v.Keys) > 0 {
			at(s.keys, id).add(v.Keys, &v.Distinct)
		}
		if !v.Rates.IsZero() {
			at(s.rates, id).Add(&v.Rates)
		}
	}
	for i := range w.Domains {
		for _, step := range tally.Steps() {
			at(s.domains, domainStep{Text(w.Domains[i].Domain), step, StepOf(w.Start, step)}).Add(&w.Domains[i].Counts)
		}
	}
	for _, r := range w.Refusals {
		r.Node = node
		for _, text := range []*string{&r.Domain, &r.UID, &r.Limit, &r.Label, &r.Path, &r.Reference} {
			*text = Text(*text)
		}
		s.rings[r.UID] = append(s.rings[r.UID], r)
	}
}

// lay lays all out in order.
func (s *sums) lay(f *Fresh) {
	for id, counts := range s.steps {
		f.Steps = append(f.Steps, StepRow{id, *counts})
	}
	for id, counts := range s.domains {
		f.Domains = append(f.Domains, DomainStepRow{id.domain, id.step, id.start, *counts})
	}
	s.layKeys(f)
	for id, rates := range s.rates {
		f.Rates = append(f.Rates, RatesRow{id, *rates})
	}
	for uid, refusals := range s.rings {
		f.Rings = append(f.Rings, Ring{uid, refusals[max(0, len(refusals)-tally.MaxRefusals):]})
	}
	slices.SortFunc(f.Steps, func(a, b StepRow) int { return compareSteps(a.StepID, b.StepID) })
	slices.SortFunc(f.Domains, func(a, b DomainStepRow) int {
		return cmp.Or(strings.Compare(a.Domain, b.Domain), cmp.Compare(a.Step, b.Step), a.Start.Compare(b.Start))
	})
	slices.SortFunc(f.Keys, func(a, b KeysRow) int { return compareSteps(a.StepID, b.StepID) })
	slices.SortFunc(f.Rates, func(a, b RatesRow) int { return compareSteps(a.StepID, b.StepID) })
	slices.SortFunc(f.Rings, func(a, b Ring) int { return strings.Compare(a.UID, b.UID) })
}

// layKeys makes the hours of the minutes: there are far fewer of them than windows.
func (s *sums) layKeys(f *Fresh) {
	hours := map[StepID]*KeysRow{}
	for id, minute := range s.keys {
		minute.StepID, minute.lists = id, [][]tally.KeyCount{tally.MergeKeys(minute.lists...)}
		f.Keys = append(f.Keys, *minute)
		id.Step, id.Start = tally.StepHour, StepOf(id.Start, tally.StepHour)
		at(hours, id).add(minute.lists[0], &minute.distinct)
	}
	for id, hour := range hours {
		hour.StepID = id
		f.Keys = append(f.Keys, *hour)
	}
}

// StepOf is the start of the step in which an instant is. Steps are aligned to the Unix epoch.
func StepOf(t time.Time, step tally.Step) time.Time { return t.UTC().Truncate(time.Duration(step)) }
