package tally

import (
	"cmp"
	"math"
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
	// slots find the place of a key in entries: see find. Twice as many as places, they are never full.
	slots [2 * MaxTopKeys]uint8 // place + 1; 0: free
	// counts has the count of each place once more: so near to each other, comparing them stays in few cache lines. They
	// only grow: none is below least, and none but that of the place lone is below second. Next is where the search for
	// the fewest goes on.
	counts        [MaxTopKeys]int64
	least, second int64
	lone, next    int
}

// Add counts a key: refused or would have been refused so often. Label is asked only for a key that is not there.
func (t *TopKeys) Add(key KeyID, refused, would int64, label func() string) {
	if place, entered := t.Count(key, refused, would); entered {
		t.SetLabel(place, label())
	}
}

// Count counts a key, and leaves its label for later. Place is the key's until another enters there; entered says that
// the key did so now, without a label.
func (t *TopKeys) Count(key KeyID, refused, would int64) (place int, entered bool) {
	slot, known := t.find(key)
	if !known {
		slot = t.enter(key, slot)
	}
	place = int(t.slots[slot]) - 1
	t.entries[place].Refused += refused
	t.entries[place].Would += would
	t.counts[place] += refused + would
	return place, !known
}

// SetLabel names the key in a place.
func (t *TopKeys) SetLabel(place int, label string) { t.entries[place].Label = label }

// find returns the slot of a key, or the free one that it would have. Keys are hashes already: the slot is the one that the
// first byte says, or the first after it that is free (linear probing).
func (t *TopKeys) find(key KeyID) (slot uint8, known bool) {
	for slot = key[0]; t.slots[slot] != 0; slot++ { // after the last comes the first
		if t.entries[t.slots[slot]-1].Key == key {
			return slot, true
		}
	}
	return slot, false
}

// free empties a slot, and moves those up that would not be found any more.
func (t *TopKeys) free(slot uint8) {
	for next := slot + 1; t.slots[next] != 0; next++ {
		if home := t.entries[t.slots[next]-1].Key[0]; next-home >= next-slot {
			t.slots[slot], slot = t.slots[next], next
		}
	}
	t.slots[slot] = 0
}

// enter makes room for a key: where all is taken, in place of the one with the fewest, whose counts it takes over. It
// returns the slot of the key.
func (t *TopKeys) enter(key KeyID, slot uint8) uint8 {
	if n := len(t.entries); n < MaxTopKeys {
		place := uint8(n)
		t.entries = append(t.entries, KeyCount{Key: key})
		t.slots[slot], t.counts[place] = place+1, 0
		return slot
	}
	place := t.fewest()
	e := &t.entries[place]
	was, _ := t.find(e.Key)
	t.free(was)
	slot, _ = t.find(key) // what was freed may have moved it
	e.Key, e.Label, e.Over = key, "", e.Count()
	t.slots[slot] = place + 1
	return slot
}

// fewest returns the place with the fewest counts. In a storm of keys that come once, nearly all places have the least, and
// the next one is taken; or one place alone has fewer than all others, and stays the one. Else each is looked at once.
func (t *TopKeys) fewest() uint8 {
	if t.counts[t.lone] < t.second {
		return uint8(t.lone) //nolint:gosec // below MaxTopKeys
	}
	first, second := int64(math.MaxInt64), int64(math.MaxInt64)
	for range MaxTopKeys {
		at := t.next
		t.next = (at + 1) % MaxTopKeys
		switch c := t.counts[at]; {
		case c == t.least:
			return uint8(at) //nolint:gosec // below MaxTopKeys
		case c < first:
			first, second, t.lone = c, first, at
		case c < second:
			second = c
		}
	}
	t.least, t.second = first, second
	return uint8(t.lone) //nolint:gosec // below MaxTopKeys
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
	t.order()
}

// order makes the entries be found.
func (t *TopKeys) order() {
	clear(t.slots[:])
	t.least, t.second = 0, 0
	for i := range t.entries {
		slot, _ := t.find(t.entries[i].Key)
		t.slots[slot], t.counts[i] = uint8(i)+1, t.entries[i].Count()
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

// Reset forgets all, and keeps the room.
func (t *TopKeys) Reset() {
	clear(t.entries) // lets go of the labels
	t.entries, t.least, t.second = t.entries[:0], 0, 0
	clear(t.slots[:])
}

func byCount(a, b KeyCount) int {
	if c := cmp.Compare(b.Count(), a.Count()); c != 0 {
		return c
	}
	return slices.Compare(a.Key[:], b.Key[:])
}

// A slot is one byte, and so is the hash that leads to it.
var _ = [1]struct{}{}[2*MaxTopKeys-1<<8]
