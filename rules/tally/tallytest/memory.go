// Package tallytest has an in-memory tally.Store, for tests of what stands on one.
//
// The picture to hold: [Memory] keeps the windows themselves, and counts when it is asked. It keeps the contract as the
// databases do, and passes their suite, save that it takes every rule for one that exists. It gives up speed, and is gone
// with the test.
package tallytest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

var _ tally.Store = (*Memory)(nil)

// Memory is a tally.Store. It is safe for concurrent use.
type Memory struct {
	mu       sync.Mutex
	failure  error
	sources  map[tally.Source]tally.Progress
	windows  []tally.Window
	refusals map[string][]tally.Refusal // by rule, as they came
	gaps     []tally.Missing
	open     map[string]openWindow // by node
	births   map[string]tally.Birth
	pruned   time.Time
}

type openWindow struct {
	tally.Source
	tally.Window
}

// New returns an empty store.
func New() *Memory {
	return &Memory{
		sources: map[tally.Source]tally.Progress{}, refusals: map[string][]tally.Refusal{}, open: map[string]openWindow{},
		births: map[string]tally.Birth{},
	}
}

// Fail makes every call fail with err; nil ends that.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = err
}

// Bear makes a rule known to Births.
func (m *Memory) Bear(uid string, birth tally.Birth) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.births[uid] = birth
}

// call runs what a method does, unless it is to fail.
func call[T any](ctx context.Context, m *Memory, do func() T) (result T, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return result, err
	}
	if m.failure != nil {
		return result, m.failure
	}
	return do(), nil
}

func (m *Memory) write(ctx context.Context, do func()) error {
	_, err := call(ctx, m, func() struct{} { do(); return struct{}{} })
	return err
}

// SaveWindows is part of tally.Store.
func (m *Memory) SaveWindows(ctx context.Context, batch []tally.SourceWindows) error {
	return m.write(ctx, func() {
		all := map[tally.Source][]tally.Window{}
		for _, s := range batch {
			all[s.Source] = append(all[s.Source], s.Windows...)
		}
		for source, windows := range all {
			slices.SortStableFunc(windows, func(a, b tally.Window) int { return cmp.Compare(a.Number, b.Number) })
			p := m.sources[source]
			p.Source = source
			fresh, gaps := p.Take(windows)
			if len(fresh) == 0 {
				continue
			}
			m.sources[source], m.gaps, m.windows = p, append(m.gaps, gaps...), append(m.windows, fresh...)
			for i := range fresh {
				m.refuse(source.Node, fresh[i].Refusals)
			}
		}
	})
}

func (m *Memory) refuse(node string, refusals []tally.Refusal) {
	for _, r := range refusals {
		r.Node, r.Time = node, time.UnixMicro(r.Time.UnixMicro()).UTC()
		for _, text := range []*string{&r.Limit, &r.Label, &r.Path, &r.Reference} {
			*text = strings.ReplaceAll(strings.ToValidUTF8(*text, "\uFFFD"), "\x00", "\uFFFD")
		}
		ring := append(m.refusals[r.UID], r)
		m.refusals[r.UID] = ring[max(0, len(ring)-tally.MaxRefusals):]
	}
}

// SaveOpen is part of tally.Store.
func (m *Memory) SaveOpen(ctx context.Context, batch []tally.SourceWindows) error {
	return m.write(ctx, func() {
		for _, s := range batch {
			for _, w := range s.Windows {
				o := openWindow{s.Source, w}
				if was, there := m.open[s.Node]; m.shows(&o) && (!there || o.replaces(&was)) {
					m.open[s.Node] = o
				}
			}
		}
	})
}

func (m *Memory) shows(o *openWindow) bool {
	p := m.sources[o.Source]
	return p.Shows(o.Number)
}

func (o *openWindow) replaces(old *openWindow) bool {
	if o.Epoch != old.Epoch {
		return !o.End.Before(old.End)
	}
	return cmp.Or(cmp.Compare(o.Number, old.Number), o.End.Compare(old.End)) >= 0
}

// Stored is part of tally.Store.
func (m *Memory) Stored(ctx context.Context, source tally.Source) (int64, error) {
	return call(ctx, m, func() int64 { return m.sources[source].Stored })
}

// Sources is part of tally.Store.
func (m *Memory) Sources(ctx context.Context) ([]tally.Progress, error) {
	return call(ctx, m, func() []tally.Progress {
		last := map[string]tally.Progress{} // by node
		for _, p := range m.sources {
			if is, there := last[p.Node]; !there || cmp.Or(p.Began.Compare(is.Began), strings.Compare(p.Epoch, is.Epoch)) > 0 {
				last[p.Node] = p
			}
		}
		return slices.SortedFunc(maps.Values(last), func(a, b tally.Progress) int { return strings.Compare(a.Node, b.Node) })
	})
}

// Births is part of tally.Store.
func (m *Memory) Births(ctx context.Context, uids []string) (map[string]tally.Birth, error) {
	return call(ctx, m, func() map[string]tally.Birth {
		known := map[string]tally.Birth{}
		for _, uid := range uids {
			if b, ok := m.births[uid]; ok {
				known[uid] = b
			}
		}
		return known
	})
}

// Prune is part of tally.Store. What has had its time is passed over from now on.
func (m *Memory) Prune(ctx context.Context, now time.Time) error {
	return m.write(ctx, func() {
		m.pruned = now
		for source, p := range m.sources {
			if p.Until.Before(now.Add(-tally.StepHour.Keep())) {
				delete(m.sources, source)
			}
		}
		m.gaps = slices.DeleteFunc(m.gaps, func(g tally.Missing) bool { return g.To.Before(now.Add(-tally.StepHour.Keep())) })
	})
}

// kept reports whether what is so old is still there.
func (m *Memory) kept(t time.Time, step tally.Step) bool {
	return m.pruned.IsZero() || !t.Before(m.pruned.Add(-step.Keep()))
}
