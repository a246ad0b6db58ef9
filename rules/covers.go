package rules

import (
	"net/netip"
	"slices"
	"strings"
)

// covers reports that every request which inner meets, outer meets too. It is used to warn, so it errs on one side: true
// is certain, false may only mean that it cannot be told.
func covers(outer, inner *Match) bool {
	if !listCovers(outer.Method, inner.Method, func(a, b string) bool { return a == b }) ||
		!listCovers(outer.Host, inner.Host, func(a, b string) bool { return a == b }) ||
		!listCovers(outer.Path, inner.Path, patternCovers) ||
		!listCovers(outer.GRPC, inner.GRPC, patternCovers) ||
		!listCovers(outer.ClientIP, inner.ClientIP, func(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }) {
		return false
	}
	if !fieldsCover(outer.Header, inner.Header) || !fieldsCover(outer.Query, inner.Query) || !fieldsCover(outer.Attr, inner.Attr) {
		return false
	}
	// What outer leaves out, inner must leave out as well.
	return outer.Not == nil || inner.Not != nil && covers(inner.Not, outer.Not)
}

// listCovers reports that outer asks nothing, or that each value of inner is covered by one of outer.
func listCovers[T any](outer, inner []T, covered func(outer, inner T) bool) bool {
	if len(outer) == 0 {
		return true
	}
	return len(inner) > 0 && !slices.ContainsFunc(inner, func(b T) bool {
		return !slices.ContainsFunc(outer, func(a T) bool { return covered(a, b) })
	})
}

// patternCovers reads the inner pattern as if it were a path: its named segments are segments like others, which only a
// named segment or a prefix of the outer pattern meets. A prefix stands for longer paths, so only a prefix covers it.
func patternCovers(outer, inner string) bool {
	if strings.HasSuffix(inner, "/*") && !strings.HasSuffix(outer, "/*") {
		return false
	}
	return pathMatches(outer, inner)
}

func fieldsCover(outer, inner FieldMatches) bool {
	for i := range outer {
		implied := slices.ContainsFunc(inner, func(f FieldMatch) bool {
			return f.Name == outer[i].Name && f.implies(&outer[i].ValueMatch)
		})
		if !implied {
			return false
		}
	}
	return true
}

// implies reports that a value which meets v meets weaker too.
func (v *ValueMatch) implies(weaker *ValueMatch) bool {
	absent := v.Present != nil && !*v.Present
	switch {
	case weaker.Present != nil:
		return absent != *weaker.Present
	case absent:
		return false
	case len(v.In) > 0:
		return !slices.ContainsFunc(v.In, func(value string) bool { return !weaker.matches(value, true) })
	case v.Prefix != "" && weaker.Prefix != "":
		return strings.HasPrefix(v.Prefix, weaker.Prefix)
	case v.Regex != nil && weaker.Regex != nil:
		return v.Regex.String() == weaker.Regex.String()
	}
	return false
}
