package tally_test

import (
	"testing"

	"github.com/headgate/headgate/rules/tally"
)

func TestFiguresAsPeopleReadThem(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", -100: "-100", 1000: "1,000", -792013: "-792,013", 1234567: "1,234,567"} {
		if got := tally.Thousands(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	for f, want := range map[float64]string{0: "0%", 0.00404: "0.404%", 0.123456: "12.3%", 1: "100%", 0.000001234: "0.0001%", -0.5: "-50%"} {
		if got := tally.Percent(f); got != want {
			t.Errorf("%v is %s, want %s", f, got, want)
		}
	}
}
