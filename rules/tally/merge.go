package tally

import "slices"

// MergeKeys adds up lists of keys as [TopKeys.Merge] does, all at once: with hundreds of them that takes a tenth of the
// time, and the error bounds grow less. It returns those with the most first, at most MaxTopKeys.
func MergeKeys(lists ...[]KeyCount) []KeyCount {
	var least int64 // of all lists: how often a key may have been that none of them names
	sums := map[KeyID]*KeyCount{}
	for _, list := range lists {
		unnamed := leastOf(list)
		least += unnamed
		for i := range list {
			e := &list[i]
			sum := sums[e.Key]
			if sum == nil {
				sum = &KeyCount{Key: e.Key, Label: e.Label}
				sums[e.Key] = sum
			}
			sum.Refused += e.Refused
			sum.Would += e.Would - unnamed
			sum.Over += e.Over - unnamed
		}
	}
	merged := make([]KeyCount, 0, len(sums))
	for _, sum := range sums {
		sum.Would += least
		sum.Over += least
		merged = append(merged, *sum)
	}
	slices.SortFunc(merged, byCount)
	return merged[:min(len(merged), MaxTopKeys)]
}
