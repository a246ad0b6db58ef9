package storagetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// noon is when the windows of the tests begin: a full hour.
var noon = time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)

func source(node, epoch string) tally.Source { return tally.Source{Node: node, Epoch: epoch} }

// window is one of ten seconds; the number of one that begins at noon is 1.
func window(number int64, versions ...tally.VersionTally) tally.Window {
	start := noon.Add(time.Duration(number-1) * tally.Span)
	return tally.Window{Number: number, Start: start, End: start.Add(tally.Span), Versions: versions}
}

// counted is n requests that v1 of a rule of domain api allowed.
func counted(uid string, n int64) tally.VersionTally {
	return tally.VersionTally{Domain: "api", UID: uid, Version: 1, Counts: tally.Counts{tally.CellAllowed: n}}
}

func of(s tally.Source, windows ...tally.Window) tally.SourceWindows {
	return tally.SourceWindows{Source: s, Windows: windows}
}

func saveWindows(t *testing.T, s storage.Store, batch ...tally.SourceWindows) {
	t.Helper()
	if err := s.SaveWindows(t.Context(), batch); err != nil {
		t.Fatalf("save windows: %v", err)
	}
}

func saveOpen(t *testing.T, s storage.Store, batch ...tally.SourceWindows) {
	t.Helper()
	if err := s.SaveOpen(t.Context(), batch); err != nil {
		t.Fatalf("save open windows: %v", err)
	}
}

// uid makes a rule of domain api, in one revision, and returns its uid.
func uid(t *testing.T, s storage.Store, name string) string {
	t.Helper()
	create(t, s, "api", name)
	return mustHistory(t, s, name)[0].Rule.UID
}

func mustSeries(t *testing.T, s storage.Store, q tally.Query) []tally.Point {
	t.Helper()
	points, err := s.Series(t.Context(), q)
	if err != nil {
		t.Fatalf("series: %v", err)
	}
	return points
}

// day asks for all of the day of noon.
func day(step tally.Step) tally.Query {
	return tally.Query{From: noon.Add(-12 * time.Hour), To: noon.Add(12 * time.Hour), Step: step}
}

// wantAllowed wants a rule to have that many requests, in the steps of each length.
func wantAllowed(t *testing.T, s storage.Store, uid string, want int64) {
	t.Helper()
	for _, step := range tally.Steps() {
		q := day(step)
		q.UIDs = []string{uid}
		var got int64
		for _, p := range mustSeries(t, s, q) {
			got += p.Counts[tally.CellAllowed]
		}
		if got != want {
			t.Fatalf("steps of %v hold %d requests, want %d", time.Duration(step), got, want)
		}
	}
}

func windowsAreStoredOnce(t *testing.T, f *fixture) {
	other, rule := f.another(t), uid(t, f.store, "plan")
	n1, n2 := source("n1", "e1"), source("n2", "e1")
	stored := func(s tally.Source, want int64) {
		t.Helper()
		if got, err := other.Stored(t.Context(), s); err != nil || got != want {
			t.Fatalf("stored of %v: %d, %v, want %d", s, got, err, want)
		}
	}
	saveWindows(t, f.store)
	stored(n1, 0)
	saveWindows(t, f.store, of(n1, window(1, counted(rule, 1)), window(2, counted(rule, 10))))
	stored(n1, 2)
	saveWindows(t, other, of(n1, window(1, counted(rule, 1)), window(2, counted(rule, 10))))
	saveWindows(t, other, of(n1, window(2, counted(rule, 10)), window(3, counted(rule, 100))), of(n2, window(1, counted(rule, 1_000))))
	wantAllowed(t, f.store, rule, 1_111)
	stored(n1, 3)
	stored(n2, 1)
	// The same source from two of its streams at once, and another life of the same node.
	saveWindows(t, f.store, of(n1, window(4, counted(rule, 10_000))), of(n1, window(3, counted(rule, 100)), window(4, counted(rule, 10_000)), window(5)),
		of(source("n1", "e2"), window(1, counted(rule, 100_000))))
	wantAllowed(t, f.store, rule, 111_111)
	stored(n1, 5)
	stored(source("n1", "E1"), 0)
	// What is no window of a source changes nothing.
	saveWindows(t, f.store, of(source("n3", "e1")), of(source("n4", "e1"), window(0, counted(rule, 5))), of(source("n5", "e1"), window(-1, counted(rule, 5))))
	stored(source("n4", "e1"), 0)
	wantAllowed(t, f.store, rule, 111_111)
	wantMissing(t, f.store, tally.Missing{Source: n1, From: window(5).End, To: window(5).End})
}

func wantMissing(t *testing.T, s storage.Store, want ...tally.Missing) {
	t.Helper()
	got, err := s.Missing(t.Context(), noon.Add(-12*time.Hour), noon.Add(12*time.Hour))
	if err != nil {
		t.Fatalf("missing: %v", err)
	}
	wantSame(t, "missing", append([]tally.Missing{}, got...), append([]tally.Missing{}, want...))
}

// A database that was restored has forgotten windows; or a sidecar lost them.
func gapsAreNoted(t *testing.T, f *fixture) {
	n1, n2 := source("n1", "e1"), source("n2", "e1")
	saveWindows(t, f.store, of(n1, window(1), window(4), window(5), window(7)), of(n2, window(31)))
	saveWindows(t, f.another(t), of(n1, window(4), window(6), window(7)))
	gap := func(s tally.Source, from, to, windows int64) tally.Missing {
		return tally.Missing{Source: s, From: window(from).Start, To: window(to).Start, Windows: windows}
	}
	wantMissing(t, f.another(t), gap(n1, 6, 7, 1), gap(n1, 2, 4, 2), gap(n2, 1, 31, 30))
	got, err := f.store.Missing(t.Context(), window(4).Start.Add(time.Microsecond), window(6).Start)
	if err != nil {
		t.Fatalf("missing: %v", err)
	}
	wantSame(t, "missing in a time", got, []tally.Missing{gap(n2, 1, 31, 30)})
}

func killedNodesAreMissing(t *testing.T, f *fixture) {
	first, second, third := source("n1", "b"), source("n1", "a"), source("n1", "c")
	// Each life numbers its windows from 1 on.
	numbered := func(number, at int64) tally.Window {
		w := window(at)
		w.Number = number
		return w
	}
	left := func(s tally.Source, from, to int64) tally.Missing {
		return tally.Missing{Source: s, From: window(from).End, To: window(to).Start}
	}
	saveWindows(t, f.store, of(first, window(1)), of(source("n2", "x"), numbered(1, 9)))
	wantMissing(t, f.store)
	saveWindows(t, f.store, of(second, numbered(1, 5)))
	wantMissing(t, f.store, left(first, 1, 5))
	// Its last window comes by another replica, late.
	last := window(2)
	last.Last = true
	saveWindows(t, f.another(t), of(first, last))
	wantMissing(t, f.store)
	saveWindows(t, f.store, of(third, numbered(1, 7)))
	wantMissing(t, f.store, left(second, 5, 7))
	saveWindows(t, f.store, of(second, numbered(2, 8))) // it was not dead: two shared the name, or a clock is off
	wantMissing(t, f.store, tally.Missing{Source: second, From: window(8).End, To: window(8).End})
}

// A killed node need not come back: where programs are named anew with each start, none does.
func silentNodesAreMissing(t *testing.T, f *fixture) {
	seen := func(id string, at time.Time) rollout.Node {
		return rollout.Node{ID: id, Domain: "api", Stream: 1, Seen: at.UTC().Truncate(time.Microsecond)}
	}
	saveNodes(t, f.store,
		seen("killed", window(3).Start), seen("stopped", window(3).Start), seen("told-all", window(1).End), seen("alive", time.Now()),
		seen("again", window(3).Start))
	stopped := window(1)
	stopped.Last = true
	next := window(5)
	next.Number = 1
	saveWindows(t, f.store, of(source("killed", "a"), window(1)), of(source("stopped", "a"), stopped), of(source("told-all", "a"), window(1)),
		of(source("alive", "a"), window(1)), of(source("again", "a"), window(1)), of(source("again", "b"), next))
	lost := tally.Missing{Source: source("killed", "a"), From: window(1).End, To: window(3).Start}
	wantMissing(t, f.store, tally.Missing{Source: source("again", "a"), From: window(1).End, To: window(5).Start}, lost)
	saveWindows(t, f.store, of(source("killed", "a"), window(2), window(3))) // it was only cut off
	wantMissing(t, f.store, tally.Missing{Source: source("again", "a"), From: window(1).End, To: window(5).Start})
}

func lastSourcesAreKnown(t *testing.T, f *fixture) {
	want := func(list ...tally.Progress) {
		t.Helper()
		got, err := f.store.Sources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "sources", append([]tally.Progress{}, got...), append([]tally.Progress{}, list...))
	}
	want()
	last := window(2)
	last.Last = true
	first, other := source("n2", "b"), source("n1", "x")
	saveWindows(t, f.store, of(first, window(1), last), of(other, window(1)))
	one := tally.Progress{Source: other, Stored: 1, Began: window(1).Start, Until: window(1).End}
	want(one, tally.Progress{Source: first, Stored: 2, Began: window(1).Start, Until: last.End, Stopped: true})
	again := window(5)
	again.Number = 1
	second := source("n2", "a")
	saveWindows(t, f.store, of(second, again))
	want(one, tally.Progress{Source: second, Stored: 1, Began: again.Start, Until: again.End})
}

// everyCell has another count in each cell.
func everyCell(uid string, version, base int64) tally.VersionTally {
	v := tally.VersionTally{Domain: "api", UID: uid, Version: version}
	for i := range v.Counts {
		v.Counts[i] = base + int64(i)*7
	}
	return v
}

func stepsHoldWholeWindows(t *testing.T, f *fixture) {
	plan, login := uid(t, f.store, "plan"), uid(t, f.store, "login")
	create(t, f.store, "web", "page")
	page := mustRules(t, f.store, "web")[0].UID
	onWeb := everyCell(page, 1, 1_000)
	onWeb.Domain = "web"
	late := window(6, everyCell(plan, 1, 5)) // begins at 12:00:50 and ends in the next hour: it was merged
	late.End = noon.Add(2 * time.Hour)
	hour2 := window(361, everyCell(plan, 1, 9), onWeb) // 13:00:00
	saveWindows(t, f.store, of(source("n1", "e1"), window(1, everyCell(plan, 1, 0), everyCell(plan, 2, 1<<40)), late, hour2),
		of(source("n2", "e1"), window(1, everyCell(plan, 1, 2), everyCell(login, 1, 3))))

	point := func(v tally.VersionTally, after time.Duration, more ...tally.VersionTally) tally.Point {
		p := tally.Point{Domain: v.Domain, UID: v.UID, Version: v.Version, Start: noon.Add(after), Counts: v.Counts}
		for i := range more {
			p.Counts.Add(&more[i].Counts)
		}
		return p
	}
	want := func(what string, q tally.Query, points ...tally.Point) {
		t.Helper()
		wantSame(t, what, append([]tally.Point{}, mustSeries(t, f.another(t), q)...), append([]tally.Point{}, points...))
	}
	q := day(tally.StepWindow)
	q.UIDs = []string{plan}
	want("windows", q, point(everyCell(plan, 1, 0), 0, everyCell(plan, 1, 2)), point(everyCell(plan, 1, 5), 50*time.Second),
		point(everyCell(plan, 1, 9), time.Hour), point(everyCell(plan, 2, 1<<40), 0))
	q.Step = tally.StepMinute
	want("minutes", q, point(everyCell(plan, 1, 0), 0, everyCell(plan, 1, 2), everyCell(plan, 1, 5)), point(everyCell(plan, 1, 9), time.Hour),
		point(everyCell(plan, 2, 1<<40), 0))
	q.From, q.To = noon.Add(time.Microsecond), noon.Add(time.Hour)
	want("from after the first until before the last", q)
	q.From, q.To, q.Domain = noon, noon.Add(time.Hour+time.Microsecond), "api"
	q.Step = tally.StepHour
	want("hours", q, point(everyCell(plan, 1, 0), 0, everyCell(plan, 1, 2), everyCell(plan, 1, 5)), point(everyCell(plan, 1, 9), time.Hour),
		point(everyCell(plan, 2, 1<<40), 0))
	q.Domain = "web"
	want("rules of another domain", q)
	q.UIDs = nil
	want("all rules of a domain", q, point(onWeb, time.Hour))
	q.UIDs = []string{}
	want("no rules", q)
	q.Domain, q.UIDs = "", nil
	if got := mustSeries(t, f.store, q); len(got) != 5 {
		t.Errorf("all rules have %d points, want 5", len(got))
	}
}

func domainsAreCounted(t *testing.T, f *fixture) {
	w1, w2 := window(1), window(2)
	w1.Domains = []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{1, 2, 3, 4, 5, 6}}, {Domain: "web", Counts: tally.DomainCounts{7}}}
	w2.Domains = []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{10, 20, 30, 40, 50, 60}}}
	for range 2 {
		saveWindows(t, f.store, of(source("n1", "e1"), w1, w2))
	}
	saveWindows(t, f.store, of(source("n2", "e1"), w1))
	want := func(q tally.Query, points ...tally.DomainPoint) {
		t.Helper()
		got, err := f.another(t).DomainSeries(t.Context(), q)
		if err != nil {
			t.Fatalf("domain series: %v", err)
		}
		wantSame(t, "domain series", append([]tally.DomainPoint{}, got...), append([]tally.DomainPoint{}, points...))
	}
	q := day(tally.StepWindow)
	q.Domain = "api"
	want(q, tally.DomainPoint{Domain: "api", Start: noon, Counts: tally.DomainCounts{2, 4, 6, 8, 10, 12}},
		tally.DomainPoint{Domain: "api", Start: noon.Add(tally.Span), Counts: tally.DomainCounts{10, 20, 30, 40, 50, 60}})
	hour := day(tally.StepHour)
	want(hour, tally.DomainPoint{Domain: "api", Start: noon, Counts: tally.DomainCounts{12, 24, 36, 48, 60, 72}},
		tally.DomainPoint{Domain: "web", Start: noon, Counts: tally.DomainCounts{14}})
	hour.Domain = "Api"
	want(hour)
}

// birthsTellOfVersions: also of rules that were deleted, whose tallies stay.
func birthsTellOfVersions(t *testing.T, f *fixture) {
	rule := uid(t, f.store, "plan")
	promote(t, f.store, "plan", rules.AllKeys)
	edit(t, f.store, rollout.ActionApply, "plan", func(r *rules.Rule) { r.Candidate = &rules.Version{Number: 2, Spec: spec(90)} })
	saveWindows(t, f.store, of(source("n1", "e1"), window(1, counted(rule, 3))))
	edit(t, f.store, rollout.ActionDelete, "plan", func(r *rules.Rule) { r.Stable, r.Candidate = nil, nil })
	births, err := f.another(t).Births(t.Context(), []string{rule, "nobody", "bad\x00uid"})
	if err != nil {
		t.Fatalf("births: %v", err)
	}
	want := map[string]tally.Birth{rule: {Domain: "api", Rule: "plan", Revisions: []int64{1, 3}}}
	if diff := cmp.Diff(want, births); diff != "" {
		t.Errorf("births (-want +got):\n%s", diff)
	}
	wantAllowed(t, f.store, rule, 3)
}

// openNow is a window that is open at present. It began with the hour, and ends so long from now.
func openNow(number int64, length time.Duration, versions ...tally.VersionTally) tally.Window {
	start := time.Now().Truncate(time.Hour)
	return tally.Window{
		Number: number, Start: start, End: time.Now().Add(length), Versions: versions,
		Domains: []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{tally.RequestsAllowed: versions[0].Counts[0]}}},
	}
}

// wantNow wants the sums of this hour, of the rules and of the domain alike.
func wantNow(t *testing.T, s storage.Store, want int64) {
	t.Helper()
	for _, step := range tally.Steps() {
		q := tally.Query{Domain: "api", From: time.Now().Truncate(time.Hour), To: time.Now().Add(time.Hour), Step: step}
		points := mustSeries(t, s, q)
		domains, err := s.DomainSeries(t.Context(), q)
		if err != nil {
			t.Fatalf("domain series: %v", err)
		}
		got := fmt.Sprint(len(points), sum(points), len(domains), sumDomains(domains))
		if steps := min(want, 1); got != fmt.Sprint(steps, want, steps, want) {
			t.Fatalf("points and requests of the rule and the domain: %s, want %d of each", got, want)
		}
	}
}

func sum(points []tally.Point) (n int64) {
	for i := range points {
		n += points[i].Counts.Matched()
	}
	return n
}

func sumDomains(points []tally.DomainPoint) (n int64) {
	for i := range points {
		n += points[i].Counts.Total()
	}
	return n
}

func openWindowsAreAdded(t *testing.T, f *fixture) {
	rule, other := uid(t, f.store, "plan"), f.another(t)
	n1 := source("n1", "e1")
	open := func(n int64, counts int64, ago time.Duration) tally.SourceWindows {
		return of(n1, openNow(n, -ago, counted(rule, counts)))
	}
	saveOpen(t, f.store)
	saveOpen(t, f.store, open(2, 5, 0))
	wantNow(t, other, 0) // window 1 is still to come
	saveOpen(t, f.store, open(1, 5, 50*time.Second))
	wantNow(t, other, 5)
	saveOpen(t, other, open(1, 7, 20*time.Second), open(1, 6, 40*time.Second))
	wantNow(t, f.store, 7)
	saveOpen(t, f.store, open(1, 6, 30*time.Second)) // it was under way for long
	wantNow(t, f.store, 7)
	saveOpen(t, f.store, open(2, 1, 15*time.Second))
	wantNow(t, f.store, 7) // still
	saveWindows(t, other, open(1, 8, 10*time.Second))
	wantNow(t, f.store, 8)
	saveOpen(t, f.store, open(1, 9, 0)) // closed meanwhile
	wantNow(t, f.store, 8)
	saveOpen(t, f.store, open(2, 1, 0), of(source("n2", "e1"), openNow(1, 0, counted(rule, 100))))
	wantNow(t, other, 109)
	// The node's next life; and a word of the old one that comes late.
	saveOpen(t, f.store, of(source("n2", "e2"), openNow(1, time.Second, counted(rule, 200))))
	wantNow(t, other, 209)
	saveOpen(t, f.store, of(source("n2", "e1"), openNow(1, 0, counted(rule, 300))))
	wantNow(t, other, 209)

	last := openNow(2, 0, counted(rule, 1))
	last.Last = true
	saveWindows(t, f.store, of(n1, last))
	saveOpen(t, f.store, open(3, 5, 0))
	wantNow(t, f.store, 209)
	wantNow(t, other, 209)
}

func silentNodesTotalsAreLeftOut(t *testing.T, f *fixture) {
	rule := uid(t, f.store, "plan")
	saveOpen(t, f.store, of(source("n1", "e1"), openNow(1, time.Second-tally.OpenFor, counted(rule, 1))),
		of(source("n2", "e1"), openNow(1, -time.Second-tally.OpenFor, counted(rule, 10))))
	// The first goes silent as well when its second is over, which a slow machine may see.
	q := tally.Query{From: time.Now().Add(-2 * time.Hour), To: time.Now(), Step: tally.StepHour}
	if got := sum(mustSeries(t, f.store, q)); got > 1 {
		t.Errorf("%d requests, want those of the node that is not silent", got)
	}
}
