package storagetest

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// rates are the calls of keys 0, 1, … as often as given; 0 is none.
func rates(calls ...int64) tally.Rates {
	var keys []tally.KeyRate
	for i, n := range calls {
		if n > 0 {
			keys = append(keys, tally.KeyRate{Key: tally.RateKey(i), Calls: n})
		}
	}
	return tally.NewRates(0, keys)
}

func mustRates(t *testing.T, s storage.Store, q tally.Query) []tally.VersionRates {
	t.Helper()
	list, err := s.Rates(t.Context(), q)
	if err != nil {
		t.Fatalf("rates: %v", err)
	}
	return append([]tally.VersionRates{}, list...)
}

// The windows that end a minute have its rates: of each node, once.
func ratesAreMerged(t *testing.T, f *fixture) {
	plan, login := uid(t, f.store, "plan"), uid(t, f.store, "login")
	other := f.another(t)
	version := func(v tally.VersionTally, number int64, r tally.Rates) tally.VersionTally {
		v.Version, v.Rates = number, r
		return v
	}
	n1, n2, n3 := source("n1", "e1"), source("n2", "e1"), source("n3", "e1")
	first := window(6, version(counted(plan, 1), 1, rates(1, 0, 3)), version(counted(plan, 0), 2, rates(5)), version(counted(login, 1), 1, tally.NewRates(7, nil)))
	saveWindows(t, f.store, of(n1, window(1, counted(plan, 1), version(counted(plan, 1), 2, tally.Rates{})), first))
	second := window(6, version(counted(plan, 1), 1, rates(0, 2, 30)))
	saveWindows(t, other, of(n1, first), of(n2, second))                                                         // the first one again
	saveWindows(t, f.store, of(n3, second), of(n1, window(12, version(counted(plan, 1), 1, rates(0, 0, 0, 7))))) // of the next minute
	point := func(uid string, number int64, minute int, r tally.Rates) tally.VersionRates {
		return tally.VersionRates{Domain: "api", UID: uid, Version: number, Start: noon.Add(time.Duration(minute) * time.Minute), Rates: r}
	}
	of1 := []tally.VersionRates{point(plan, 1, 0, rates(1, 4, 63)), point(plan, 1, 1, rates(0, 0, 0, 7)), point(plan, 2, 0, rates(5))}
	q := day(tally.StepMinute)
	q.UIDs = []string{plan}
	wantSame(t, "rates of a rule", mustRates(t, other, q), of1)
	q.From, q.To = noon.Add(time.Second), noon.Add(time.Minute+time.Second)
	wantSame(t, "rates of a minute", mustRates(t, f.store, q), of1[1:2])
	q = day(tally.StepMinute)
	q.Domain, q.UIDs = "api", nil
	if all := mustRates(t, f.store, q); len(all) != 4 {
		t.Errorf("rates of a domain: %+v", all)
	}
	q.UIDs = []string{login}
	wantSame(t, "rates of no key at a high level", mustRates(t, f.store, q)[0].Rates.Level, 7)
	q.Domain = "web"
	wantSame(t, "rates of another domain", mustRates(t, f.store, q), []tally.VersionRates{})

	// What only has rates is no step of counts.
	q = day(tally.StepWindow)
	q.UIDs = []string{plan}
	for _, p := range mustSeries(t, f.store, q) {
		if p.Counts.Matched() == 0 {
			t.Errorf("%+v counts nothing", p)
		}
	}
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{0, 3}, {time.Second, 1}, {time.Minute + time.Second, 0}} {
		if err := f.store.Prune(t.Context(), noon.Add(tally.KeepRates+c.after)); err != nil {
			t.Fatal(err)
		}
		q := day(tally.StepMinute)
		q.UIDs = []string{plan}
		if got := mustRates(t, other, q); len(got) != c.left {
			t.Errorf("%d minutes are left %s after the first one's time, want %d", len(got), c.after, c.left)
		}
	}
}

// All nodes end a minute at the same time, some of them in windows that count nothing else.
func ratesAddUpFromManyAtOnce(t *testing.T, f *fixture) {
	const nodes, minutes = 12, 20
	rule, stores := uid(t, f.store, "plan"), []storage.Store{f.store, f.another(t)}
	var g errgroup.Group
	for n := range nodes {
		g.Go(func() error {
			for i := range int64(minutes) {
				v := counted(rule, 0)
				v.Rates = rates(1, int64(n))
				w := tally.Window{Number: i + 1, Start: noon, End: noon.Add(tally.Span), Versions: []tally.VersionTally{v}}
				if err := stores[n%2].SaveWindows(t.Context(), []tally.SourceWindows{of(source(fmt.Sprint("n", n), "e1"), w)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("save windows: %v", err)
	}
	want := rates(nodes*minutes, minutes*nodes*(nodes-1)/2)
	wantSame(t, "rates", mustRates(t, f.store, day(tally.StepMinute))[0].Rates, want)
}
