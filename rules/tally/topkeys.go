package tally

import (
	"cmp"
	"slices"
)

// MaxTopKeys is how many keys a [TopKeys] holds.
const MaxTopKeys = 128

// KeyCount is how often a version went against one key.
type KeyCount struct {
	Key     KeyID
	Label   string // as [Label] shows it
	Refused int64  // by the version
	Would   int64  // be refused
	// Over is how much of the sum may belong to other keys: 0 while there were no more keys than a TopKeys holds.
	Over int64
}

// Count is how often it was in all.
func (k *KeyCount) Count() int64 { return k.Refused + k.Would }

// TopKeys counts the keys that are hit most, in bounded memory: Space-Saving (Metwally, Agrawal and El Abbadi, 2005). Each
// count is at least the true one and at most Over above it, and every key with more than the N-th part of all counts is
// there, where N is MaxTopKeys. The zero value is ready. It is not safe for concurrent use.
type TopKeys struct {
	entries []KeyCount
	at      map[KeyID]int // position in entries
}

// Add counts a key: refused or would have been refused so often. Label is asked only for a key that is not there.
func (t *TopKeys) Add(key KeyID, refused, would int64, label func() string) {
	i, known := t.at[key]
	if !known {
		i = t.place(key)
		t.entries[i].Label = label()
	}
	t.entries[i].Refused += refused
	t.entries[i].Would += would
}

// place makes room for a key: where all is taken, in place of the one with the fewest, whose counts it takes over.
func (t *TopKeys) place(key KeyID) int {
	if len(t.entries) < MaxTopKeys {
		if t.at == nil {
			t.at = make(map[KeyID]int, MaxTopKeys)
		}
		t.entries = append(t.entries, KeyCount{Key: key})
		t.at[key] = len(t.entries) - 1
		return len(t.entries) - 1
	}
	least := 0
	for i := range t.entries {
		if t.entries[i].Count() < t.entries[least].Count() {
			least = i
		}
	}
	e := &t.entries[least]
	delete(t.at, e.Key)
	e.Key, e.Over = key, e.Count()
	t.at[key] = least
	return least
}

// Merge adds the counts of other, as in Agarwal and others, "Mergeable Summaries" (2012): what a full list does not name
// may be in it as often as the least of those it names.
func (t *TopKeys) Merge(other []KeyCount) {
	mine, theirs := leastOf(t.entries), leastOf(other)
	merged := make(map[KeyID]KeyCount, len(t.entries)+len(other))
	for _, e := range t.entries {
		e.Over += theirs
		e.Would += theirs
		merged[e.Key] = e
	}
	for _, e := range other {
		was, both := merged[e.Key]
		if !both {
			was = KeyCount{Key: e.Key, Label: e.Label, Would: mine, Over: mine}
		} else {
			was.Over -= theirs
			was.Would -= theirs
		}
		was.Refused += e.Refused
		was.Would += e.Would
		was.Over += e.Over
		merged[e.Key] = was
	}
	t.entries = t.entries[:0]
	for _, e := range merged {
		t.entries = append(t.entries, e)
	}
	slices.SortFunc(t.entries, byCount)
	if len(t.entries) > MaxTopKeys {
		t.entries = t.entries[:MaxTopKeys]
	}
	t.at = make(map[KeyID]int, MaxTopKeys)
	for i := range t.entries {
		t.at[t.entries[i].Key] = i
	}
}

// leastOf is how often a key may have been that the list does not name.
func leastOf(entries []KeyCount) int64 {
	if len(entries) < MaxTopKeys {
		return 0
	}
	least := entries[0].Count()
	for i := range entries {
		least = min(least, entries[i].Count())
	}
	return least
}

// Keys returns the keys, those with the most first.
func (t *TopKeys) Keys() []KeyCount {
	keys := slices.Clone(t.entries)
	slices.SortFunc(keys, byCount)
	return keys
}

// Reset forgets all.
func (t *TopKeys) Reset() {
	t.entries = t.entries[:0]
	clear(t.at)
}

func byCount(a, b KeyCount) int {
	if c := cmp.Compare(b.Count(), a.Count()); c != 0 {
		return c
	}
	return slices.Compare(a.Key[:], b.Key[:])
}
