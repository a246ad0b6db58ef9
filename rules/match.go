package rules

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// Match says which requests a spec meets. Fields are ANDed, the values of a field ORed; an empty field asks nothing.
type Match struct {
	Method   []string       `json:"method,omitempty"`
	Host     []string       `json:"host,omitempty"`
	Path     []string       `json:"path,omitempty"` // exact, "/prefix/*", or with {name} segments
	Header   FieldMatches   `json:"header,omitempty"`
	Query    FieldMatches   `json:"query,omitempty"`
	ClientIP []netip.Prefix `json:"clientIP,omitempty"`
	GRPC     []string       `json:"grpc,omitempty"` // "shop.v1.Cart/Add" or "shop.v1.Cart/*"
	Attr     FieldMatches   `json:"attr,omitempty"`
	Not      *Match         `json:"not,omitempty"` // must not match
}

// FieldMatches are conditions on named values (headers, query parameters, attributes), all of which must hold. In order
// of their names; in JSON an object.
type FieldMatches []FieldMatch

// FieldMatch is a condition on one named value. A value given more than once counts as its first.
type FieldMatch struct {
	Name string // header: lower case
	ValueMatch
	header string // header: as Request.Header spells it
}

// ValueMatch is a condition on a value. Exactly one field is set.
type ValueMatch struct {
	In      []string // is one of these
	Present *bool    // is there, or is not
	Prefix  string
	Regex   *Regex
}

// MarshalJSON writes the shortest form: a list of values, or an object with one key.
func (v ValueMatch) MarshalJSON() ([]byte, error) {
	switch {
	case v.Present != nil:
		return json.Marshal(map[string]bool{"present": *v.Present})
	case v.Prefix != "":
		return json.Marshal(map[string]string{"prefix": v.Prefix})
	case v.Regex != nil:
		return json.Marshal(map[string]*Regex{"regex": v.Regex})
	}
	return json.Marshal(v.In)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *ValueMatch) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, &v.In)
	}
	var o struct {
		Present *bool  `json:"present"`
		Prefix  string `json:"prefix"`
		Regex   *Regex `json:"regex"`
	}
	if err := unmarshalStrict(b, &o); err != nil {
		return err
	}
	v.Present, v.Prefix, v.Regex = o.Present, o.Prefix, o.Regex
	return nil
}

// Regex is a regular expression of RE2, which takes time linear in its input. It matches anywhere unless anchored.
type Regex struct{ re *regexp.Regexp }

// maxRegexSize bounds the instructions of a compiled pattern. A short one can stand for millions: "(x{100}){10}" has a
// thousand.
const maxRegexSize = 2000

// ParseRegex compiles a pattern of at most 1024 bytes and 2000 instructions.
func ParseRegex(text string) (*Regex, error) {
	if len(text) > 1024 {
		return nil, fmt.Errorf("the regular expression is longer than 1024 bytes")
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("not a regular expression of RE2: %w", err)
	}
	if size := regexSize(parsed); size > maxRegexSize {
		return nil, fmt.Errorf("the regular expression stands for about %d steps; at most %d: repeat less", size, maxRegexSize)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("not a regular expression of RE2: %w", err)
	}
	return &Regex{re}, nil
}

// regexSize estimates the instructions that a pattern compiles to, without compiling it.
func regexSize(re *syntax.Regexp) int {
	size := 1
	switch re.Op {
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpCharClass:
		size = 1 + len(re.Rune)/32 // a class is one instruction, with a table beside it
	}
	for _, sub := range re.Sub {
		size += regexSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(1, re.Min, re.Max)
	}
	return size
}

func (r *Regex) String() string { return r.re.String() }

// MarshalText writes the pattern.
func (r *Regex) MarshalText() ([]byte, error) { return []byte(r.re.String()), nil }

// UnmarshalText compiles the pattern.
func (r *Regex) UnmarshalText(text []byte) error {
	parsed, err := ParseRegex(string(text))
	if err == nil {
		*r = *parsed
	}
	return err
}

// MarshalJSON writes an object.
func (f FieldMatches) MarshalJSON() ([]byte, error) {
	m := make(map[string]ValueMatch, len(f))
	for _, v := range f {
		m[v.Name] = v.ValueMatch
	}
	return json.Marshal(m) // in order of the names
}

// UnmarshalJSON reads an object.
func (f *FieldMatches) UnmarshalJSON(b []byte) error {
	var m map[string]ValueMatch
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*f = NewFieldMatches(m)
	return nil
}

// NewFieldMatches returns the conditions in the order of their names, which are header names where that is meant: lower
// case.
func NewFieldMatches(m map[string]ValueMatch) FieldMatches {
	f := make(FieldMatches, 0, len(m))
	for name, v := range m {
		f = append(f, FieldMatch{Name: name, ValueMatch: v, header: canonicalHeader(strings.ToLower(name))})
	}
	slices.SortFunc(f, func(a, b FieldMatch) int { return strings.Compare(a.Name, b.Name) })
	return f
}

func (v *ValueMatch) matches(value string, present bool) bool {
	switch {
	case v.Present != nil:
		return present == *v.Present
	case !present:
		return false
	case v.Prefix != "":
		return strings.HasPrefix(value, v.Prefix)
	case v.Regex != nil:
		return v.Regex.re.MatchString(value)
	}
	return slices.Contains(v.In, value)
}

// Matches reports whether the request meets all fields.
func (m *Match) Matches(r *Request) bool {
	if len(m.Method) > 0 && !slices.Contains(m.Method, r.Method) ||
		len(m.Host) > 0 && !slices.Contains(m.Host, r.Host) {
		return false
	}
	if len(m.Path) > 0 && !slices.ContainsFunc(m.Path, func(p string) bool { return pathMatches(p, r.Path) }) {
		return false
	}
	if len(m.GRPC) > 0 && !slices.ContainsFunc(m.GRPC, func(g string) bool { return grpcMatches(g, r) }) {
		return false
	}
	if len(m.ClientIP) > 0 {
		ip := r.IP.Unmap().WithZone("")
		if !slices.ContainsFunc(m.ClientIP, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return false
		}
	}
	return m.fieldsMatch(r) && (m.Not == nil || !m.Not.Matches(r))
}

func (m *Match) fieldsMatch(r *Request) bool {
	for i := range m.Header {
		f := &m.Header[i]
		values := r.Header[f.header]
		first := ""
		if len(values) > 0 {
			first = values[0]
		}
		if !f.matches(first, len(values) > 0) {
			return false
		}
	}
	for i := range m.Query {
		if value, n := r.query(m.Query[i].Name); !m.Query[i].matches(value, n > 0) {
			return false
		}
	}
	for i := range m.Attr {
		if value, ok := r.Attr[m.Attr[i].Name]; !m.Attr[i].matches(value, ok) {
			return false
		}
	}
	return true
}

// grpcMatches reports whether the request is a gRPC call of the method: a POST of that path with a gRPC content type.
func grpcMatches(method string, r *Request) bool {
	if r.Method != "POST" || !strings.HasPrefix(r.Path, "/") || !pathMatches(method, r.Path[1:]) {
		return false
	}
	types := r.Header["Content-Type"]
	return len(types) > 0 && strings.HasPrefix(types[0], "application/grpc")
}

// IsZero reports whether the match asks nothing.
func (m Match) IsZero() bool {
	return len(m.Method) == 0 && len(m.Host) == 0 && len(m.Path) == 0 && len(m.Header) == 0 && len(m.Query) == 0 &&
		len(m.ClientIP) == 0 && len(m.GRPC) == 0 && len(m.Attr) == 0 && m.Not == nil
}
