package meter

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// maxMinuteKeys is how many keys the samples of all versions have in a minute, about. A version is held to its share of it
// only when it has more: at the worst, when small ones come last, there are twice as many keys, or one of each version.
const maxMinuteKeys = 16_384

// minute is what the samples of all versions in one minute have together.
type minute struct {
	keys     atomic.Int64
	versions atomic.Int64 // that have a sample
}

// rates are the calls of one version in one minute by key, of the keys of a level (see [tally.Rates]). A key that is there
// costs a look into a map and an addition, one that is not of the level a comparison.
//
// Nobody waits for anybody, and each call is counted once, in the minute that closes or in the next one: who closes the
// minute takes each count, and whoever comes too late for one sees that, and goes to the next minute.
type rates struct {
	of     *minute
	level  atomic.Int64
	keys   sync.Map // tally.RateKey to *calls
	size   atomic.Int64
	fitted sync.Mutex // only tried: held by who raises the level
	closed atomic.Bool
}

// calls are those of a key. Below 0 they were taken.
type calls struct{ n atomic.Int64 }

func (c *calls) add(n int64) bool { return c.n.Add(n) > 0 }

// take returns what was counted, to whoever takes first.
func (c *calls) take() int64 { return max(0, c.n.Swap(math.MinInt64)) }

// newest reports whether the version is that for whose limit others are tried.
func newest(r *rules.Rule, v *rules.Version) bool {
	return v == r.Candidate || r.Candidate == nil && v == r.Stable
}

// call counts a call of a key.
func (m *Meter) call(v *version, key tally.RateKey) {
	for n := int64(1); n > 0; {
		r := v.rates.Load()
		if r == nil {
			if r = (&rates{of: m.minute.Load()}); !v.rates.CompareAndSwap(nil, r) {
				continue
			}
			r.of.versions.Add(1)
		}
		n = r.add(key, n)
	}
}

// add counts calls of a key, and returns how many are for the next minute, since this one is over.
func (r *rates) add(key tally.RateKey, n int64) (late int64) {
	if !key.In(int(r.level.Load())) {
		return 0
	}
	c, known := r.keys.Load(key)
	if !known {
		c, known = r.keys.LoadOrStore(key, &calls{})
	}
	mine := c.(*calls) //nolint:errcheck // there is nothing else in it
	switch {
	case !mine.add(n):
		return n
	case known:
		return 0
	}
	r.of.keys.Add(1)
	r.size.Add(1)
	r.fit()
	if r.closed.Load() { // perhaps before the key was there
		return mine.take()
	}
	return 0
}

// fit raises the level while there are too many keys.
func (r *rates) fit() {
	for r.full() && r.fitted.TryLock() {
		level := r.level.Add(1)
		r.keys.Range(func(key, _ any) bool {
			if k := key.(tally.RateKey); !k.In(int(level)) { //nolint:errcheck // there is nothing else in it
				if _, there := r.keys.LoadAndDelete(k); there {
					r.of.keys.Add(-1)
					r.size.Add(-1)
				}
			}
			return true
		})
		r.fitted.Unlock()
	}
}

func (r *rates) full() bool {
	size := r.size.Load()
	share := maxMinuteKeys / max(1, r.of.versions.Load())
	crowded := r.of.keys.Load() > maxMinuteKeys && size > max(1, share)
	return (crowded || size > tally.MaxRateKeys) && r.level.Load() < tally.MaxRateLevel
}

// takeRates ends the minute of a version. The meter's mu is held.
func (v *version) takeRates() tally.Rates {
	r := v.rates.Swap(nil)
	if r == nil {
		return tally.Rates{}
	}
	r.closed.Store(true)
	var keys []tally.KeyRate
	r.keys.Range(func(key, c any) bool {
		if n := c.(*calls).take(); n > 0 { //nolint:errcheck // as above
			keys = append(keys, tally.KeyRate{Key: key.(tally.RateKey), Calls: n}) //nolint:errcheck // as above
		}
		return true
	})
	return tally.NewRates(int(r.level.Load()), keys) // the level last: keys that are gone were not of it
}
