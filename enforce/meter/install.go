package meter

import (
	"time"

	"github.com/headgate/headgate/rules"
)

// grace is how long requests of a version may be under way after it was retired. A decision takes milliseconds.
const grace = time.Minute

// handle leads from a version, as one index has it, to its counters. A change of its rule, such as a promotion, makes
// another handle of the same version.
type handle struct {
	version *version

	// The meter's mu guards what follows.
	inForce bool
	shown   bool      // it was in force until the last Retire
	retired time.Time // when it was not any more
}

// Install makes the counters of the index's versions exist, and their series at 0. Call it before the index is in force,
// and Retire after. Only rules that are not those of the domain's index before cost anything.
func (m *Meter) Install(index *rules.Index) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.domain(index.Domain.Name)
	secret := index.Domain.Secret
	d.secret.Store(&secret)
	var before []*rules.Rule
	if d.index != nil {
		before = d.index.Rules()
	}
	d.index = index
	gone, come := changed(before, index.Rules())
	for _, r := range gone {
		for _, v := range versionsOf(r) {
			m.handle(v).inForce = false
			d.going = append(d.going, v)
		}
	}
	for _, r := range come {
		for _, v := range versionsOf(r) {
			m.install(d, r, v)
		}
	}
}

func (m *Meter) install(d *domain, r *rules.Rule, v *rules.Version) {
	h := m.handle(v)
	if h == nil {
		id := identity{d.name, r.Name, r.UID, v.Number}
		counters := m.versions[id]
		if counters == nil {
			counters = &version{identity: id, in: d}
			m.versions[id] = counters
		}
		counters.held++
		h = &handle{version: counters}
		m.byVersion.Store(v, h)
	}
	if !h.shown {
		h.shown = true
		h.version.shown++
	}
	h.inForce = true
}

// Retire removes the series of versions that the domain's latest index no longer has. What is under way by them is counted
// still.
func (m *Meter) Retire(domain string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, now := m.domain(domain), time.Now()
	for _, v := range d.going {
		h := m.handle(v)
		if h.inForce || !h.shown {
			continue // it came back, or two of the indexes before had it
		}
		h.shown, h.retired = false, now
		h.version.shown--
		m.retired = append(m.retired, v)
	}
	d.going = nil
}

// forget lets go of handles of which no request can be under way any more. The caller holds mu.
func (m *Meter) forget(now time.Time) {
	for len(m.retired) > 0 {
		v := m.retired[0]
		h := m.handle(v)
		if h != nil && !h.shown && now.Sub(h.retired) < grace {
			return
		}
		m.retired = m.retired[1:]
		if h == nil || h.shown {
			continue
		}
		m.byVersion.Delete(v)
		h.version.held--
		h.version.left = now
	}
}

// over reports that nothing can be counted of the version any more, a grace after its last handle went.
func (v *version) over(now time.Time) bool { return v.held == 0 && now.Sub(v.left) >= grace }

// handle returns nil where there is none.
func (m *Meter) handle(v *rules.Version) *handle {
	h, _ := m.byVersion.Load(v)
	held, _ := h.(*handle)
	return held
}

func versionsOf(r *rules.Rule) []*rules.Version {
	switch {
	case r.Stable == nil && r.Candidate == nil:
		return nil
	case r.Stable == nil:
		return []*rules.Version{r.Candidate}
	case r.Candidate == nil:
		return []*rules.Version{r.Stable}
	}
	return []*rules.Version{r.Stable, r.Candidate}
}

// changed returns the rules that only one of two lists has. Both are in the order of names.
func changed(before, after []*rules.Rule) (gone, come []*rules.Rule) {
	for _, r := range after {
		for len(before) > 0 && before[0].Name < r.Name {
			gone, before = append(gone, before[0]), before[1:]
		}
		if len(before) > 0 && before[0] == r {
			before = before[1:]
			continue
		}
		come = append(come, r)
	}
	return append(gone, before...), come
}
