package tally

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"time"
)

const (
	// MaxRateKeys is how many keys the sample of one rule version has in a minute.
	MaxRateKeys = 1000
	// MaxRateLevel is the highest level of a sample.
	MaxRateLevel = 63
	// KeepRates is how long rates are kept: an hour is looked at, and a little more is there.
	KeepRates = 70 * time.Minute
)

// RateKey is what a sample knows a key by: the first eight bytes of its KeyID.
type RateKey uint64

// Rate returns what a sample knows the key by.
func (k *KeyID) Rate() RateKey { return RateKey(binary.BigEndian.Uint64(k[:8])) }

// In reports whether the key is in samples of a level: whether its first so many bits are 0.
func (k RateKey) In(level int) bool { return bits.LeadingZeros64(uint64(k)) >= level }

// KeyRate is how many calls a key made in one minute.
type KeyRate struct {
	Key   RateKey
	Calls int64
}

// Rates are the calls of one minute by key, of a sample of the keys: one in 2^Level, chosen by hash. Whoever has more than
// [MaxRateKeys] goes to the next level, which leaves half of them (Wegman's adaptive sampling: Flajolet, 1990). All nodes
// choose the same keys, so that the sum of their samples is exactly the sample of their sums.
//
// The zero value is a minute without calls.
type Rates struct {
	Level int
	Keys  []KeyRate // ascending by Key, each once
}

// NewRates returns the sample of a level that has these keys, each once, in whichever order. Those that are not of the
// level are left out.
func NewRates(level int, keys []KeyRate) Rates {
	r := Rates{Keys: keys}
	slices.SortFunc(r.Keys, func(a, b KeyRate) int { return cmp.Compare(a.Key, b.Key) })
	r.raise(level)
	r.fit()
	return r
}

// IsZero reports whether there is nothing to know: no calls were made.
func (r *Rates) IsZero() bool { return r.Level == 0 && len(r.Keys) == 0 }

// Add adds the calls of the same minute that somebody else counted. What r has had is not changed by it.
func (r *Rates) Add(other *Rates) {
	if other.IsZero() {
		return
	}
	mine, theirs, sum := r.Keys, other.Keys, make([]KeyRate, 0, len(r.Keys)+len(other.Keys))
	for len(mine) > 0 && len(theirs) > 0 {
		switch next := mine[0]; {
		case next.Key < theirs[0].Key:
			sum, mine = append(sum, next), mine[1:]
		case next.Key > theirs[0].Key:
			sum, theirs = append(sum, theirs[0]), theirs[1:]
		default:
			next.Calls += theirs[0].Calls
			sum, mine, theirs = append(sum, next), mine[1:], theirs[1:]
		}
	}
	r.Keys = append(append(sum, mine...), theirs...)
	r.raise(max(r.Level, other.Level))
	r.fit()
}

// raise leaves the keys that are of the level. They are the first ones: their bits are 0.
func (r *Rates) raise(level int) {
	r.Level = level
	if end := slices.IndexFunc(r.Keys, func(k KeyRate) bool { return !k.Key.In(level) }); end >= 0 {
		r.Keys = r.Keys[:end]
	}
}

func (r *Rates) fit() {
	for len(r.Keys) > MaxRateKeys && r.Level < MaxRateLevel {
		r.raise(r.Level + 1)
	}
}

// VersionRates are the calls of one rule version by key, in one minute.
type VersionRates struct {
	Domain, UID string
	Version     int64
	Start       time.Time
	Rates       Rates
}
