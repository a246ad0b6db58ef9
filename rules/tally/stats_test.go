package tally_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/headgate/headgate/rules/tally"
)

// The lower bounds for z = 3.09 are worked out by hand from Wilson's formula.
func TestRatioIsTheScoreInterval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		x, n int64
		low  float64 // in percent, one decimal
	}{
		{1, 1, 9.5}, {2, 3, 11.0}, {1, 50, 0.2}, {3, 50, 1.2}, {5, 50, 2.8}, {20, 100, 10.5}, {50, 1000, 3.3}, {150, 1000, 11.8},
	} {
		got := tally.Ratio(c.x, c.n, 3.09)
		if fmt.Sprintf("%.1f", 100*got.Low) != fmt.Sprintf("%.1f", c.low) {
			t.Errorf("lower bound of %d/%d = %.3f %%, want %.1f %%", c.x, c.n, 100*got.Low, c.low)
		}
		if got.Estimate != float64(c.x)/float64(c.n) || got.High < got.Estimate || got.High > 1 {
			t.Errorf("%d/%d: %+v", c.x, c.n, got)
		}
	}
	// 3201 of 792013 is 0.404 %, and 95 % of such samples have it between 0.390 and 0.418 %.
	got := tally.Ratio(3201, 792013, tally.Z95)
	if text := fmt.Sprintf("%.3f %.3f %.3f", 100*got.Estimate, 100*got.Low, 100*got.High); text != "0.404 0.390 0.418" {
		t.Error(text)
	}
	if got := tally.Ratio(0, 0, 3.09); got != (tally.Interval{High: 1}) {
		t.Errorf("of nothing: %+v", got)
	}
}

// 40 alone against 10 alone of 1000: (40.5-10.5)/1002 ± 1.96·sqrt(51 - 900/1002)/1002.
func TestDifferenceIsOfPairs(t *testing.T) {
	t.Parallel()
	got := tally.Difference(40, 10, 1000, tally.Z95)
	half := 1.959964 * math.Sqrt(51-900.0/1002) / 1002
	want := tally.Interval{Estimate: 0.03, Low: 30.0/1002 - half, High: 30.0/1002 + half}
	if math.Abs(got.Low-want.Low) > 1e-12 || math.Abs(got.High-want.High) > 1e-12 || got.Estimate != want.Estimate {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := tally.Difference(0, 0, 0, tally.Z95); got != (tally.Interval{Low: -1, High: 1}) {
		t.Errorf("of nothing: %+v", got)
	}
}
