package rules

import (
	"cmp"
	"slices"
)

// NamedSpec is a spec with the name of its rule.
type NamedSpec struct {
	Name string
	Spec Spec
}

// Pair names two rules by their position in a list; First is before Second.
type Pair struct{ First, Second int }

// SameRules returns the rules of one domain that are equal in everything but name and text to an earlier one of the
// list, each paired with the first that it equals. Such a rule adds nothing, and is mostly a copy that was meant to be
// changed.
func SameRules(list []NamedSpec) []Pair {
	var pairs []Pair
	first := make(map[string]int, len(list))
	for i := range list {
		s := list[i].Spec.withoutText()
		s.Match = s.Match.sorted()
		if len(s.Cost) == 1 && s.Cost[0].Cost == 1 {
			s.Cost = nil // what a request costs anyway
		}
		encoded, err := s.Encode()
		if err != nil {
			continue // a spec that cannot be encoded has a problem of its own
		}
		if at, same := first[string(encoded)]; same {
			pairs = append(pairs, Pair{at, i})
			continue
		}
		first[string(encoded)] = i
	}
	return pairs
}

// sorted returns the match with its lists in order, since their order means nothing. The order of paths does: the first
// that meets a request names its segments.
func (m Match) sorted() Match {
	m.Method, m.Host, m.GRPC = ordered(m.Method), ordered(m.Host), ordered(m.GRPC)
	for _, fields := range []*FieldMatches{&m.Header, &m.Query, &m.Attr} {
		*fields = slices.Clone(*fields)
		for i := range *fields {
			(*fields)[i].In = ordered((*fields)[i].In)
		}
	}
	if m.Not != nil {
		not := m.Not.sorted()
		m.Not = &not
	}
	return m
}

func ordered[T cmp.Ordered](list []T) []T {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// SameCounters reports whether every limit of the spec after counts where the spec before counted it: with the same name,
// algorithm, window and key. Where it does not, its counters start anew unless the spec was judged in shadow meanwhile.
func SameCounters(before, after *Spec) bool {
	if !SameKey(before.Key, after.Key) {
		return false
	}
	for i := range after.Limits {
		l := &after.Limits[i]
		if !slices.ContainsFunc(before.Limits, func(o Limit) bool {
			return o.Name == l.Name && o.Algorithm == l.Algorithm && o.Window() == l.Window()
		}) {
			return false
		}
	}
	return true
}
