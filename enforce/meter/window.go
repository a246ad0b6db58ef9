package meter

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// MaxRefusals is how many refusals a window has at most, MaxVersionRefusals how many of one version.
const (
	MaxRefusals        = 512
	MaxVersionRefusals = 8
)

// Close ends the open window, and begins the next one. Each count is in exactly one window, whatever runs meanwhile. Last
// says that nothing is counted any more. Its number is the caller's business, and so is when it closes: at the multiples of
// [tally.Span].
func (m *Meter) Close(now time.Time, last bool) tally.Window {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(time.Now())
	w := m.window(now)
	w.Last = last
	minuteOver := last || !now.Truncate(time.Minute).Equal(m.begun.Truncate(time.Minute))
	m.begun = now
	m.catchUpAll()
	if minuteOver {
		m.minute.Store(&minute{})
	}
	for _, d := range *m.byDomain.Load() {
		if counts, some := d.sinceClosed(); some {
			w.Domains = append(w.Domains, tally.DomainTally{Domain: d.name, Counts: counts})
			d.closed.Add(&counts)
		}
	}
	for id, v := range m.versions {
		counts, some := v.sinceClosed()
		t := v.tally(&counts)
		w.Refusals = append(w.Refusals, m.takeKeys(v, &t)...)
		if minuteOver {
			t.Rates = v.takeRates()
		}
		if some || len(t.Keys) > 0 || !t.Rates.IsZero() { // a key may come a moment after its count, when that is in the window before
			w.Versions = append(w.Versions, t)
			v.closed.Add(&counts)
		}
		if v.over(time.Now()) {
			delete(m.versions, id)
		}
	}
	w.Refusals = fewer(w.Refusals)
	order(&w)
	return w
}

// Open returns the totals of the open window so far: what is counted, without keys and refusals, which come when it closes.
func (m *Meter) Open(now time.Time) tally.Window {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.window(now)
	for _, d := range *m.byDomain.Load() {
		if counts, some := d.sinceClosed(); some {
			w.Domains = append(w.Domains, tally.DomainTally{Domain: d.name, Counts: counts})
		}
	}
	for _, v := range m.versions {
		if counts, some := v.sinceClosed(); some {
			w.Versions = append(w.Versions, v.tally(&counts))
		}
	}
	order(&w)
	return w
}

// window is as long as the monotonic clock says, and ends now: where the wall clock was set meanwhile, all of the window
// is by the new time, and none is negative. The caller holds mu.
func (m *Meter) window(now time.Time) tally.Window {
	length := max(0, now.Sub(m.begun))
	return tally.Window{Start: micros(now.Add(-length)), End: micros(now)}
}

func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// sinceClosed returns what no closed window has, and whether that is anything. The meter's mu is held.
func (v *version) sinceClosed() (counts tally.Counts, some bool) {
	for i := range counts {
		counts[i] = v.cells[i].Load() - v.closed[i]
		some = some || counts[i] != 0
	}
	return counts, some
}

func (d *domain) sinceClosed() (counts tally.DomainCounts, some bool) {
	for i := range counts {
		counts[i] = d.cells[i].Load() - d.closed[i]
		some = some || counts[i] != 0
	}
	return counts, some
}

func (v *version) tally(counts *tally.Counts) tally.VersionTally {
	return tally.VersionTally{Domain: v.domain, UID: v.uid, Version: v.number, Counts: *counts}
}

// catchUpAll notes the keys that wait.
func (m *Meter) catchUpAll() {
	for range len(m.waiting) {
		select {
		case w := <-m.waiting:
			w.version.keys.mu.Lock()
			w.version.keys.add(w.version.in, &w.hit)
			w.version.keys.mu.Unlock()
		default:
			return
		}
	}
}

// takeKeys moves the keys of the open window into the version's tally, and returns the refusals. The caller holds mu.
func (m *Meter) takeKeys(v *version, t *tally.VersionTally) []tally.Refusal {
	if m.spare == nil {
		m.spare = &sketch{}
	}
	s := v.keys.take(v.in, m.spare)
	if s == nil {
		return nil
	}
	for place := range s.shown {
		s.top.SetLabel(place, s.shown[place].label(v.in))
	}
	t.Keys = s.top.Keys()
	if len(t.Keys) < tally.MaxTopKeys {
		s.distinctOf(t.Keys)
	}
	t.Distinct = s.distinct
	refusals := s.refusals()
	s.reset()
	m.spare = s
	return refusals
}

// fewer leaves a random choice of the refusals where there are too many, by time.
func fewer(list []tally.Refusal) []tally.Refusal {
	if len(list) > MaxRefusals {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) //nolint:gosec // no secret
		list = slices.Clone(list[:MaxRefusals])
	}
	slices.SortStableFunc(list, func(a, b tally.Refusal) int { return a.Time.Compare(b.Time) })
	return list
}

func order(w *tally.Window) {
	slices.SortFunc(w.Domains, func(a, b tally.DomainTally) int { return cmp.Compare(a.Domain, b.Domain) })
	slices.SortFunc(w.Versions, func(a, b tally.VersionTally) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version))
	})
}
