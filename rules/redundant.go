package rules

import (
	"fmt"
	"math/bits"
	"time"
)

// redundant warns of a rule that refuses nothing which another one, for the same requests and keys and counting in the
// same way, does not refuse as well. Both are always charged together: what one has left is never more than what the other has.
func (w *warner) redundant(list []NamedSpec) {
	alike := map[string][]int{}
	for i := range list {
		if like, ok := withoutNumbers(&list[i].Spec); ok {
			alike[like] = append(alike[like], i)
		}
	}
	for i := range list {
		like, ok := withoutNumbers(&list[i].Spec)
		if !ok {
			continue
		}
		for _, j := range alike[like] {
			if j != i && stricter(list[j].Spec.Limits[0].Rate, list[i].Spec.Limits[0].Rate) {
				w.at = fmt.Sprintf("rules[%d].", i)
				w.add(WarnRedundant, "limits[0].rate", "with both in force, the rule refuses nothing that %q does not refuse: that has %s for the same requests and keys",
					list[j].Name, list[j].Spec.Limits[0].Rate)
				break
			}
		}
	}
}

// withoutNumbers encodes all that must be equal for two rules to be compared by their rate; false where a rule has
// several limits or rates, or one that counts nothing.
func withoutNumbers(s *Spec) (string, bool) {
	if len(s.Limits) != 1 || s.Limits[0].By != nil || s.Limits[0].Rate.Unlimited || s.Limits[0].Rate.Amount == 0 {
		return "", false
	}
	like := s.withoutText()
	like.Match = like.Match.sorted()
	like.Response = Response{}
	window := s.Limits[0].Rate.Window
	like.Limits = []Limit{{Algorithm: s.Limits[0].Algorithm, Rate: Rate{Amount: 1, Window: window, Burst: 1}}}
	encoded, err := like.Encode()
	return string(encoded), err == nil
}

func stricter(a, b Rate) bool {
	return a.Amount <= b.Amount && a.Burst <= b.Burst && a != b
}

// CompareLimits warns of limits that one spec makes ten times or more smaller or larger than the other had them, with
// paths of the new spec. Limits are compared by name, and the only one of each spec whatever its name; those that are new
// or gone are not.
func CompareLimits(before, after *Spec) []Problem {
	var w warner
	for i := range after.Limits {
		l := &after.Limits[i]
		old := before.limitLike(l, len(after.Limits) == 1)
		if old == nil {
			continue
		}
		at := fmt.Sprintf("limits[%d].", i)
		w.tenfold(at+"rate", old.Rate, l.Rate)
		for _, value := range sortedValues(l.Values) {
			w.tenfold(at+"values."+value, old.rateOf(value), l.Values[value])
		}
		for _, value := range sortedValues(old.Values) {
			if _, kept := l.Values[value]; !kept {
				w.tenfold(at+"values", old.Values[value], l.Rate)
			}
		}
	}
	return w.found
}

func (s *Spec) limitLike(l *Limit, only bool) *Limit {
	for i := range s.Limits {
		if s.Limits[i].Name == l.Name || only && len(s.Limits) == 1 {
			return &s.Limits[i]
		}
	}
	return nil
}

// rateOf is the rate for a value of By.
func (l *Limit) rateOf(value string) Rate {
	if r, ok := l.Values[value]; ok {
		return r
	}
	return l.Rate
}

func (w *warner) tenfold(at string, before, after Rate) {
	numbers := !before.Unlimited && !after.Unlimited
	switch {
	case tenTimes(before, after), numbers && burstTenTimes(before.Burst, after.Burst),
		tenTimes(after, before), numbers && burstTenTimes(after.Burst, before.Burst):
		w.add(WarnTenfold, at, "the limit changes ten times or more: from %s to %s", before, after)
	}
}

// tenTimes reports that large is at least ten times as fast as small. No limit is that of every number, and every number
// that of 0.
func tenTimes(small, large Rate) bool {
	switch {
	case small.Unlimited:
		return false
	case large.Unlimited:
		return true
	case small.Amount == 0 || large.Amount == 0:
		return small.Amount < large.Amount
	}
	// large.Amount/large.Window >= 10 * small.Amount/small.Window, in 128 bits: amounts are below 2^53.
	hiL, loL := bits.Mul64(uint64(large.Amount), uint64(small.Window/time.Second))    //nolint:gosec // neither is negative
	hiS, loS := bits.Mul64(10*uint64(small.Amount), uint64(large.Window/time.Second)) //nolint:gosec // neither is negative
	return hiL > hiS || hiL == hiS && loL >= loS
}

func burstTenTimes(small, large int64) bool { return small > 0 && large/10 >= small }
