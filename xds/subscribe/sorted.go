package subscribe

import (
	"maps"
	"slices"
	"strings"
)

// sorted is an immutable list of values by name.
type sorted[T any] []entry[T]

type entry[T any] struct {
	name  string
	value *T
}

// edits are changes of a list, by name; nil takes a value away.
type edits[T any] map[string]*T

// find returns the value of the name, or nil.
func (s sorted[T]) find(name string) *T {
	if i, ok := s.search(name); ok {
		return s[i].value
	}
	return nil
}

func (s sorted[T]) search(name string) (i int, ok bool) {
	return slices.BinarySearchFunc(s, name, func(e entry[T], name string) int { return strings.Compare(e.name, name) })
}

// with returns the list as it is after the edits. What lies between two of them is copied as a whole, so that a few edits
// of a long list cost little more than a copy of it.
func (s sorted[T]) with(changes edits[T]) sorted[T] {
	if len(changes) == 0 {
		return s
	}
	next, rest := make(sorted[T], 0, len(s)+len(changes)), s
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		i, found := rest.search(name)
		next = append(next, rest[:i]...)
		if rest = rest[i:]; found {
			rest = rest[1:]
		}
		if value := changes[name]; value != nil {
			next = append(next, entry[T]{name, value})
		}
	}
	return append(next, rest...)
}
