package tally_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules/tally"
)

func TestMergedKeysKeepTheirBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		truth := map[tally.KeyID]int64{}
		var lists [][]tally.KeyCount
		var all int64
		for range rapid.IntRange(0, 4).Draw(t, "lists") {
			var top tally.TopKeys
			spread := rapid.IntRange(1, 400).Draw(t, "keys")
			for i := range rapid.IntRange(0, 900).Draw(t, "adds") {
				key := tally.KeyID{byte(i * i % spread), byte(i * i % spread >> 8)}
				top.Add(key, 1, int64(i%2), func() string { return "label" })
				truth[key] += 1 + int64(i%2)
				all += 1 + int64(i%2)
			}
			lists = append(lists, top.Keys())
		}
		merged := tally.MergeKeys(lists...)
		named := map[tally.KeyID]bool{}
		for i := range merged {
			k := &merged[i]
			named[k.Key] = true
			if k.Count() < truth[k.Key] || k.Count()-k.Over > truth[k.Key] || k.Label != "label" {
				t.Fatalf("%+v, and it was %d times", k, truth[k.Key])
			}
			if i > 0 && k.Count() > merged[i-1].Count() {
				t.Fatal("the list is not sorted")
			}
		}
		for key, n := range truth {
			if !named[key] && (len(merged) < tally.MaxTopKeys || n > merged[len(merged)-1].Count()) {
				t.Fatalf("a key that was %d times of %d is not named", n, all)
			}
		}
	})
}

func TestMergeOfTwoListsIsThatOfTopKeys(t *testing.T) {
	t.Parallel()
	var a, b tally.TopKeys
	for i := range 300 {
		a.Add(tally.KeyID{byte(i % 200)}, 1, 0, func() string { return "a" })
		b.Add(tally.KeyID{byte(i % 90)}, 0, 2, func() string { return "b" })
	}
	merged := tally.MergeKeys(a.Keys(), b.Keys())
	a.Merge(b.Keys())
	if diff := cmp.Diff(a.Keys(), merged); diff != "" {
		t.Errorf("merged (-TopKeys +MergeKeys):\n%s", diff)
	}
}
