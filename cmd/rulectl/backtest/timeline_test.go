package backtest

import (
	"math/rand/v2"
	"testing"
)

func TestTimelinesOfOneRunHaveTheSamePartsAndLoseNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		a, b := newTimeline(1000), newTimeline(1000)
		now, total := int64(1000), 0
		for range 200 {
			now += random.Int64N(1 << random.IntN(34))
			events := random.IntN(3)
			total += events
			a.at(now, events)
		}
		b.at(now, 0)
		if len(a.counts()) != len(b.counts()) || a.width != b.width {
			t.Fatalf("%d parts of %d, beside %d parts of %d", len(a.counts()), a.width, len(b.counts()), b.width)
		}
		sum := 0
		for _, n := range a.counts() {
			sum += n
		}
		if sum != total {
			t.Fatalf("%d events, want %d", sum, total)
		}
	}
}
