package report

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/xdspb"
)

func newTestQueue() *queue {
	return newQueue(newClientMetrics(func() (int, time.Duration) { return 0, 0 }), time.Now)
}

func window(start time.Time, versions ...tally.VersionTally) tally.Window {
	return tally.Window{Start: start, End: start.Add(tally.Span), Versions: versions}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// steps are how many windows wait of each length.
func (q *queue) steps() map[time.Duration]int {
	steps := map[time.Duration]int{}
	for _, w := range q.waiting {
		steps[w.End.Sub(w.Start)]++
	}
	return steps
}

func TestWindowsThatWaitAreMergedToMinutesHoursAndDays(t *testing.T) {
	t.Parallel()
	q := newTestQueue()
	const days = 40
	n := int64(0)
	end := noon.Add(days * 24 * time.Hour)
	for at, span := noon, 10*time.Minute; at.Before(end); at = at.Add(span) { // as if it had been busy at first
		if at.After(end.Add(-5 * time.Hour)) {
			span = tally.Span
		}
		n++
		w := window(at, tally.VersionTally{UID: "a", Version: 1, Counts: tally.Counts{1}}, tally.VersionTally{UID: fmt.Sprint(n % 3), Version: n % 2, Counts: tally.Counts{2}})
		w.End = at.Add(span)
		q.add(w)
		if most := 30 + 60 + 48 + 31; len(q.waiting) > most {
			t.Fatalf("%d windows wait after %d, want at most %d", len(q.waiting), n, most)
		}
	}
	sum := tally.Counts{}
	until := noon
	for _, w := range q.waiting {
		for i := range w.Versions {
			sum.Add(&w.Versions[i].Counts)
		}
		if !w.Start.Equal(until) {
			t.Errorf("a window begins at %v, the one before ends at %v", w.Start, until)
		}
		until = w.End
		if step := levels[w.level].step; w.level < len(levels)-1 && w.Start.Truncate(step) != w.End.Add(-1).Truncate(step) {
			t.Errorf("a window of level %d from %v to %v", w.level, w.Start, w.End)
		}
	}
	if sum[0] != 3*n || !until.Equal(end) {
		t.Errorf("%d until %v, want %d", sum[0], until, 3*n)
	}
	steps := q.steps()
	if steps[tally.Span] < 30 || steps[time.Minute] < 55 || steps[time.Hour] < 45 || steps[24*time.Hour] < 29 {
		t.Errorf("windows by length: %v", steps)
	}
}

func TestWhatWasSentIsNeitherMergedNorChanged(t *testing.T) {
	t.Parallel()
	q := newTestQueue()
	version := tally.VersionTally{UID: "a", Version: 1, Counts: tally.Counts{1}}
	for i := range 3 {
		q.add(window(noon.Add(time.Duration(i)*tally.Span), version))
	}
	first, last, err := q.take(0, 0)
	if err != nil || last != 3 || len(first) != 3 {
		t.Fatalf("took %v up to %d, %v", first, last, err)
	}
	var before []*xdspb.Window
	for _, w := range first {
		before = append(before, proto.CloneOf(w))
	}
	for i := range 1000 {
		q.add(window(noon.Add(time.Duration(i+3)*tally.Span), version))
	}
	again, _, err := q.take(0, 0) // the next stream
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range before {
		if !proto.Equal(w, again[i]) {
			t.Errorf("window %d is %v, was %v", i+1, again[i], w)
		}
	}
	q.stored(2)
	after, _, _ := q.take(2, 0)
	if after[0].GetNumber() != 3 {
		t.Errorf("after window 2 comes %d", after[0].GetNumber())
	}
	// Numbers were not given to what waits, so merging left no gaps.
	for number := int64(3); len(q.sent)+len(q.waiting) > 0; {
		list, last, _ := q.take(number-1, 0)
		for _, w := range list {
			if w.GetNumber() != number {
				t.Fatalf("window %d, want %d", w.GetNumber(), number)
			}
			number++
		}
		q.stored(last)
	}
}

// A window with more than a message holds becomes several: nothing is cut.
func TestHugeWindowGoesInParts(t *testing.T) {
	t.Parallel()
	q := newTestQueue()
	w := window(noon)
	w.Last = true
	for i := range 500 {
		v := tally.VersionTally{Domain: "api", UID: fmt.Sprintf("uid-%03d", i), Version: 1, Counts: tally.Counts{int64(i)}}
		for k := range tally.MaxTopKeys {
			v.Keys = append(v.Keys, tally.KeyCount{Key: tally.KeyID{byte(k)}, Label: "#0123456789abcdef", Refused: 1 << 40})
		}
		w.Versions = append(w.Versions, v)
	}
	w.Domains = []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{7}}}
	for i := range maxRefusals {
		w.Refusals = append(w.Refusals, tally.Refusal{Time: noon, UID: "uid-001", Version: 1, Reference: fmt.Sprint(i)})
	}
	want := encode(&w)
	q.add(w)
	var got xdspb.Window
	for sent := int64(0); len(q.sent)+len(q.waiting) > 0; {
		list, last, err := q.take(sent, 0)
		if err != nil || len(list) == 0 {
			t.Fatalf("nothing to send after %d: %v", sent, err)
		}
		size := 0
		for _, part := range list {
			if got.GetLast() {
				t.Error("a part follows the last")
			}
			size += proto.Size(part)
			if part.GetStart() != want.GetStart() || part.GetEnd() != want.GetEnd() {
				t.Error("a part has other times")
			}
			proto.Merge(&got, part)
		}
		if size > messageBytes+windowBytes || size > maxMessage {
			t.Errorf("a message of %d bytes", size)
		}
		q.stored(last)
		sent = last
	}
	got.Number = 0
	if !proto.Equal(&got, want) {
		t.Error("the parts are not the window")
	}
	if !got.GetLast() {
		t.Error("no part is the last")
	}
}

func TestKeysAreGivenUpBeforeCounts(t *testing.T) {
	t.Parallel()
	q := newTestQueue()
	var keys []tally.KeyCount
	for k := range tally.MaxTopKeys {
		keys = append(keys, tally.KeyCount{Key: tally.KeyID{byte(k)}, Refused: 1})
	}
	const versions, windows = 100, 30
	for i := range windows {
		w := window(noon.Add(time.Duration(i) * tally.Span))
		for v := range versions {
			w.Versions = append(w.Versions, tally.VersionTally{UID: fmt.Sprint(v), Version: 1, Counts: tally.Counts{1}, Keys: keys})
		}
		q.add(w)
	}
	size, counted := 0, int64(0)
	for _, w := range q.waiting {
		size += keysSize(&w.Window)
		for i := range w.Versions {
			counted += w.Versions[i].Counts[0]
		}
	}
	if counted != versions*windows || size > keysBytes || size < keysBytes/2 {
		t.Errorf("%d counted, %d bytes of keys", counted, size)
	}
	if len(q.waiting[0].Versions[0].Keys) > 0 || len(q.waiting[windows-1].Versions[0].Keys) == 0 {
		t.Error("the keys of the newest were given up before those of the oldest")
	}
}

// A merged minute has its rates; what is longer has none, since sums of several minutes would say nothing of any.
func TestRatesStayWithTheirMinute(t *testing.T) {
	t.Parallel()
	rates := func(key tally.RateKey, calls int64) tally.Rates {
		return tally.NewRates(0, []tally.KeyRate{{Key: key, Calls: calls}})
	}
	version := func(r tally.Rates) tally.VersionTally {
		return tally.VersionTally{UID: "u", Version: 1, Counts: tally.Counts{1}, Rates: r}
	}
	minute := func(start time.Time) tally.Window {
		merged := window(start, version(tally.Rates{}))
		for i := 1; i < 6; i++ {
			w := window(start.Add(time.Duration(i)*tally.Span), version(tally.Rates{}))
			if i == 5 {
				w.Versions[0].Rates = rates(5, 7)
			}
			merge(&merged, &w)
		}
		return merged
	}
	one, two := minute(noon), minute(noon.Add(time.Minute))
	if diff := cmp.Diff(rates(5, 7), one.Versions[0].Rates); diff != "" {
		t.Errorf("of a minute (-want +got):\n%s", diff)
	}
	again := window(noon.Add(59*time.Second), version(rates(6, 1))) // the clock was set
	merge(&one, &again)
	if got := one.Versions[0].Rates; len(got.Keys) != 2 {
		t.Errorf("of two parts of a minute: %+v", got)
	}
	if n := keysSize(&one); n != 2*16 {
		t.Errorf("they take %d bytes, want 32", n)
	}
	merge(&one, &two)
	if got := one.Versions[0].Rates; !got.IsZero() {
		t.Errorf("of two minutes: %+v", got)
	}
}

// What merges in steps is what one merge would have made.
func TestMergeKeepsCountsExactAndTheRestBounded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var merged tally.Window
	counts, domains := map[string]*tally.Counts{}, map[string]*tally.DomainCounts{}
	for i := range 500 {
		w := window(noon.Add(time.Duration(i) * tally.Span))
		for v := range random.IntN(4) {
			uid := fmt.Sprint(v)
			t := tally.VersionTally{UID: uid, Version: 1, Counts: tally.Counts{random.Int64N(100)}}
			for range random.IntN(50) {
				t.Keys = append(t.Keys, tally.KeyCount{Key: tally.KeyID{byte(len(t.Keys)), byte(random.IntN(20))}, Refused: 1})
			}
			w.Versions = append(w.Versions, t)
			if counts[uid] == nil {
				counts[uid] = &tally.Counts{}
			}
			counts[uid].Add(&t.Counts)
		}
		d := tally.DomainTally{Domain: fmt.Sprint(random.IntN(3)), Counts: tally.DomainCounts{random.Int64N(10)}}
		w.Domains = append(w.Domains, d)
		if domains[d.Domain] == nil {
			domains[d.Domain] = &tally.DomainCounts{}
		}
		domains[d.Domain].Add(&d.Counts)
		for range random.IntN(20) {
			w.Refusals = append(w.Refusals, tally.Refusal{Time: w.Start, Reference: fmt.Sprint(i)})
		}
		merge(&merged, &w)
	}
	got := map[string]*tally.Counts{}
	for i := range merged.Versions {
		got[merged.Versions[i].UID] = &merged.Versions[i].Counts
		if n := len(merged.Versions[i].Keys); n != tally.MaxTopKeys {
			t.Errorf("%d keys", n)
		}
	}
	if diff := cmp.Diff(counts, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	gotDomains := map[string]*tally.DomainCounts{}
	for i := range merged.Domains {
		gotDomains[merged.Domains[i].Domain] = &merged.Domains[i].Counts
	}
	if diff := cmp.Diff(domains, gotDomains); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
	if n := len(merged.Refusals); n != maxRefusals || merged.Refusals[n-1].Reference != "499" {
		t.Errorf("%d refusals, the last %+v", n, merged.Refusals[n-1])
	}
}
