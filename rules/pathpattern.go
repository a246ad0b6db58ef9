package rules

import (
	"fmt"
	"strings"
)

// A path pattern is exact ("/v1/login"), has named segments ("/v1/hooks/{id}/send"), or is a prefix with a trailing "/*",
// which meets "/api/x" but neither "/api" nor "/apix". A named segment meets one segment that is not empty.

// checkPathPattern says what is wrong with a pattern; "" when nothing is.
func checkPathPattern(pattern string) string {
	switch {
	case !strings.HasPrefix(pattern, "/"):
		return fmt.Sprintf("%q does not begin with /", pattern)
	case strings.ContainsAny(pattern, "?#"):
		return fmt.Sprintf("%q has a query string or fragment, which are never part of a path", pattern)
	case len(pattern) > 2048:
		return "the path is longer than 2048 bytes"
	}
	body := strings.TrimSuffix(pattern, "/*")
	if strings.Contains(body, "*") {
		return fmt.Sprintf("%q: a * may only stand at the end, as /*", pattern)
	}
	seen := map[string]bool{}
	plain := make([]string, 0, 8)
	for segment := range strings.SplitSeq(body, "/") {
		if !strings.ContainsAny(segment, "{}") {
			plain = append(plain, segment)
			continue
		}
		name, ok := paramName(segment)
		if !ok || !validParamName(name) {
			return fmt.Sprintf("%q: a named segment is {name} between slashes, with a-z, 0-9, _ and - in the name", pattern)
		}
		if seen[name] {
			return fmt.Sprintf("%q names two segments %q", pattern, name)
		}
		seen[name] = true
		plain = append(plain, "x")
	}
	if normal, err := NormalizePath(strings.Join(plain, "/")); err != nil || normal != strings.Join(plain, "/") && body != "" {
		return fmt.Sprintf("%q is never met: requests are matched in normal form, without repeated slashes, dot segments and needless %% encodings", pattern)
	}
	return ""
}

func paramName(segment string) (string, bool) {
	if len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}' {
		return segment[1 : len(segment)-1], true
	}
	return "", false
}

func validParamName(name string) bool {
	return name != "" && len(name) <= 63 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// pathMatches reports whether the pattern meets the path.
func pathMatches(pattern, path string) bool {
	if !strings.Contains(pattern, "{") {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(path, prefix)
		}
		return pattern == path
	}
	_, matches, _ := walkPattern(pattern, path, "")
	return matches
}

// pathParam returns the segment that the pattern names; false when the pattern does not meet the path or names none so.
func pathParam(pattern, path, name string) (string, bool) {
	value, matches, named := walkPattern(pattern, path, name)
	return value, matches && named
}

// walkPattern compares segment by segment, and picks the one that is named name.
func walkPattern(pattern, path, name string) (value string, matches, named bool) {
	for {
		want, restPattern, morePattern := strings.Cut(pattern, "/")
		if want == "*" && !morePattern {
			return value, true, named
		}
		got, restPath, morePath := strings.Cut(path, "/")
		if param, ok := paramName(want); ok {
			if got == "" {
				return "", false, false
			}
			if param == name {
				value, named = got, true
			}
		} else if want != got {
			return "", false, false
		}
		if morePattern != morePath {
			return "", false, false
		}
		if !morePattern {
			return value, true, named
		}
		pattern, path = restPattern, restPath
	}
}

// pathTree finds the entries filed under the patterns that meet a path. Its cost follows the segments of the path, not
// the patterns in it.
type pathTree struct {
	literal map[string]*pathTree
	param   *pathTree
	exact   []int32
	prefix  []int32
}

func (t *pathTree) add(pattern string, entry int32) {
	node := t
	for segment := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		if segment == "*" {
			node.prefix = appendOnce(node.prefix, entry)
			return
		}
		if _, ok := paramName(segment); ok {
			if node.param == nil {
				node.param = &pathTree{}
			}
			node = node.param
			continue
		}
		if node.literal == nil {
			node.literal = map[string]*pathTree{}
		}
		child := node.literal[segment]
		if child == nil {
			child = &pathTree{}
			node.literal[segment] = child
		}
		node = child
	}
	node.exact = appendOnce(node.exact, entry)
}

// find appends the entries for a path without its leading slash.
func (t *pathTree) find(path string, found []int32) []int32 {
	found = append(found, t.prefix...)
	segment, rest, more := strings.Cut(path, "/")
	if child := t.literal[segment]; child != nil {
		found = child.next(rest, more, found)
	}
	if t.param != nil && segment != "" {
		found = t.param.next(rest, more, found)
	}
	return found
}

func (t *pathTree) next(rest string, more bool, found []int32) []int32 {
	if more {
		return t.find(rest, found)
	}
	return append(found, t.exact...)
}

func appendOnce(list []int32, entry int32) []int32 {
	if len(list) > 0 && list[len(list)-1] == entry {
		return list
	}
	return append(list, entry)
}
