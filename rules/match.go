package rules

import (
	"slices"
	"strings"
)

// Match says which requests a spec meets. Fields are ANDed, the values of a field ORed; an empty field asks nothing.
type Match struct {
	Method []string `json:"method,omitempty"`
	// Path holds exact paths and prefixes: "/api/*" meets "/api/x", but neither "/api" nor "/apix".
	Path []string `json:"path,omitempty"`
}

// Matches reports whether the spec meets the request.
func (m Match) Matches(r *Request) bool {
	if len(m.Method) > 0 && !slices.Contains(m.Method, r.Method) {
		return false
	}
	if len(m.Path) == 0 {
		return true
	}
	return slices.ContainsFunc(m.Path, func(pattern string) bool { return pathMatches(pattern, r.Path) })
}

func pathMatches(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}
