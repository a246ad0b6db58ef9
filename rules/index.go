package rules

import (
	"slices"
	"strings"
)

// Index finds the rules of one domain that match a request. It is immutable: built once for a revision, read by any
// number of goroutines.
//
// Each version is filed under the one condition of its match that the fewest others share: an exact value of a header,
// host, attribute and so on, or a path. A lookup asks each kind of condition in use once, so its cost follows the
// versions that may match, not the rules that exist.
type Index struct {
	Domain Domain
	rules  []*Rule
	files  files
}

// files hold positions of rules by the condition they are filed under.
type files struct {
	any    []int32
	method map[string][]int32
	host   map[string][]int32
	header []fieldFile
	query  []fieldFile
	attr   []fieldFile
	path   *pathTree
}

// fieldFile files by the exact values of one header, query parameter or attribute.
type fieldFile struct {
	name    string // header: as Request.Header spells it
	byValue map[string][]int32
}

// NewIndex builds the index of a domain's rules, in the order of their names.
func NewIndex(domain Domain, list []*Rule) *Index {
	x := &Index{Domain: domain, rules: slices.Clone(list)}
	slices.SortFunc(x.rules, func(a, b *Rule) int { return strings.Compare(a.Name, b.Name) })
	uses := map[condition]int{}
	x.eachVersion(func(_ int32, m *Match) {
		for _, alternatives := range conditions(m) {
			for _, c := range alternatives {
				uses[c]++
			}
		}
	})
	x.eachVersion(func(i int32, m *Match) { x.files.add(i, rarest(conditions(m), uses)) })
	return x
}

func (x *Index) eachVersion(visit func(i int32, m *Match)) {
	for i, r := range x.rules {
		for _, v := range []*Version{r.Stable, r.Candidate} {
			if v != nil {
				visit(int32(i), &v.Spec.Match)
			}
		}
	}
}

// condition is one exact value, or one path pattern, that a request must have for a version filed under it.
type condition struct {
	kind  conditionKind
	name  string // of the header, query parameter or attribute
	value string
}

type conditionKind uint8

const (
	byPath conditionKind = iota
	byAttr
	byHost
	byHeader
	byQuery
	byMethod
)

// conditions returns the fields of a match that a version can be filed under, each with its alternatives: a request that
// matches meets one of them. The more telling kinds come first.
func conditions(m *Match) [][]condition {
	var all [][]condition
	add := func(kind conditionKind, name string, values []string) {
		if len(values) == 0 {
			return
		}
		alternatives := make([]condition, len(values))
		for i, v := range values {
			alternatives[i] = condition{kind, name, v}
		}
		all = append(all, alternatives)
	}
	add(byPath, "", m.Path)
	calls := make([]string, len(m.GRPC))
	for i, g := range m.GRPC {
		calls[i] = "/" + g
	}
	add(byPath, "", calls)
	for _, f := range m.Attr {
		add(byAttr, f.Name, f.In)
	}
	add(byHost, "", m.Host)
	for _, f := range m.Header {
		add(byHeader, f.header, f.In)
	}
	for _, f := range m.Query {
		add(byQuery, f.Name, f.In)
	}
	add(byMethod, "", m.Method)
	return all
}

// rarest returns the field whose most used alternative is used least; nil when there is none.
func rarest(all [][]condition, uses map[condition]int) []condition {
	var best []condition
	fewest := 0
	for _, alternatives := range all {
		most := 0
		for _, c := range alternatives {
			most = max(most, uses[c])
		}
		if best == nil || most < fewest {
			best, fewest = alternatives, most
		}
	}
	return best
}

func (f *files) add(i int32, alternatives []condition) {
	if len(alternatives) == 0 {
		f.any = appendOnce(f.any, i)
	}
	for _, c := range alternatives {
		switch c.kind {
		case byPath:
			if f.path == nil {
				f.path = &pathTree{}
			}
			f.path.add(c.value, i)
		case byMethod:
			addTo(&f.method, c.value, i)
		case byHost:
			addTo(&f.host, c.value, i)
		case byHeader:
			f.header = addField(f.header, c, i)
		case byQuery:
			f.query = addField(f.query, c, i)
		case byAttr:
			f.attr = addField(f.attr, c, i)
		}
	}
}

func addTo(m *map[string][]int32, value string, i int32) {
	if *m == nil {
		*m = map[string][]int32{}
	}
	(*m)[value] = appendOnce((*m)[value], i)
}

func addField(list []fieldFile, c condition, i int32) []fieldFile {
	at := slices.IndexFunc(list, func(f fieldFile) bool { return f.name == c.name })
	if at < 0 {
		at = len(list)
		list = append(list, fieldFile{name: c.name})
	}
	addTo(&list[at].byValue, c.value, i)
	return list
}

// find appends the positions of all versions that may match, some of them more than once.
func (f *files) find(r *Request, found []int32) []int32 {
	found = append(found, f.any...)
	if f.path != nil && strings.HasPrefix(r.Path, "/") {
		found = f.path.find(r.Path[1:], found)
	}
	found = append(found, f.method[r.Method]...)
	found = append(found, f.host[r.Host]...)
	for i := range f.header {
		if values := r.Header[f.header[i].name]; len(values) > 0 {
			found = append(found, f.header[i].byValue[values[0]]...)
		}
	}
	for i := range f.query {
		if value, n := r.query(f.query[i].name); n > 0 {
			found = append(found, f.query[i].byValue[value]...)
		}
	}
	for i := range f.attr {
		if value, ok := r.Attr[f.attr[i].name]; ok {
			found = append(found, f.attr[i].byValue[value]...)
		}
	}
	return found
}

// Rules returns all rules in the order of their names. The caller must not change them.
func (x *Index) Rules() []*Rule { return x.rules }

// Exempt returns the name of the exemption that the request meets; "" when it meets none.
func (x *Index) Exempt(r *Request) (name string, is bool) {
	for i := range x.Domain.Exempt {
		if e := &x.Domain.Exempt[i]; e.Match.Matches(r) {
			return e.Name, true
		}
	}
	return "", false
}

// Hit is a rule with a version that matches a request, and the versions by role.
type Hit struct {
	Rule *Rule
	// Binding decides for this request; nil where only a what-if version matches.
	Binding *Version
	// WhatIf is only judged; nil where there is none, or it does not match.
	WhatIf *Version
	// Failed is how many of the versions match only because their expression could not be evaluated.
	Failed int
}

// Lookup appends the rules with at least one version that matches to hits, in the order of their names.
func (x *Index) Lookup(r *Request, hits []Hit) []Hit {
	var buffer [64]int32
	found := x.files.find(r, buffer[:0])
	slices.Sort(found)
	for n, i := range found {
		if n > 0 && found[n-1] == i {
			continue
		}
		if hit := x.rules[i].hit(r); hit.Binding != nil || hit.WhatIf != nil {
			hits = append(hits, hit)
		}
	}
	return hits
}

func (r *Rule) hit(req *Request) Hit {
	hit := Hit{Rule: r, Binding: r.Stable, WhatIf: r.Candidate}
	if r.InCohort(req) {
		hit.Binding, hit.WhatIf = r.Candidate, r.Stable
	}
	for _, v := range []**Version{&hit.Binding, &hit.WhatIf} {
		if *v == nil {
			continue
		}
		matches, failed := (*v).Spec.Matches(req)
		if !matches {
			*v = nil
		}
		if failed {
			hit.Failed++
		}
	}
	return hit
}
