package meter_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// call records that a key called a rule.
func call(m *meter.Meter, r *rules.Rule, o tally.Outcome, key int) {
	m.Record("d", &enforce.Decision{Allowed: true, Outcomes: []enforce.VersionOutcome{outcome(r, o, requestOf(key))}})
}

func rateKey(r *rules.Rule, key int) tally.RateKey {
	o := outcome(r, tally.Allowed, requestOf(key))
	return o.Key.Rate()
}

// noon is when a minute begins.
var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func TestRatesComeWithTheWindowThatEndsAMinute(t *testing.T) {
	t.Parallel()
	m := meter.New(prometheus.NewRegistry())
	stable, candidate := newRule(t, "stable", 1), newRule(t, "candidate", 2)
	candidate.Stable, candidate.Candidate = &rules.Version{Number: 1, Spec: candidate.Stable.Spec}, candidate.Stable
	m.Install(indexOf(candidate, stable))
	m.Close(noon, true)
	rates := func(w tally.Window) map[string]tally.Rates {
		all := map[string]tally.Rates{}
		for _, v := range w.Versions {
			if !v.Rates.IsZero() {
				all[fmt.Sprintf("%s v%d", v.UID, v.Version)] = v.Rates
			}
		}
		return all
	}
	want := func(what string, w tally.Window, want map[string]tally.Rates) {
		t.Helper()
		if diff := cmp.Diff(want, rates(w)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	both := func(key int) {
		d := enforce.Decision{Allowed: true, Outcomes: []enforce.VersionOutcome{
			outcome(candidate, tally.Allowed, requestOf(key)), outcome(candidate, tally.WouldRefuse, requestOf(key)), outcome(stable, tally.Refused, requestOf(key)),
		}}
		d.Outcomes[1].Version = candidate.Candidate
		m.Record("d", &d)
	}
	both(1)
	both(1)
	want("the window that begins a minute", m.Close(noon.Add(tally.Span), false), map[string]tally.Rates{})
	both(2)
	want("the open window", m.Open(noon.Add(50*time.Second)), map[string]tally.Rates{})
	m.Close(noon.Add(50*time.Second), false)
	sample := func(r *rules.Rule, calls ...tally.KeyRate) tally.Rates {
		for i := range calls {
			calls[i].Key = rateKey(r, int(calls[i].Key))
		}
		return tally.NewRates(0, calls)
	}
	minute := sample(stable, tally.KeyRate{Key: 1, Calls: 2}, tally.KeyRate{Key: 2, Calls: 1})
	want("the window that ends it", m.Close(noon.Add(time.Minute), false), map[string]tally.Rates{"uid-stable v1": minute, "uid-candidate v2": minute})
	want("the next minute", m.Close(noon.Add(2*time.Minute), false), map[string]tally.Rates{})
	both(2)
	part := sample(stable, tally.KeyRate{Key: 2, Calls: 1})
	want("the last window", m.Close(noon.Add(2*time.Minute+time.Second), true), map[string]tally.Rates{"uid-stable v1": part, "uid-candidate v2": part})
}

// Of many keys a sample is known, and what is known of each is exact.
func TestRatesOfManyKeysAreASample(t *testing.T) {
	t.Parallel()
	m := meter.New(prometheus.NewRegistry())
	r := newRule(t, "r", 1)
	m.Install(indexOf(r))
	m.Close(noon, false)
	const keys = 50_000
	for range 2 {
		for i := range keys {
			call(m, r, tally.Allowed, i)
		}
	}
	got := m.Close(noon.Add(time.Minute), false).Versions[0].Rates
	var want []tally.KeyRate
	for i := range keys {
		if k := rateKey(r, i); k.In(got.Level) {
			want = append(want, tally.KeyRate{Key: k, Calls: 2})
		}
	}
	if diff := cmp.Diff(tally.NewRates(got.Level, want), got); diff != "" || len(got.Keys) > tally.MaxRateKeys || len(got.Keys) < tally.MaxRateKeys/3 {
		t.Errorf("%d keys at level %d (-want +got):\n%s", len(got.Keys), got.Level, diff)
	}
}

// The memory of all rules is bounded, and those with few keys are known whole all the same.
func TestManyRulesShareABudgetOfKeys(t *testing.T) {
	t.Parallel()
	m := meter.New(prometheus.NewRegistry())
	list := make([]*rules.Rule, 100)
	for i := range list {
		list[i] = newRule(t, fmt.Sprintf("r%03d", i), 1)
	}
	m.Install(indexOf(list...))
	m.Close(noon, false)
	const few, some = 5, 900
	small := list[len(list)-1]
	for i := range some {
		for _, r := range list[:len(list)-1] {
			call(m, r, tally.Allowed, i)
		}
	}
	for i := range few {
		call(m, small, tally.Allowed, i)
	}
	sum, least := 0, some
	for _, v := range m.Close(noon.Add(time.Minute), false).Versions {
		sum += len(v.Rates.Keys)
		if v.UID != small.UID {
			least = min(least, len(v.Rates.Keys))
		} else if len(v.Rates.Keys) != few || v.Rates.Level != 0 {
			t.Errorf("of the small rule %d keys are known at level %d, want all", len(v.Rates.Keys), v.Rates.Level)
		}
	}
	if sum > 2*meter.MaxMinuteKeys || sum < meter.MaxMinuteKeys/2 || least < meter.MaxMinuteKeys/len(list)/4 {
		t.Errorf("%d keys in all, at least %d of each of the large rules", sum, least)
	}
}

// Whatever runs while minutes close and levels rise, no call of a key that is in the sample is lost or counted twice.
func TestRatesAreExactUnderContention(t *testing.T) {
	t.Parallel()
	m := meter.New(prometheus.NewRegistry())
	r := newRule(t, "r", 1)
	m.Install(indexOf(r))
	m.Close(noon, false)
	const callers, keys, rounds = 4, 1500, 40
	decisions := make([]enforce.Decision, keys)
	for i := range decisions {
		decisions[i] = enforce.Decision{Allowed: true, Outcomes: []enforce.VersionOutcome{outcome(r, tally.Allowed, requestOf(i))}}
	}
	var recording sync.WaitGroup
	for range callers {
		recording.Go(func() {
			for i := range rounds * keys {
				m.Record("d", &decisions[i%keys])
			}
		})
	}
	done := make(chan struct{})
	go func() { recording.Wait(); close(done) }()
	got, level := map[tally.RateKey]int64{}, 0
	for n, running := 1, true; running; n++ {
		select {
		case <-done:
			running = false
		default:
		}
		for _, v := range m.Close(noon.Add(time.Duration(n)*time.Minute), false).Versions {
			level = max(level, v.Rates.Level)
			for _, k := range v.Rates.Keys {
				got[k.Key] += k.Calls
			}
		}
	}
	known := 0
	for i := range decisions {
		k := decisions[i].Outcomes[0].Key.Rate()
		if !k.In(level) {
			continue
		}
		if known++; got[k] != callers*rounds {
			t.Errorf("%d calls of key %d, want %d", got[k], i, callers*rounds)
		}
	}
	if known == 0 {
		t.Errorf("no key is known at level %d", level)
	}
}
