package meter_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// totals are counts by the version or the domain they are of.
type totals struct {
	versions map[string]tally.Counts
	domains  map[string]tally.DomainCounts
	keys     map[tally.KeyID]int64
	rates    map[string]int64 // by version and key
}

func newTotals() *totals {
	return &totals{map[string]tally.Counts{}, map[string]tally.DomainCounts{}, map[tally.KeyID]int64{}, map[string]int64{}}
}

// add adds what a window says.
func (s *totals) add(w tally.Window) {
	for _, v := range w.Versions {
		id := fmt.Sprintf("%s %s v%d", v.Domain, v.UID, v.Version)
		sum := s.versions[id]
		sum.Add(&v.Counts)
		s.versions[id] = sum
		for _, k := range v.Keys {
			s.keys[k.Key] += k.Count()
		}
		for _, k := range v.Rates.Keys {
			s.rates[fmt.Sprint(id, k.Key)] += k.Calls
		}
	}
	for _, d := range w.Domains {
		sum := s.domains[d.Domain]
		sum.Add(&d.Counts)
		s.domains[d.Domain] = sum
	}
}

// decisionOf makes a decision out of numbers, and says which cells it is counted in.
func decisionOf(rule *rules.Rule, pick int) (d enforce.Decision, cells map[*rules.Version]tally.Cell) {
	cells = map[*rules.Version]tally.Cell{}
	binding := tally.Outcomes()[pick%7]
	for _, v := range []*rules.Version{rule.Stable, rule.Candidate} {
		if v == nil {
			continue
		}
		o := enforce.VersionOutcome{
			Rule: rule, Version: v, Request: requestOf(pick % 50), Limit: tally.NoLimit, Outcome: binding, OtherRefused: pick%2 == 0,
			Values: rules.KeyOf(&v.Spec, requestOf(pick%50)),
		}
		o.Key = tally.KeyOf(secret, &v.Spec, o.Values)
		if v == rule.Candidate {
			o.WhatIf, o.Outcome, o.Beside = true, tally.Outcomes()[7+pick%3], tally.Beside(pick%3)
			cells[v] = tally.WhatIfCell(o.Outcome, o.Beside, o.OtherRefused)
		} else {
			if binding == tally.Refused && pick%3 > 0 {
				o.Limit = 0
			}
			cells[v] = tally.BindingCell(binding, o.Limit)
		}
		d.Outcomes = append(d.Outcomes, o)
	}
	d.Allowed = !binding.Refuses()
	return d, cells
}

// Whatever runs at the same time, the windows add up to what was recorded, cell by cell.
func TestWindowsAddUpToWhatWasRecorded(t *testing.T) {
	t.Parallel()
	spec := limited(specOf(t, "ip"))
	rapid.Check(t, func(t *rapid.T) {
		reg := prometheus.NewRegistry()
		m := meter.New(reg)
		var inForce atomic.Pointer[[]*rules.Rule]
		var names []string
		for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
			names = append(names, fmt.Sprintf("r%d", i))
		}
		// As a push does: install, swap, retire. Rules come, go and come back, and versions with them.
		swap := func() {
			var list []*rules.Rule
			for _, name := range names {
				r := &rules.Rule{Domain: "d", Name: name, UID: "uid-" + name}
				if n := rapid.Int64Range(0, 2).Draw(t, "stable"); n > 0 {
					r.Stable = &rules.Version{Number: n, Spec: *spec}
				}
				if rapid.Bool().Draw(t, "candidate") {
					r.Candidate = &rules.Version{Number: 3, Spec: *spec}
				}
				if !r.Deleted() {
					list = append(list, r)
				}
			}
			m.Install(indexOf(list...))
			inForce.Store(&list)
			m.Retire("d")
		}
		swap()
		var mu sync.Mutex
		want := newTotals()
		got := newTotals()
		var recording sync.WaitGroup
		for range rapid.IntRange(1, 4).Draw(t, "callers") {
			picks := rapid.SliceOfN(rapid.IntRange(0, 1<<20), 0, 300).Draw(t, "calls")
			recording.Go(func() {
				for _, pick := range picks {
					list := *inForce.Load()
					if len(list) == 0 {
						continue
					}
					d, cells := decisionOf(list[pick%len(list)], pick)
					m.Record("d", &d)
					mu.Lock()
					for i := range d.Outcomes {
						o := &d.Outcomes[i]
						id := fmt.Sprintf("d %s v%d", o.Rule.UID, o.Version.Number)
						sum := want.versions[id]
						sum[cells[o.Version]]++
						want.versions[id] = sum
						if o.Outcome.Affects() {
							want.keys[o.Key]++
						}
						if i == len(d.Outcomes)-1 { // the candidate, where there is one
							want.rates[fmt.Sprint(id, o.Key.Rate())]++
						}
					}
					sum := want.domains["d"]
					if d.Allowed {
						sum[tally.RequestsAllowed]++
						if last := d.Outcomes[len(d.Outcomes)-1]; last.Outcome == tally.WouldRefuse {
							sum[tally.RequestsWouldRefuse]++
						}
					} else {
						sum[tally.RequestsRefused]++
					}
					want.domains["d"] = sum
					mu.Unlock()
				}
			})
		}
		now := time.Now()
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				swap()
			case 1:
				m.Open(time.Now())
			case 2:
				if _, err := reg.Gather(); err != nil {
					t.Fatal(err)
				}
			default:
				now = now.Add(rapid.SampledFrom([]time.Duration{tally.Span, time.Minute}).Draw(t, "later"))
				got.add(m.Close(now, false))
			}
		}
		recording.Wait()
		last := m.Close(now, true)
		if !last.Last {
			t.Error("the last window does not say so")
		}
		got.add(last)
		if rest := m.Close(now, true); len(rest.Versions)+len(rest.Domains)+len(rest.Refusals) > 0 {
			t.Errorf("after the last window: %+v", rest)
		}
		if diff := cmp.Diff(want.versions, got.versions); diff != "" {
			t.Errorf("versions (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want.domains, got.domains); diff != "" {
			t.Errorf("domains (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want.rates, got.rates); diff != "" {
			t.Errorf("rates (-want +got):\n%s", diff)
		}
		if late := metric(t, reg, "headgate_tally_late_total"); late != 0 {
			t.Errorf("%v outcomes came late", late)
		}
		// Keys may be missing, and each that is missing is counted; none is there too often.
		missing := int64(metric(t, reg, "headgate_tally_keys_unnamed_total"))
		for k, n := range want.keys {
			if got.keys[k] > n {
				t.Errorf("key %s: %d times, of %d", k, got.keys[k], n)
			}
			missing -= n - got.keys[k]
		}
		if missing != 0 {
			t.Errorf("%d more keys are counted as missing than are", missing)
		}
	})
}

// A request that finds another one counting does not wait: its key does, for a request or for the end of the window.
func TestKeysWaitAndRequestsDoNot(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := meter.New(reg)
	r := newRule(t, "r", 1)
	m.Install(indexOf(r))
	hit := func(n int) {
		for i := range n {
			d := refusal(r, i%5)
			m.Record("d", &d)
		}
	}
	wantNamed := func(named, matched int64) {
		t.Helper()
		w := m.Close(time.Now(), false)
		var sum int64
		for _, k := range w.Versions[0].Keys {
			sum += k.Count()
		}
		if n := w.Versions[0].Counts.Matched(); sum != named || n != matched {
			t.Errorf("%d keys of %d are named, want %d of %d", sum, n, named, matched)
		}
	}
	release := m.HoldKeys(r.Stable)
	hit(meter.MaxWaiting + 10)
	release()
	hit(1)
	wantNamed(meter.MaxWaiting+1, meter.MaxWaiting+11)
	if n := metric(t, reg, "headgate_tally_keys_unnamed_total"); n != 10 {
		t.Errorf("%v keys are missing, want 10", n)
	}
	for range 2 { // the requests after it see to what waits, so that there is room again
		release = m.HoldKeys(r.Stable)
		hit(meter.MaxWaiting)
		release()
		hit(meter.MaxWaiting)
	}
	wantNamed(4*meter.MaxWaiting, 4*meter.MaxWaiting)
}

func TestOpenWindowIsThatWhichCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := meter.New(prometheus.NewRegistry())
		begun := time.Now()
		r := newRule(t, "r", 1)
		m.Install(indexOf(r))
		for i := range 3 {
			d := refusal(r, i%2)
			m.Record("d", &d)
			time.Sleep(time.Second)
		}
		time.Sleep(7 * time.Second)
		open := m.Open(time.Now())
		var counts tally.Counts
		counts[tally.BindingCell(tally.Refused, 0)] = 3
		want := tally.Window{
			Start: begun.UTC(), End: begun.Add(tally.Span).UTC(), Versions: []tally.VersionTally{{Domain: "d", UID: "uid-r", Version: 1, Counts: counts}},
			Domains: []tally.DomainTally{{Domain: "d", Counts: tally.DomainCounts{tally.RequestsRefused: 3}}},
		}
		if diff := cmp.Diff(want, open, cmp.AllowUnexported(tally.Distinct{})); diff != "" {
			t.Errorf("open (-want +got):\n%s", diff)
		}
		closed := m.Close(time.Now(), false)
		v := &closed.Versions[0]
		key := func(n int) tally.KeyID {
			return tally.KeyOf(secret, &r.Stable.Spec, rules.KeyOf(&r.Stable.Spec, requestOf(n)))
		}
		keys := []tally.KeyCount{{Key: key(0), Label: "10.0.0.*", Refused: 2}, {Key: key(1), Label: "10.0.0.*", Refused: 1}}
		if diff := cmp.Diff(keys, v.Keys); diff != "" || v.Distinct.Estimate() != 2 {
			t.Errorf("%d keys (-want +got):\n%s", v.Distinct.Estimate(), diff)
		}
		var refusals []tally.Refusal
		for i := range 3 {
			refusals = append(refusals, tally.Refusal{
				Time: begun.Add(time.Duration(i) * time.Second).UTC(), Domain: "d", UID: "uid-r", Version: 1, Limit: "day",
				Outcome: tally.Refused, Key: key(i % 2), Label: "10.0.0.*", Path: "/v1/x", Reference: "ref",
			})
		}
		if diff := cmp.Diff(refusals, closed.Refusals); diff != "" {
			t.Errorf("refusals (-want +got):\n%s", diff)
		}
		closed.Refusals, v.Keys, v.Distinct = nil, nil, tally.Distinct{}
		if diff := cmp.Diff(want, closed, cmp.AllowUnexported(tally.Distinct{})); diff != "" {
			t.Errorf("closed (-want +got):\n%s", diff)
		}
		next := m.Close(time.Now().Add(tally.Span), false)
		if diff := cmp.Diff(tally.Window{Start: want.End, End: want.End.Add(tally.Span)}, next); diff != "" {
			t.Errorf("the next one, without requests (-want +got):\n%s", diff)
		}
	})
}

// A clock that is set makes no window negative, and all of a window is by one time.
func TestWindowsEndWhenTheClockSays(t *testing.T) {
	t.Parallel()
	m := meter.New(prometheus.NewRegistry())
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	m.Close(at, false)
	if w := m.Close(at.Add(-time.Hour), false); w.Start != at.Add(-time.Hour) || w.End != w.Start {
		t.Errorf("set back: from %v to %v", w.Start, w.End)
	}
	if w := m.Close(at, false); w.Start != at.Add(-time.Hour) || w.End != at {
		t.Errorf("afterwards: from %v to %v", w.Start, w.End)
	}
}

func TestRetiredVersionIsCountedForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := meter.New(reg)
		old, promoted := newRule(t, "r", 1), newRule(t, "r", 2)
		counted := func(r *rules.Rule) (n int64) {
			d := refusal(r, 1)
			m.Record("d", &d)
			for _, v := range m.Close(time.Now(), false).Versions {
				n += v.Counts.Matched()
			}
			return n
		}
		swap := func(r *rules.Rule) {
			m.Install(indexOf(r))
			m.Retire("d")
		}
		swap(old)
		swap(promoted)
		time.Sleep(time.Minute - time.Second)
		m.Close(time.Now(), false)
		if n := counted(old); n != 1 {
			t.Errorf("%d counted in the last second, want 1", n)
		}
		time.Sleep(time.Second)
		if n := counted(promoted); n != 1 {
			t.Errorf("%d counted of what is in force, want 1", n)
		}
		if n, late := counted(old), metric(t, reg, "headgate_tally_late_total"); n != 0 || late != 1 {
			t.Errorf("after a minute: %d counted, %v late; want it late", n, late)
		}
		time.Sleep(time.Hour)
		m.Close(time.Now(), false)
		swap(old) // it is rolled back to
		if n := counted(old); n != 1 {
			t.Errorf("%d counted of a version that came back, want 1", n)
		}
		swap(promoted)
		swap(old)
		time.Sleep(time.Hour)
		m.Close(time.Now(), false)
		if n := counted(old); n != 1 {
			t.Errorf("%d counted of a version that was away for a moment, want 1", n)
		}
	})
}

// Somebody was told the reference of a refusal, and may ask; nobody knows of one that would have been.
func TestWhatWasRefusedGoesBeforeWhatWouldHaveBeen(t *testing.T) {
	t.Parallel()
	m := meter.New(prometheus.NewRegistry())
	r := newRule(t, "r", 1)
	m.Install(indexOf(r))
	for i := range 1000 {
		o := tally.WouldRefuse
		if i%500 == 499 {
			o = tally.Refused
		}
		m.Record("d", &enforce.Decision{Outcomes: []enforce.VersionOutcome{outcome(r, o, requestOf(i))}})
	}
	of := map[tally.Outcome]int{}
	for _, r := range m.Close(time.Now(), false).Refusals {
		of[r.Outcome]++
	}
	if of[tally.Refused] != 2 || of[tally.WouldRefuse] != meter.MaxVersionRefusals-2 {
		t.Errorf("%v, want the two refusals, and what would have been in the other places", of)
	}
}

// What callers send is shown neither whole nor raw, and what is kept of it is bounded.
func TestRefusalsAreASampleWithoutSecrets(t *testing.T) {
	t.Parallel()
	m := meter.New(prometheus.NewRegistry())
	var list []*rules.Rule
	for i := range 100 {
		r := newRule(t, fmt.Sprintf("r%03d", i), 1)
		r.Stable.Spec.Key = specOf(t, "header:authorization").Key
		list = append(list, r)
	}
	m.Install(indexOf(list...))
	for _, r := range list {
		for i := range 100 {
			req := requestOf(i)
			req.Path = "/" + strings.Repeat("ä\x1b", 1000)
			req.Header = map[string][]string{"Authorization": {strings.Repeat("secret", 1+i*10) + fmt.Sprint(i)}}
			m.Record("d", &enforce.Decision{Outcomes: []enforce.VersionOutcome{outcome(r, tally.Refused, req)}})
		}
	}
	w := m.Close(time.Now(), false)
	if len(w.Refusals) != meter.MaxRefusals {
		t.Errorf("%d refusals, want %d", len(w.Refusals), meter.MaxRefusals)
	}
	of := map[string]int{}
	for i, r := range w.Refusals {
		of[r.UID]++
		switch {
		case i > 0 && r.Time.Before(w.Refusals[i-1].Time):
			t.Errorf("%v after %v", r.Time, w.Refusals[i-1].Time)
		case of[r.UID] > meter.MaxVersionRefusals:
			t.Fatalf("%d refusals of %s", of[r.UID], r.UID)
		case !strings.HasPrefix(r.Label, "#") || len(r.Label) != 9:
			t.Errorf("label %q", r.Label)
		case len(r.Path) > tally.MaxPath || r.Path != tally.Printable(r.Path, tally.MaxPath):
			t.Errorf("path %q", r.Path)
		}
	}
	for _, v := range w.Versions {
		labels := map[string]bool{}
		for _, k := range v.Keys {
			labels[k.Label] = len(k.Label) == 9 && k.Over == 0 && k.Refused == 1
		}
		if len(v.Keys) != 100 || len(labels) != 100 {
			t.Fatalf("%d keys, %d labels, want 100: %+v", len(v.Keys), len(labels), v.Keys)
		}
		for l, ok := range labels {
			if !ok {
				t.Fatalf("%q of %+v", l, v.Keys)
			}
		}
	}
}

// How many keys there were is known below and above what the list of keys holds.
func TestWindowSaysHowManyKeysThereWere(t *testing.T) {
	t.Parallel()
	m := meter.New(prometheus.NewRegistry())
	r := newRule(t, "r", 1)
	m.Install(indexOf(r))
	for _, keys := range []int{1, tally.MaxTopKeys - 1, tally.MaxTopKeys, tally.MaxTopKeys + 1, 5000, 3} {
		for i := range 2 * keys {
			d := refusal(r, i%keys)
			m.Record("d", &d)
		}
		v := m.Close(time.Now(), false).Versions[0]
		if n := float64(v.Distinct.Estimate()); n < 0.93*float64(keys) || n > 1.07*float64(keys) || len(v.Keys) != min(keys, tally.MaxTopKeys) {
			t.Errorf("%v keys, %d of them named; there were %d", n, len(v.Keys), keys)
		}
	}
}
