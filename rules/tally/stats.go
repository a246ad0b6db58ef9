package tally

import "math"

// Interval is an estimate with the range in which the true value lies.
type Interval struct {
	Estimate, Low, High float64
}

// Z95 is the normal quantile of a 95 % interval.
const Z95 = 1.959964

// Ratio estimates a probability from x of n independent trials: the score interval of Wilson (1927), which also holds for
// few trials and for ratios near 0 and 1. Without trials all that is known is that it lies between 0 and 1.
func Ratio(x, n int64, z float64) Interval {
	if n <= 0 {
		return Interval{Low: 0, High: 1}
	}
	p, m, zz := float64(x)/float64(n), float64(n), z*z
	middle := (p + zz/(2*m)) / (1 + zz/m)
	half := z / (1 + zz/m) * math.Sqrt(p*(1-p)/m+zz/(4*m*m))
	return Interval{Estimate: p, Low: max(0, middle-half), High: min(1, middle+half)}
}

// Difference estimates by how much two versions differ that both judged the same n requests, of which one alone refused
// the first number and the other alone the second: the adjusted Wald interval for paired proportions of Agresti and Min
// (2005). Without requests it lies between -1 and 1.
func Difference(one, other, n int64, z float64) Interval {
	if n <= 0 {
		return Interval{Low: -1, High: 1}
	}
	b, c, m := float64(one)+0.5, float64(other)+0.5, float64(n)+2
	middle := (b - c) / m
	half := z * math.Sqrt(b+c-(b-c)*(b-c)/m) / m
	return Interval{Estimate: float64(one-other) / float64(n), Low: max(-1, middle-half), High: min(1, middle+half)}
}
