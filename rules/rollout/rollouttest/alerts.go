package rollouttest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/alert"
)

// alerts are what an alert.Store and the silences keep.
type alerts struct {
	silences  map[id]rollout.Silence
	round     alert.Round // its times
	watches   map[alert.VersionID]alert.Detectors
	all       map[string]alert.Alert
	delivered map[string][]alert.Delivery // by alert
}

func newAlerts() alerts {
	return alerts{
		silences: map[id]rollout.Silence{}, watches: map[alert.VersionID]alert.Detectors{},
		all: map[string]alert.Alert{}, delivered: map[string][]alert.Delivery{},
	}
}

// SaveSilence is part of rollout.Ledger.
func (m *Memory) SaveSilence(ctx context.Context, silence rollout.Silence, record rollout.Record) error {
	return m.write(ctx, func() error {
		silence.At, silence.Until = micro(silence.At), micro(silence.Until)
		clean(&silence.Actor.Name, &silence.Message)
		m.alerts.silences[id{silence.Domain, silence.Rule}] = silence
		m.note(record, 0)
		return nil
	})
}

// DeleteSilence is part of rollout.Ledger.
func (m *Memory) DeleteSilence(ctx context.Context, domain, name string, record rollout.Record) error {
	return m.write(ctx, func() error {
		if _, there := m.alerts.silences[id{domain, name}]; !there {
			return fmt.Errorf("silence of %s/%s: %w", domain, name, rules.ErrNotFound)
		}
		delete(m.alerts.silences, id{domain, name})
		m.note(record, 0)
		return nil
	})
}

// Silences is part of rollout.Ledger.
func (m *Memory) Silences(ctx context.Context, domain string) ([]rollout.Silence, error) {
	return call(ctx, m, func() (list []rollout.Silence, _ error) {
		for _, key := range slices.SortedFunc(maps.Keys(m.alerts.silences), compareIDs) {
			if domain == "" || domain == key.domain {
				list = append(list, m.alerts.silences[key])
			}
		}
		return list, nil
	})
}

// LastRound is part of alert.Store.
func (m *Memory) LastRound(ctx context.Context) (alert.Round, error) {
	return call(ctx, m, func() (alert.Round, error) {
		r := m.alerts.round
		for key, d := range m.alerts.watches {
			r.Watches = append(r.Watches, alert.Watch{VersionID: key, Detectors: d})
		}
		slices.SortFunc(r.Watches, func(a, b alert.Watch) int {
			return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version))
		})
		var err error
		r.Alerts, err = m.find(alert.Query{FiringOnly: true, Limit: len(m.alerts.all)})
		return r, err
	})
}

// SaveRound is part of alert.Store.
func (m *Memory) SaveRound(ctx context.Context, base time.Time, r alert.Round) error {
	return m.write(ctx, func() error {
		if !m.alerts.round.At.Equal(base) {
			return fmt.Errorf("%w: the last round is not that of %s any more", rules.ErrConflict, base)
		}
		m.alerts.round = alert.Round{At: micro(r.At), Settled: micro(r.Settled)}
		for _, w := range r.Watches {
			m.alerts.watches[w.VersionID] = w.Detectors
		}
		for _, key := range r.Forget {
			delete(m.alerts.watches, key)
		}
		for _, a := range r.Alerts {
			kept, err := clone(a)
			if err != nil {
				return err
			}
			m.alerts.all[a.ID] = kept
		}
		maps.DeleteFunc(m.alerts.all, func(_ string, a alert.Alert) bool {
			return !a.Resolved.IsZero() && a.Resolved.Before(r.At.Add(-alert.Keep))
		})
		return nil
	})
}

// Alerts is part of alert.Store.
func (m *Memory) Alerts(ctx context.Context, q alert.Query) ([]alert.Alert, error) {
	return call(ctx, m, func() ([]alert.Alert, error) { return m.find(q) })
}

func (m *Memory) find(q alert.Query) (list []alert.Alert, _ error) {
	for key, kept := range m.alerts.all {
		over := !kept.Resolved.IsZero()
		if q.Domain != "" && q.Domain != kept.Domain || over && (q.FiringOnly || !kept.Resolved.After(q.ResolvedAfter)) {
			continue
		}
		a, err := clone(kept)
		if err != nil {
			return nil, err
		}
		a.Delivered = slices.Clone(m.alerts.delivered[key])
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b alert.Alert) int { return cmp.Or(b.Since.Compare(a.Since), strings.Compare(a.ID, b.ID)) })
	return list[:min(len(list), max(q.Limit, 0))], nil
}

// MarkDelivered is part of alert.Store.
func (m *Memory) MarkDelivered(ctx context.Context, list []alert.Delivery) error {
	return m.write(ctx, func() error {
		for _, d := range list {
			if _, there := m.alerts.all[d.Alert]; !there || slices.Contains(m.alerts.delivered[d.Alert], d) {
				continue
			}
			m.alerts.delivered[d.Alert] = append(m.alerts.delivered[d.Alert], d)
			slices.SortFunc(m.alerts.delivered[d.Alert], func(a, b alert.Delivery) int {
				return cmp.Or(strings.Compare(a.Target, b.Target), strings.Compare(string(a.Status), string(b.Status)))
			})
		}
		return nil
	})
}
