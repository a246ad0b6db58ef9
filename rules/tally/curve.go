package tally

import (
	"cmp"
	"math"
	"slices"
)

// Curve says what a limit would meet: of each rate, how many keys called more often, and how many calls were above it.
// It is of the keys that are in the samples of all its minutes, scaled up to all keys: exact where every sample had all
// of them, and else an estimate, whose error is about one part in the root of the keys that are known.
//
// A call is above a rate when its key had made as many in the same minute of the clock: what a token bucket without burst
// would refuse is near to that, and not the same.
type Curve struct {
	level  int
	most   []keyMost // ascending by rate
	minute []int64   // calls of a key in a minute, ascending
	sums   []int64   // sums[i] is the sum of minute[i:]
}

// keyMost is the largest minute of a key, and all its calls.
type keyMost struct{ rate, calls int64 }

// NewCurve returns what the rates of different minutes say together.
func NewCurve(minutes []Rates) *Curve {
	c := &Curve{}
	for i := range minutes {
		c.level = max(c.level, minutes[i].Level)
	}
	keys := map[RateKey]keyMost{}
	for i := range minutes {
		for _, k := range minutes[i].Keys {
			if !k.Key.In(c.level) {
				break
			}
			sum := keys[k.Key]
			keys[k.Key] = keyMost{rate: max(sum.rate, k.Calls), calls: sum.calls + k.Calls}
			c.minute = append(c.minute, k.Calls)
		}
	}
	for _, k := range keys {
		c.most = append(c.most, k)
	}
	slices.SortFunc(c.most, func(a, b keyMost) int { return cmp.Compare(a.rate, b.rate) })
	slices.Sort(c.minute)
	c.sums = make([]int64, len(c.minute)+1)
	for i, n := range slices.Backward(c.minute) {
		c.sums[i] = c.sums[i+1] + n
	}
	return c
}

// Sampled is of how many keys the rates are known.
func (c *Curve) Sampled() int64 { return int64(len(c.most)) }

// Share is which part of all keys these are, about; 1: all.
func (c *Curve) Share() float64 { return math.Ldexp(1, -c.level) }

// Keys is about how many keys called.
func (c *Curve) Keys() int64 { return c.scaled(c.Sampled()) }

// Calls is about how many calls they made.
func (c *Curve) Calls() int64 { return c.scaled(c.sums[0]) }

// scaled is of all keys what n is of those that are known.
func (c *Curve) scaled(n int64) int64 {
	if n > math.MaxInt64>>c.level {
		return math.MaxInt64
	}
	return n << c.level
}

// RateStep is what is above a rate of calls per minute.
type RateStep struct {
	Rate  int64
	Keys  int64 // that called more often in some minute
	Calls int64 // above it, over all minutes
}

// At returns what is above a rate, about.
func (c *Curve) At(rate int64) RateStep {
	above, _ := slices.BinarySearch(c.minute, rate+1)
	calls := c.sums[above] - rate*int64(len(c.minute)-above)
	return RateStep{Rate: rate, Keys: c.scaled(c.Sampled() - int64(c.below(rate+1))), Calls: c.scaled(calls)}
}

// below is how many keys have fewer calls in their largest minute.
func (c *Curve) below(rate int64) int {
	n, _ := slices.BinarySearchFunc(c.most, rate, func(k keyMost, rate int64) int { return cmp.Compare(k.rate, rate) })
	return n
}

// Steps returns at most n steps, 2 or more, from 1 to above the largest rate, each about as much more than the one before in
// proportion; none where there are no keys.
func (c *Curve) Steps(n int) (steps []RateStep) {
	if len(c.most) == 0 {
		return nil
	}
	top, last := c.most[len(c.most)-1].rate+1, int64(0)
	for i := range n {
		rate := int64(math.Round(math.Pow(float64(top), float64(i)/float64(n-1))))
		if i == n-1 {
			rate = top
		}
		if rate > last {
			steps, last = append(steps, c.At(rate)), rate
		}
	}
	return steps
}

// RateBucket are the keys whose largest minute is in a range.
type RateBucket struct {
	From, Below int64
	Keys        int64
	Calls       int64 // in all minutes
}

// Histogram returns buckets whose bounds are 1, 2, 5, 10 and so on, as far as there are keys.
func (c *Curve) Histogram() (list []RateBucket) {
	at := 0
	for from, next := int64(1), 0; at < len(c.most); next++ {
		b := RateBucket{From: from, Below: from * 2}
		if next%3 == 1 {
			b.Below = from / 2 * 5
		}
		end := c.below(b.Below)
		for _, k := range c.most[at:end] {
			b.Calls += k.calls
		}
		b.Keys, b.Calls = c.scaled(int64(end-at)), c.scaled(b.Calls)
		list, at, from = append(list, b), end, b.Below
	}
	return list
}
