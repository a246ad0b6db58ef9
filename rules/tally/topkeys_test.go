package tally_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules/tally"
)

// keyNumber is a key as a hash is: any. Those from 900 on differ in their end only, as keys of somebody's making may.
func keyNumber(n int) (k tally.KeyID) {
	hash := uint64(n) * 0x9E3779B97F4A7C15
	if n >= 900 && n < 1000 {
		hash = 0xFE << 56
	}
	binary.BigEndian.PutUint64(k[:], hash)
	binary.BigEndian.PutUint64(k[8:], uint64(n))
	return k
}

func label(k tally.KeyID) string { return "label of " + k.String() }

// naive counts without a bound.
type naive map[tally.KeyID][2]int64

func (n naive) total() (sum int64) {
	for _, c := range n {
		sum += c[0] + c[1]
	}
	return sum
}

func (n naive) add(k tally.KeyID, refused, would int64) {
	c := n[k]
	n[k] = [2]int64{c[0] + refused, c[1] + would}
}

// stream feeds both with keys of which some are much more frequent, and calls after each.
func stream(t *rapid.T, top *tally.TopKeys, counts naive, each func()) {
	keys := rapid.SampledFrom([]int{1, 100, tally.MaxTopKeys, 140, 1000}).Draw(t, "keys")
	for range rapid.IntRange(0, 2000).Draw(t, "hits") {
		n := rapid.IntRange(0, keys-1).Draw(t, "key")
		if rapid.Bool().Draw(t, "frequent") {
			n %= 7
		}
		refused, would := rapid.Int64Range(0, 3).Draw(t, "refused"), rapid.Int64Range(0, 3).Draw(t, "would")
		counts.add(keyNumber(n), refused, would)
		top.Add(keyNumber(n), refused, would, func() string { return label(keyNumber(n)) })
		each()
	}
}

// check holds what was counted against the naive counts.
func check(t *rapid.T, got []tally.KeyCount, counts naive) {
	t.Helper()
	most := counts.total() / tally.MaxTopKeys
	var sum int64
	named := map[tally.KeyID]bool{}
	for i, k := range got {
		want := counts[k.Key]
		switch {
		case named[k.Key]:
			t.Fatalf("%v is there twice", k.Key)
		case k.Label != label(k.Key):
			t.Fatalf("%v has the label %q", k.Key, k.Label)
		case k.Count() < want[0]+want[1] || k.Count()-k.Over > want[0]+want[1]:
			t.Fatalf("%+v, but there were %v", k, want)
		case k.Over > most:
			t.Fatalf("%+v may be wrong by more than a part of the %d counts", k, counts.total())
		case i > 0 && got[i-1].Count() < k.Count():
			t.Fatalf("%+v before %+v", got[i-1], k)
		}
		named[k.Key] = true
		sum += k.Count()
		if len(counts) <= tally.MaxTopKeys && (k.Over != 0 || [2]int64{k.Refused, k.Would} != want) {
			t.Fatalf("%+v of %d keys, but there were %v", k, len(counts), want)
		}
	}
	if len(got) != min(len(counts), tally.MaxTopKeys) || sum > counts.total() {
		t.Fatalf("%d keys of %d, counts of %d in %d", len(got), len(counts), sum, counts.total())
	}
	for k, c := range counts {
		if c[0]+c[1] > most && !named[k] {
			t.Fatalf("%v was there %v times of %d, and is not named", k, c, counts.total())
		}
	}
}

func TestTopKeysAgreesWithANaiveCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var top tally.TopKeys
		counts := naive{}
		stream(t, &top, counts, func() {})
		check(t, top.Keys(), counts)
		top.Reset()
		counts = naive{}
		check(t, top.Keys(), counts)
		stream(t, &top, counts, func() {})
		check(t, top.Keys(), counts)
	})
}

func TestTopKeysThatAreMergedAgreeWithANaiveCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all tally.TopKeys
		counts := naive{}
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			var part tally.TopKeys
			stream(t, &part, counts, func() {})
			all.Merge(part.Keys())
			check(t, all.Keys(), counts)
		}
		stream(t, &all, counts, func() {}) // it can be added to as before
		check(t, all.Keys(), counts)
	})
}

// A key that enters a full list takes the place, and the counts, of one with the fewest.
func TestTopKeysGiveUpTheKeyWithTheFewest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var top tally.TopKeys
		before := top.Keys()
		stream(t, &top, naive{}, func() {
			after := top.Keys()
			at := slices.IndexFunc(before, func(k tally.KeyCount) bool {
				return !slices.ContainsFunc(after, func(a tally.KeyCount) bool { return a.Key == k.Key })
			})
			if at >= 0 && before[at].Count() != before[len(before)-1].Count() {
				t.Fatalf("%+v went, and %+v stayed", before[at], before[len(before)-1])
			}
			before = after
		})
	})
}

func TestTopKeysSayWhenAKeyEnters(t *testing.T) {
	t.Parallel()
	var top tally.TopKeys
	held := map[int]int{} // by place
	for n := range 3 * tally.MaxTopKeys {
		for again := range 2 {
			place, entered := top.Count(keyNumber(n), 1, 0)
			if entered != (again == 0) || !entered && held[place] != n {
				t.Fatalf("key %d, time %d: place %d, which has %d, entered %v", n, again+1, place, held[place], entered)
			}
			held[place] = n
		}
	}
	for place, n := range held {
		top.SetLabel(place, fmt.Sprint(n))
	}
	labels := map[string]tally.KeyID{}
	want := map[string]tally.KeyID{}
	for _, k := range top.Keys() {
		labels[k.Label] = k.Key
	}
	for _, n := range held {
		want[fmt.Sprint(n)] = keyNumber(n)
	}
	if diff := cmp.Diff(want, labels); diff != "" {
		t.Errorf("keys by label (-want +got):\n%s", diff)
	}
}

// BenchmarkTopKeys is one count of a key among so many, and of one that comes once beside so many that come again and again:
// with one place less than there are, each search looks at all of them.
func BenchmarkTopKeys(b *testing.B) {
	for _, c := range []struct{ heavy, keys int }{{0, 1}, {0, 100}, {0, 1_000_000}, {100, 1_000_000}, {tally.MaxTopKeys - 1, 1_000_000}} {
		b.Run(fmt.Sprintf("heavy=%d/keys=%d", c.heavy, c.keys), func(b *testing.B) {
			var top tally.TopKeys
			for i := range c.heavy {
				top.Count(keyNumber(c.keys+i), 1<<40, 0)
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				top.Count(keyNumber(n%c.keys), 1, 0)
			}
		})
	}
}
