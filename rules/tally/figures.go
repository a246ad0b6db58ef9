package tally

import (
	"math"
	"strconv"
)

// Thousands is how people read a number: 792,013.
func Thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// InPercent is a fraction in percent, to a ten thousandth.
func InPercent(fraction float64) float64 { return math.Round(1e6*fraction) / 1e4 }

// Percent is how people read a fraction: as a percentage with three digits that say something.
func Percent(fraction float64) string {
	return strconv.FormatFloat(InPercent(fraction), 'g', 3, 64) + "%"
}
