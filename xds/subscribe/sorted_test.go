package subscribe

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A sorted list is a map whose older states stay.
func TestSortedIsAMapThatKeepsItsPast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var list sorted[int]
		var past []sorted[int]
		var states []map[string]int
		names := rapid.SampledFrom([]string{"", "a", "a/b", "b", "c", "d", "e", "f"})
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			changes, state := edits[int]{}, map[string]int{}
			if len(states) > 0 {
				state = maps.Clone(states[len(states)-1])
			}
			for _, name := range rapid.SliceOfDistinct(names, rapid.ID).Draw(t, "names") {
				if rapid.Bool().Draw(t, "remove") {
					changes[name] = nil
					delete(state, name)
					continue
				}
				value := rapid.Int().Draw(t, "value")
				changes[name], state[name] = &value, value
			}
			list = list.with(changes)
			past, states = append(past, list), append(states, state)
		}
		for i, list := range past {
			got := map[string]int{}
			for _, e := range list {
				got[e.name] = *e.value
				if list.find(e.name) != e.value {
					t.Fatalf("%q is not found", e.name)
				}
			}
			if diff := cmp.Diff(states[i], got); diff != "" {
				t.Fatalf("state %d (-want +got):\n%s", i, diff)
			}
			if !slices.IsSortedFunc(list, func(a, b entry[int]) int { return strings.Compare(a.name, b.name) }) {
				t.Fatalf("not in order: %v", list)
			}
			if list.find("never") != nil {
				t.Fatal("found what is not there")
			}
		}
	})
}
