package rules

import (
	"fmt"
	"regexp"
	"strings"
)

// Stable codes of the problems found here. HG00xx is the form of a file, HG01xx a spec.
const (
	CodeName  = "HG0101"
	CodeMatch = "HG0102"
	CodeLimit = "HG0103"
	CodeKey   = "HG0104"
	CodeMode  = "HG0105"
)

// MaxLimits is how many limits one spec may have.
const MaxLimits = 4

var namePattern = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// CheckName says what is wrong with the name of a rule, domain or limit; "" when nothing is. The alphabet keeps names
// safe in headers, metrics and paths.
func CheckName(name string) string {
	if namePattern.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("%q is not a name: use 1 to 63 of a-z, 0-9 and -", name)
}

// Validate returns every problem of the spec, with paths relative to it ("limits[1].rate").
func (s Spec) Validate() []Problem {
	var problems []Problem
	add := func(code, path, format string, args ...any) {
		problems = append(problems, Problem{Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
	}
	s.Match.validate(add)
	for i, k := range s.Key {
		if k.kind == 0 {
			add(CodeKey, fmt.Sprintf("key[%d]", i), "a key part is missing: use ip, ip/N or header:NAME")
		}
		for j := range i {
			if s.Key[j] == k {
				add(CodeKey, fmt.Sprintf("key[%d]", i), "%s is named twice", k)
			}
		}
	}
	s.validateLimits(add)
	if s.Failure != FailOpen && s.Failure != FailClosed {
		add(CodeMode, "failure", "%q is not known: use open or closed", s.Failure)
	}
	return problems
}

func (s Spec) validateLimits(add func(code, path, format string, args ...any)) {
	if len(s.Limits) == 0 {
		add(CodeLimit, "limit", `a limit is missing: write for example "60/min"`)
	}
	if len(s.Limits) > MaxLimits {
		add(CodeLimit, "limits", "a rule has at most %d limits, here are %d", MaxLimits, len(s.Limits))
	}
	seen := map[string]bool{}
	for i, l := range s.Limits {
		path := fmt.Sprintf("limits[%d]", i)
		if l.Algorithm != TokenBucket {
			add(CodeLimit, path+".algorithm", "%q is not known: use %s", l.Algorithm, TokenBucket)
		}
		if err := l.Rate.check(); err != nil {
			add(CodeLimit, path+".rate", "%s", err)
		}
		if l.Name == "" && len(s.Limits) == 1 {
			continue
		}
		if problem := CheckName(l.Name); problem != "" {
			add(CodeName, path+".name", "%s", problem)
		}
		if seen[l.Name] {
			add(CodeName, path+".name", "%q names two limits of this rule", l.Name)
		}
		seen[l.Name] = true
	}
}

func (m Match) validate(add func(code, path, format string, args ...any)) {
	for i, method := range m.Method {
		if method == "" || strings.ToUpper(method) != method || !validHeaderName(strings.ToLower(method)) {
			add(CodeMatch, fmt.Sprintf("match.method[%d]", i), "%q is not an HTTP method in upper case", method)
		}
	}
	for i, path := range m.Path {
		at := fmt.Sprintf("match.path[%d]", i)
		switch {
		case !strings.HasPrefix(path, "/"):
			add(CodeMatch, at, "%q does not begin with /", path)
		case strings.ContainsAny(path, "?#"):
			add(CodeMatch, at, "%q has a query string or fragment, which are never part of a path", path)
		case strings.Contains(strings.TrimSuffix(path, "/*"), "*"):
			add(CodeMatch, at, "%q: a * may only stand at the end, as /*", path)
		}
	}
}
