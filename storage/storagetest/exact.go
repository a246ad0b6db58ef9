package storagetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// tallied is what a generator counted for itself: of a rule and its domain, by cell.
type tallied struct {
	rules   map[string]*tally.Counts
	domains tally.DomainCounts
}

// generate makes the windows of a source, and keeps count.
func generate(random *rand.Rand, uids []string, n int64, into *tallied) []tally.Window {
	windows := make([]tally.Window, n)
	for i := range windows {
		w := window(int64(i + 1))
		for _, u := range uids {
			v := tally.VersionTally{Domain: "api", UID: u, Version: 1}
			for range 5 {
				v.Counts[random.IntN(int(tally.Cells))] += random.Int64N(1 << 30)
			}
			w.Versions = append(w.Versions, affected(v, 1, random.IntN(50)))
			into.rules[u].Add(&v.Counts)
		}
		d := tally.DomainTally{Domain: "api"}
		for c := range d.Counts {
			d.Counts[c] = random.Int64N(1 << 30)
		}
		w.Domains = []tally.DomainTally{d}
		into.domains.Add(&d.Counts)
		w.Refusals = []tally.Refusal{refusal(uids[0], i, key(i))}
		windows[i] = w
	}
	return windows
}

// Replicas store overlapping batches of the same sources at the same time, in whatever order, some more than once, and
// some are cut anywhere. Whatever happens, what is stored is what was counted.
func talliesAreExact(t *testing.T, f *fixture) {
	const sources, windows, savers = 12, 25, 8
	uids := []string{uid(t, f.store, "plan"), uid(t, f.store, "login"), uid(t, f.store, "search")}
	stores := []storage.Store{f.store, f.another(t)}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test repeats itself
	truth := tallied{rules: map[string]*tally.Counts{}}
	for _, u := range uids {
		truth.rules[u] = &tally.Counts{}
	}
	all := make([]tally.SourceWindows, sources)
	for i := range all {
		all[i] = of(source(fmt.Sprintf("n%02d", i), "e1"), generate(random, uids, windows, &truth)...)
	}
	var g errgroup.Group
	for i := range savers {
		g.Go(func() error {
			s := saver{store: stores[i%2], random: rand.New(rand.NewPCG(3, uint64(i))), all: all} //nolint:gosec // as above
			return s.run(t.Context())
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("save windows: %v", err)
	}
	for _, step := range tally.Steps() {
		got := map[string]*tally.Counts{}
		for _, u := range uids {
			got[u] = &tally.Counts{}
		}
		for _, p := range mustSeries(t, f.store, day(step)) {
			got[p.UID].Add(&p.Counts)
		}
		wantSame(t, fmt.Sprint("counts in steps of ", time.Duration(step)), got, truth.rules)
		points, err := f.store.DomainSeries(t.Context(), day(step))
		if err != nil {
			t.Fatal(err)
		}
		var domains tally.DomainCounts
		for i := range points {
			domains.Add(&points[i].Counts)
		}
		wantSame(t, "counts of the domain", domains, truth.domains)
	}
	wantMissing(t, f.store)
	keys, err := f.store.Keys(t.Context(), day(tally.StepMinute))
	if err != nil || len(keys) != len(uids) {
		t.Fatalf("keys of %d versions, %v, want %d", len(keys), err, len(uids))
	}
	for i := range keys {
		var n int64
		for _, k := range keys[i].Keys.Keys() {
			n += k.Refused
		}
		wantSame(t, "keys", n, int64(sources*windows))
	}
	refusals, err := f.store.Refusals(t.Context(), tally.RefusalQuery{From: noon, To: noon.Add(time.Hour), Limit: 2 * sources * windows})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "refusals", len(refusals), sources*windows)
}

// saver is a replica: it sends of any source from what is stored on, or from before, until all is stored.
type saver struct {
	store  storage.Store
	random *rand.Rand
	all    []tally.SourceWindows
}

func (s *saver) run(ctx context.Context) error {
	for {
		var batch []tally.SourceWindows
		behind := 0
		for _, i := range s.random.Perm(len(s.all)) {
			stored, err := s.store.Stored(ctx, s.all[i].Source)
			if err != nil {
				return err
			}
			windows := s.all[i].Windows
			if stored < int64(len(windows)) {
				behind++
			}
			from := max(0, int(stored)-s.random.IntN(3))
			to := min(len(windows), int(stored)+s.random.IntN(4))
			if from < to && s.random.IntN(2) == 0 {
				batch = append(batch, of(s.all[i].Source, windows[from:to]...))
			}
		}
		if behind == 0 {
			return nil
		}
		if err := s.save(ctx, batch); err != nil {
			return err
		}
	}
}

// save is cut every third time, mostly in the middle.
func (s *saver) save(ctx context.Context, batch []tally.SourceWindows) error {
	if s.random.IntN(3) > 0 {
		return s.store.SaveWindows(ctx, batch)
	}
	cut, cancel := context.WithTimeout(ctx, time.Duration(s.random.IntN(8_000))*time.Microsecond)
	defer cancel()
	if err := s.store.SaveWindows(cut, batch); err != nil && cut.Err() == nil {
		return err
	}
	return ctx.Err()
}

// A reader sees each window once, open or closed: the sum never shrinks while windows close.
func sumsNeverShrink(t *testing.T, f *fixture) {
	rule, other := uid(t, f.store, "plan"), f.another(t)
	const n = 40
	s := source("n1", "e1")
	ctx, done := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error {
		defer done()
		for i := range int64(n) {
			for _, counts := range []int64{1, 5} {
				if err := f.store.SaveOpen(t.Context(), []tally.SourceWindows{of(s, openNow(i+1, time.Duration(i)*time.Millisecond, counted(rule, counts)))}); err != nil {
					return err
				}
			}
			w := openNow(i+1, 0, counted(rule, 5))
			if err := f.store.SaveWindows(t.Context(), []tally.SourceWindows{of(s, w)}); err != nil {
				return err
			}
		}
		return nil
	})
	var last int64
	for last < 5*n {
		q := tally.Query{UIDs: []string{rule}, From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(time.Hour), Step: tally.StepMinute}
		got := sum(mustSeries(t, other, q))
		if got < last {
			t.Errorf("the sum went from %d to %d", last, got)
			break
		}
		last = got
		if ctx.Err() != nil && last < 5*n {
			last = sum(mustSeries(t, other, q))
			break
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("save: %v", err)
	}
	if last != 5*n {
		t.Errorf("the sum is %d at last, want %d", last, 5*n)
	}
}
