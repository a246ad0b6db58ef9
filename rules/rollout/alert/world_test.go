package alert_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/spike"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// cells that tests count in.
var (
	allowed     = tally.BindingCell(tally.Allowed, tally.NoLimit)
	refused     = tally.BindingCell(tally.Refused, 0)
	wouldAllow  = tally.WhatIfCell(tally.WouldAllow, tally.BesideNone, false)
	wouldRefuse = tally.WhatIfCell(tally.WouldRefuse, tally.BesideNone, false)
)

// world is a database, what nodes counted, and control planes that lead in turn, in a time of its own.
type world struct {
	*rollouttest.Memory
	t       *testing.T
	now     time.Time
	service *rollout.Service
	metrics *prometheus.Registry
	leader  *alert.Watcher
	told    map[string]bool

	tallies alert.Tallies // itself, unless a test has another one
	points  []tally.Point
	keys    []tally.VersionKeys
	queries int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Memory: rollouttest.New(), t: t, now: start, told: map[string]bool{}}
	w.tallies = w
	w.service = rollout.NewService(w, func() time.Time { return w.now })
	w.elect()
	return w
}

// elect lets another control plane lead, which knows nothing but what the database says.
func (w *world) elect() {
	w.t.Helper()
	w.metrics = prometheus.NewRegistry()
	w.leader = w.watcher(w.metrics)
}

func (w *world) watcher(metrics prometheus.Registerer) *alert.Watcher {
	w.t.Helper()
	watcher, err := alert.NewWatcher(w, w.tallies, w, alert.Options{Now: func() time.Time { return w.now }, Registerer: metrics})
	if err != nil {
		w.t.Fatal(err)
	}
	return watcher
}

// Series is part of alert.Tallies.
func (w *world) Series(_ context.Context, q tally.Query) (list []tally.Point, _ error) {
	w.queries++
	for _, p := range w.points {
		if !p.Start.Before(q.From) && p.Start.Before(q.To) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b tally.Point) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version), a.Start.Compare(b.Start))
	})
	return list, nil
}

// Keys is part of alert.Tallies.
func (w *world) Keys(_ context.Context, q tally.Query) (list []tally.VersionKeys, _ error) {
	for _, k := range w.keys {
		if slices.Contains(q.UIDs, k.UID) {
			list = append(list, k)
		}
	}
	return list, nil
}

// count notes requests of a version of the rule in the window that ends now.
func (w *world) count(version int64, n map[tally.Cell]int64) {
	p := tally.Point{Domain: "api", UID: "u", Version: version, Start: w.now.Add(-tally.Span)}
	for cell, count := range n {
		p.Counts[cell] = count
	}
	w.points = append(w.points, p)
}

// hit says which keys a version went against.
func (w *world) hit(version int64, counts ...int64) {
	k := tally.VersionKeys{Domain: "api", UID: "u", Version: version}
	for i, n := range counts {
		id := tally.KeyID{byte(i), byte(i >> 8)}
		k.Keys.Add(id, n, n, func() string { return fmt.Sprintf("key-%d", i) })
		k.Distinct.Add(id)
	}
	w.keys = []tally.VersionKeys{k}
}

// rule is the rule as the tests need it: versions by number, each of them keyed on the address.
func (w *world) rule(stable, candidate int64, percent rules.Percent) {
	w.t.Helper()
	w.ruleAs(stable, candidate, percent, func(number int64) rules.Spec { return w.spec(fmt.Sprintf("%d/min", number), "ip") })
}

func (w *world) spec(limit, key string) rules.Spec {
	w.t.Helper()
	spec := rollouttest.Spec(w.t, limit)
	if key != "" {
		k, err := rules.ParseKeySource(key)
		if err != nil {
			w.t.Fatal(err)
		}
		spec.Key = append(spec.Key, k)
	}
	return spec
}

func (w *world) ruleAs(stable, candidate int64, percent rules.Percent, spec func(int64) rules.Spec) {
	w.t.Helper()
	r := rules.Rule{Domain: "api", Name: "login", UID: "u", Percent: percent}
	if stable > 0 {
		r.Stable = &rules.Version{Number: stable, Spec: spec(stable)}
	}
	if candidate > 0 {
		r.Candidate, r.Salt = &rules.Version{Number: candidate, Spec: spec(candidate)}, 1
	}
	w.Change(w.t, "api", func(int64) []rules.Rule { return []rules.Rule{r} })
}

// look lets 30 s pass, has the leader look, and returns what is new of alerts: "refused v1 page many fires".
func (w *world) look() string {
	w.t.Helper()
	w.now = w.now.Add(spike.Every)
	if err := w.leader.Look(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return w.news()
}

func (w *world) news() string {
	w.t.Helper()
	var list []string
	for _, a := range slices.Backward(w.all()) {
		text := fmt.Sprintf("%s v%d %s %s fires", a.Kind, a.Version, a.Severity, a.Hits)
		if !a.Resolved.IsZero() {
			text = fmt.Sprintf("%s v%d resolved: %s", a.Kind, a.Version, a.Ending)
		}
		if id := a.ID + text; !w.told[id] {
			w.told[id] = true
			list = append(list, text)
		}
	}
	return strings.Join(list, "; ")
}

func (w *world) all() []alert.Alert {
	w.t.Helper()
	list, err := w.Alerts(w.t.Context(), alert.Query{Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// run looks n times, each after what before does, and returns what happened at which look.
func (w *world) run(n int, before func(i int)) string {
	w.t.Helper()
	var list []string
	for i := range n {
		w.now = w.now.Add(spike.Every)
		before(i)
		w.now = w.now.Add(-spike.Every)
		if news := w.look(); news != "" {
			list = append(list, fmt.Sprintf("%d: %s", i, news))
		}
	}
	return strings.Join(list, "\n")
}

func someone() rollout.Why { return rollout.Why{Who: access.Local("ann")} }
