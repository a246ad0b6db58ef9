package tally_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules/tally"
)

// ratesOf is the sample of a map of calls.
func ratesOf(calls map[tally.RateKey]int64) tally.Rates {
	keys := make([]tally.KeyRate, 0, len(calls))
	for k, n := range calls {
		keys = append(keys, tally.KeyRate{Key: k, Calls: n})
	}
	return tally.NewRates(0, keys)
}

func TestKeyIsInTheSampleOfALevelByItsFirstBits(t *testing.T) {
	t.Parallel()
	id := tally.KeyID{0, 0, 0x20, 15: 0xff}
	for level, want := range map[int]bool{0: true, 18: true, 19: false, tally.MaxRateLevel: false} {
		if id.Rate().In(level) != want {
			t.Errorf("level %d: %v, want %v", level, !want, want)
		}
	}
	if none := (tally.KeyID{}); !none.Rate().In(tally.MaxRateLevel) {
		t.Error("a key of zeros is in no sample of the highest level")
	}
}

// However calls are spread over nodes, and in whichever order their samples come together, the sum is the same: that of
// all calls.
func TestSumOfSamplesIsTheSampleOfTheSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		nodes := make([]map[tally.RateKey]int64, rapid.IntRange(1, 5).Draw(t, "nodes"))
		for i := range nodes {
			nodes[i] = map[tally.RateKey]int64{}
		}
		all := map[tally.RateKey]int64{}
		for range rapid.SampledFrom([]int{0, 1, 900, tally.MaxRateKeys, tally.MaxRateKeys + 1, 5000}).Draw(t, "keys") {
			key := tally.RateKey(random.Uint64())
			for range 1 + random.IntN(3) {
				n := 1 + random.Int64N(100)
				nodes[random.IntN(len(nodes))][key] += n
				all[key] += n
			}
		}
		var sum tally.Rates
		for _, i := range random.Perm(len(nodes)) {
			some := ratesOf(nodes[i])
			before := slices.Clone(some.Keys)
			sum.Add(&some)
			if !slices.Equal(before, some.Keys) {
				t.Fatal("what was added is not as it was")
			}
		}
		want := ratesOf(all)
		if len(sum.Keys) > tally.MaxRateKeys || len(all) > tally.MaxRateKeys && len(sum.Keys) < tally.MaxRateKeys/3 {
			t.Fatalf("%d keys of %d", len(sum.Keys), len(all))
		}
		if sum.Level != want.Level || !slices.Equal(sum.Keys, want.Keys) {
			t.Fatalf("level %d with %d keys, want level %d with %d", sum.Level, len(sum.Keys), want.Level, len(want.Keys))
		}
	})
}

// A node with a small budget knows less, and so does the sum: what the node left out would be missing in it.
func TestSumIsOfTheHighestLevel(t *testing.T) {
	t.Parallel()
	high, low := tally.RateKey(1)<<63, tally.RateKey(1)
	r := ratesOf(map[tally.RateKey]int64{high: 5, low: 7})
	none := tally.NewRates(3, nil)
	r.Add(&none)
	want := tally.Rates{Level: 3, Keys: []tally.KeyRate{{Key: low, Calls: 7}}}
	if diff := cmp.Diff(want, r); diff != "" || none.IsZero() {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestCurveOfAllKeysIsExact(t *testing.T) {
	t.Parallel()
	const one, two, three = tally.RateKey(1), tally.RateKey(2 << 40), tally.RateKey(3 << 60)
	c := tally.NewCurve([]tally.Rates{
		ratesOf(map[tally.RateKey]int64{one: 10, two: 1}),
		ratesOf(map[tally.RateKey]int64{one: 30, three: 4}),
		{},
		ratesOf(map[tally.RateKey]int64{one: 20, three: 9}),
	})
	if c.Keys() != 3 || c.Calls() != 74 || c.Sampled() != 3 || c.Share() != 1 {
		t.Errorf("%d keys, %d calls, %d known, that is %v", c.Keys(), c.Calls(), c.Sampled(), c.Share())
	}
	for _, want := range []tally.RateStep{
		{Rate: 0, Keys: 3, Calls: 74},
		{Rate: 1, Keys: 2, Calls: 9 + 29 + 3 + 19 + 8},
		{Rate: 8, Keys: 2, Calls: 2 + 22 + 12 + 1},
		{Rate: 9, Keys: 1, Calls: 1 + 21 + 11},
		{Rate: 29, Keys: 1, Calls: 1},
		{Rate: 30},
		{Rate: math.MaxInt64 - 1},
	} {
		if got := c.At(want.Rate); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	want := []tally.RateBucket{
		{From: 1, Below: 2, Keys: 1, Calls: 1},
		{From: 2, Below: 5},
		{From: 5, Below: 10, Keys: 1, Calls: 13},
		{From: 10, Below: 20},
		{From: 20, Below: 50, Keys: 1, Calls: 60},
	}
	if diff := cmp.Diff(want, c.Histogram()); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
	steps := c.Steps(100)
	if first, last := steps[0], steps[len(steps)-1]; first != c.At(1) || last.Rate != 31 || last.Keys != 0 || len(steps) != 31 {
		t.Errorf("%d steps from %+v to %+v", len(steps), first, last)
	}
}

func TestCurveOfNoCallsIsEmpty(t *testing.T) {
	t.Parallel()
	for _, minutes := range [][]tally.Rates{nil, {{}}, {{Level: 5}}} {
		c := tally.NewCurve(minutes)
		if c.Keys() != 0 || c.Calls() != 0 || c.Steps(100) != nil || c.Histogram() != nil || (c.At(5) != tally.RateStep{Rate: 5}) {
			t.Errorf("%v: %d keys, %d calls, %v, %v", minutes, c.Keys(), c.Calls(), c.Steps(100), c.Histogram())
		}
	}
}

// The curve of a sample is near to that of all: 50,000 keys of which each calls as often as its rank says.
func TestCurveOfASampleIsNear(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 11))
	calls := map[tally.RateKey]int64{}
	var all []int64
	for i := range 50_000 {
		n := int64(1 + i%200)
		calls[tally.RateKey(random.Uint64())] = n
		all = append(all, n)
	}
	minutes := []tally.Rates{ratesOf(calls), ratesOf(calls)}
	c := tally.NewCurve(minutes)
	if c.Sampled() > tally.MaxRateKeys || c.Share() != 1.0/64 {
		t.Fatalf("%d keys are known, that is %v", c.Sampled(), c.Share())
	}
	near := func(what string, got, want int64) {
		t.Helper()
		if d := math.Abs(float64(got-want)) / float64(want); d > 0.08 { // two standard errors of 780 keys
			t.Errorf("%s: %d, want %d or 8 %% more or less", what, got, want)
		}
	}
	near("keys", c.Keys(), 50_000)
	for _, rate := range []int64{0, 10, 60, 120} {
		want := tally.RateStep{Rate: rate}
		for _, n := range all {
			if n > rate {
				want.Keys++
				want.Calls += 2 * (n - rate)
			}
		}
		got := c.At(rate)
		near("keys above", got.Keys, want.Keys)
		near("calls above", got.Calls, want.Calls)
	}
	steps := c.Steps(100)
	if len(steps) < 60 || len(steps) > 100 || !slices.IsSortedFunc(steps, func(a, b tally.RateStep) int { return int(a.Rate - b.Rate) }) {
		t.Errorf("%d steps", len(steps))
	}
}

// What a node says wrongly makes no number overflow.
func TestCurveDoesNotOverflow(t *testing.T) {
	t.Parallel()
	c := tally.NewCurve([]tally.Rates{{Level: tally.MaxRateLevel, Keys: []tally.KeyRate{{Key: 1, Calls: 1 << 40}}}})
	if c.Calls() != math.MaxInt64 || c.At(1).Calls != math.MaxInt64 || len(c.Histogram()) == 0 {
		t.Errorf("%d calls", c.Calls())
	}
}
