package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

func key(n int) tally.KeyID {
	return tally.KeyID{byte(n >> 8), byte(n), 15: 1} //nolint:gosec // its lowest two bytes
}

// affected adds keys to a tally: those of the numbers, each so often.
func affected(v tally.VersionTally, refused int64, numbers ...int) tally.VersionTally {
	var top tally.TopKeys
	for _, n := range numbers {
		top.Add(key(n), refused, 0, func() string { return fmt.Sprintf("label %d", n) })
		v.Distinct.Add(key(n * 977))
	}
	v.Keys = top.Keys()
	return v
}

func keysAreMerged(t *testing.T, f *fixture) {
	rule, other := uid(t, f.store, "plan"), f.another(t)
	n1, n2 := source("n1", "e1"), source("n2", "e1")
	// Minutes of the hour before, of the hour, and of the hour after: 11:50 to 13:10.
	var windows []tally.Window
	for minute := -10; minute < 70; minute++ {
		w := window(int64(minute+11), affected(counted(rule, 1), 1, 1, 2), counted(rule, 1))
		w.Start = noon.Add(time.Duration(minute) * time.Minute)
		w.End = w.Start.Add(time.Minute)
		w.Versions[1].Version = 2 // of which nobody is affected
		windows = append(windows, w)
	}
	saveWindows(t, f.store, of(n1, windows...))
	saveWindows(t, other, of(n1, windows[len(windows)-1]), of(n2, window(1, affected(counted(rule, 1), 5, 2, 3)))) // noon

	want := func(what string, from, to time.Duration, counts map[int]int64) {
		t.Helper()
		got, err := other.Keys(t.Context(), tally.Query{UIDs: []string{rule}, From: noon.Add(from), To: noon.Add(to)})
		if err != nil {
			t.Fatalf("keys: %v", err)
		}
		if len(counts) == 0 && len(got) == 0 {
			return
		}
		if len(got) != 1 || got[0].Domain != "api" || got[0].UID != rule || got[0].Version != 1 {
			t.Fatalf("%s: keys of %d versions, want those of v1", what, len(got))
		}
		refused := map[int]int64{}
		for _, k := range got[0].Keys.Keys() {
			n := int(k.Key[0])<<8 + int(k.Key[1])
			refused[n] = k.Refused
		}
		wantSame(t, what, refused, counts)
		if d := got[0].Distinct.Estimate(); d != int64(len(counts)) {
			t.Errorf("%s: about %d keys, want %d", what, d, len(counts))
		}
	}
	want("all", -time.Hour, 2*time.Hour, map[int]int64{1: 80, 2: 85, 3: 5})
	want("from within an hour to within the next but one", -9*time.Minute, 69*time.Minute, map[int]int64{1: 78, 2: 83, 3: 5})
	want("part of an hour", time.Minute, 59*time.Minute, map[int]int64{1: 58, 2: 58})
	want("an hour", 0, time.Hour, map[int]int64{1: 60, 2: 65, 3: 5})
	want("a minute", 0, time.Minute, map[int]int64{1: 1, 2: 6, 3: 5})
	want("before all", -2*time.Hour, -time.Hour, nil)
}

func keysAreSeenFirstAndLast(t *testing.T, f *fixture) {
	rule := uid(t, f.store, "plan")
	saveWindows(t, f.store, of(source("n1", "e1"), window(1, affected(counted(rule, 1), 1, 1)), window(8, affected(counted(rule, 1), 1, 1, 2)),
		window(15, affected(counted(rule, 1), 1, 1, 2)))) // in the minutes from 12:00, 12:01 and 12:02
	want := func(what string, length time.Duration, seen map[tally.KeyID]tally.Seen) {
		t.Helper()
		got, err := f.another(t).Keys(t.Context(), tally.Query{UIDs: []string{rule}, From: noon, To: noon.Add(length)})
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: keys of %d versions, %v, want one", what, len(got), err)
		}
		wantSame(t, what, got[0].Seen, seen)
	}
	one, two := noon.Add(time.Minute), noon.Add(2*time.Minute)
	want("minutes", 3*time.Minute, map[tally.KeyID]tally.Seen{key(1): {First: noon, Last: two}, key(2): {First: one, Last: two}})
	want("the first two minutes", 2*time.Minute, map[tally.KeyID]tally.Seen{key(1): {First: noon, Last: one}, key(2): {First: one, Last: one}})
	want("a minute that names one key", time.Minute, map[tally.KeyID]tally.Seen{key(1): {First: noon, Last: noon}})
	want("an hour", time.Hour, map[tally.KeyID]tally.Seen{key(1): {First: noon, Last: noon}, key(2): {First: noon, Last: noon}})
}

func keysAreBounded(t *testing.T, f *fixture) {
	rule := uid(t, f.store, "plan")
	numbers := func(from, to int) (list []int) {
		for n := from; n < to; n++ {
			list = append(list, n)
		}
		return list
	}
	// Keys that come again in each window are found among many that do not.
	for n := range 5 {
		v := affected(counted(rule, 1), 10, 1, 2, 3)
		rare := affected(counted(rule, 1), 1, numbers(100+n*120, 100+(n+1)*120)...)
		v.Keys = append(v.Keys, rare.Keys...)
		if err := v.Distinct.Merge(&rare.Distinct); err != nil {
			t.Fatal(err)
		}
		saveWindows(t, f.store, of(source(fmt.Sprint("n", n), "e1"), window(1, v)))
	}
	saveWindows(t, f.store, of(source("later", "e1"), window(7, affected(counted(rule, 1), 1, numbers(100, 220)...)))) // in the next minute
	got, err := f.store.Keys(t.Context(), tally.Query{From: noon, To: noon.Add(30 * time.Minute)})
	if err != nil || len(got) != 1 {
		t.Fatalf("keys of %d versions, %v, want one", len(got), err)
	}
	keys := got[0].Keys.Keys()
	if len(keys) != tally.MaxTopKeys {
		t.Errorf("%d keys, want %d", len(keys), tally.MaxTopKeys)
	}
	if len(got[0].Seen) != len(keys) {
		t.Errorf("it is known of %d keys when they were seen, want those that are left", len(got[0].Seen))
	}
	for _, k := range keys[:3] {
		if k.Count() < 50 || k.Count()-k.Over > 50 || k.Label == "" {
			t.Errorf("%+v, want one that was refused 50 times", k)
		}
	}
	if d := got[0].Distinct.Estimate(); d < 570 || d > 636 {
		t.Errorf("about %d keys, want 603 or 5 %% more or less", d)
	}
}

// refusal is one by the second limit, that many microseconds after noon.
func refusal(uid string, after int, k tally.KeyID) tally.Refusal {
	return tally.Refusal{
		Time: noon.Add(time.Duration(after) * time.Microsecond), Domain: "api", UID: uid, Version: 3, Limit: "sustained", Outcome: tally.Refused,
		Key: k, Label: "203.0.113.*", Path: "/v1/hooks", Reference: fmt.Sprint("ref", after),
	}
}

func refusalsAreFound(t *testing.T, f *fixture) {
	plan, login := uid(t, f.store, "plan"), uid(t, f.store, "login")
	create(t, f.store, "web", "page")
	list := []tally.Refusal{
		refusal(plan, 0, key(1)), refusal(plan, 1, key(2)), refusal(login, 2, key(1)), refusal(mustRules(t, f.store, "web")[0].UID, 3, key(1)), refusal(plan, 4, key(1)),
	}
	list[3].Domain, list[3].Outcome, list[3].Reference, list[3].Limit = "web", tally.WouldRefuse, "", ""
	w := window(1)
	for _, r := range list {
		r.Node = "somebody else"
		r.Time = r.Time.In(time.FixedZone("", 7200)).Add(999)
		w.Refusals = append(w.Refusals, r)
	}
	w.Refusals[4].Path = "/\xff\x00"
	for i := range list {
		list[i].Node = "n1"
	}
	list[4].Path = "/\uFFFD\uFFFD"
	for range 2 {
		saveWindows(t, f.store, of(source("n1", "e1"), w))
	}
	for _, c := range []struct {
		what string
		ask  func(*tally.RefusalQuery)
		want []int
	}{
		{"all", func(*tally.RefusalQuery) {}, []int{4, 3, 2, 1, 0}},
		{"the newest", func(q *tally.RefusalQuery) { q.Limit = 2 }, []int{4, 3}},
		{"none", func(q *tally.RefusalQuery) { q.Limit = -1 }, nil},
		{"of a domain", func(q *tally.RefusalQuery) { q.Domain = "web" }, []int{3}},
		{"of a rule", func(q *tally.RefusalQuery) { q.UID = plan }, []int{4, 1, 0}},
		{"of a rule of another domain", func(q *tally.RefusalQuery) { q.UID, q.Domain = plan, "web" }, nil},
		{"of a key", func(q *tally.RefusalQuery) { q.Key = key(1) }, []int{4, 3, 2, 0}},
		{"of a key and a rule", func(q *tally.RefusalQuery) { q.Key, q.UID = key(1), plan }, []int{4, 0}},
		{"by reference", func(q *tally.RefusalQuery) { q.Reference = "ref1" }, []int{1}},
		{"in a time", func(q *tally.RefusalQuery) { q.From, q.To = list[1].Time, list[3].Time }, []int{2, 1}},
	} {
		q := tally.RefusalQuery{From: noon, To: noon.Add(time.Hour), Limit: 10}
		c.ask(&q)
		got, err := f.another(t).Refusals(t.Context(), q)
		if err != nil {
			t.Fatalf("refusals: %v", err)
		}
		want := []tally.Refusal{}
		for _, i := range c.want {
			want = append(want, list[i])
		}
		wantSame(t, c.what, append([]tally.Refusal{}, got...), want)
	}
}

func refusalsAreBounded(t *testing.T, f *fixture) {
	rule, other := uid(t, f.store, "plan"), uid(t, f.store, "login")
	const sent, more = tally.MaxRefusals + 50, 30
	refusals := func(from, n int) (list []tally.Refusal) {
		for i := range n {
			list = append(list, refusal(rule, from+i, key(1)))
		}
		return list
	}
	w1, w2 := window(1), window(2)
	w1.Refusals = append(refusals(0, sent), refusal(other, 0, key(2)))
	w2.Refusals = refusals(sent, more)
	saveWindows(t, f.store, of(source("n1", "e1"), w1))
	saveWindows(t, f.another(t), of(source("n1", "e1"), w2))
	got, err := f.store.Refusals(t.Context(), tally.RefusalQuery{UID: rule, From: noon, To: noon.Add(time.Hour), Limit: 2 * sent})
	if err != nil {
		t.Fatalf("refusals: %v", err)
	}
	if len(got) != tally.MaxRefusals {
		t.Fatalf("%d are kept, want %d", len(got), tally.MaxRefusals)
	}
	if newest, oldest := got[0].Time, got[len(got)-1].Time; newest.Sub(noon) != (sent+more-1)*time.Microsecond || newest.Sub(oldest) != (tally.MaxRefusals-1)*time.Microsecond {
		t.Errorf("those from %v to %v are kept, want the newest", oldest, newest)
	}
	if got, err = f.store.Refusals(t.Context(), tally.RefusalQuery{UID: other, From: noon, To: noon.Add(time.Hour), Limit: 5}); err != nil || len(got) != 1 {
		t.Errorf("%d refusals of another rule, %v, want one", len(got), err)
	}
}

// pruneKeepsWhatIsKept: one window, looked at for as long as any of it is kept.
func pruneKeepsWhatIsKept(t *testing.T, f *fixture) {
	rule := uid(t, f.store, "plan")
	w := window(2, affected(counted(rule, 1), 1, 1))
	w.Domains = []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{1}}}
	w.Refusals = []tally.Refusal{refusal(rule, 0, key(1))}
	n1 := source("n1", "e1")
	saveWindows(t, f.store, of(n1, w))
	look := func(s storage.Store) (there []string) {
		for _, step := range tally.Steps() {
			points := mustSeries(t, s, day(step))
			domains, err := s.DomainSeries(t.Context(), day(step))
			if err != nil {
				t.Fatal(err)
			}
			if len(points) == 1 && len(domains) == 1 {
				there = append(there, time.Duration(step).String())
			} else if len(points)+len(domains) > 0 {
				t.Fatalf("%d points and %d of the domain, want one of each or none", len(points), len(domains))
			}
		}
		from, to := noon.Add(-time.Hour), noon.Add(time.Hour)
		keys, err1 := s.Keys(t.Context(), tally.Query{From: noon, To: noon.Add(time.Minute)})
		refusals, err2 := s.Refusals(t.Context(), tally.RefusalQuery{From: from, To: to, Limit: 5})
		missing, err3 := s.Missing(t.Context(), from, to)
		stored, err4 := s.Stored(t.Context(), n1)
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
			t.Fatal(err1, err2, err3, err4)
		}
		for what, is := range map[string]bool{"keys": len(keys) == 1, "refusals": len(refusals) == 1, "missing": len(missing) == 1, "stored": stored == 2} {
			if is {
				there = append(there, what)
			}
		}
		slices.Sort(there)
		return there
	}
	for _, c := range []struct {
		step tally.Step
		left []string
	}{
		{tally.StepWindow, []string{"1h0m0s", "1m0s", "keys", "missing", "refusals", "stored"}},
		{tally.StepMinute, []string{"1h0m0s", "missing", "stored"}},
		{tally.StepHour, nil},
	} {
		before := look(f.store)
		end := noon.Add(c.step.Keep())
		for _, at := range []time.Time{end, end.Add(time.Hour)} {
			if err := f.store.Prune(t.Context(), at); err != nil {
				t.Fatalf("prune: %v", err)
			}
			if at.Equal(end) {
				wantSame(t, "there at the end of the time", look(f.another(t)), before)
			}
		}
		wantSame(t, fmt.Sprint("there after the time of ", time.Duration(c.step)), look(f.another(t)), c.left)
	}
}

// Rows go in several steps, each with a transaction of its own.
func pruneTakesManyRows(t *testing.T, f *fixture) {
	rule := uid(t, f.store, "plan")
	const n = 2*storage.PruneBatch + 1
	windows := make([]tally.Window, n)
	for i := range windows {
		windows[i] = window(int64(i+1), counted(rule, 1))
	}
	saveWindows(t, f.store, of(source("n1", "e1"), windows...))
	if err := f.store.Prune(t.Context(), noon.Add(n*tally.Span+tally.StepWindow.Keep())); err != nil {
		t.Fatalf("prune: %v", err)
	}
	q := tally.Query{From: noon, To: noon.Add(n * tally.Span), Step: tally.StepWindow}
	if left := len(mustSeries(t, f.store, q)); left != 0 {
		t.Errorf("%d windows are left", left)
	}
	q.Step = tally.StepMinute
	if got := sum(mustSeries(t, f.store, q)); got != n {
		t.Errorf("the minutes hold %d requests, want %d", got, n)
	}
}
