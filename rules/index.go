package rules

import (
	"slices"
	"strings"
)

// Domain is what holds for all the rules of a domain.
type Domain struct {
	Name     string
	Revision int64    // the last one that touched the domain or one of its rules
	Secret   [16]byte // keys the hashes of counters
}

// Index finds the rules of one domain that match a request. It is immutable: built once for a revision, read by any
// number of goroutines. A lookup walks the rules filed under the request's path and each of its prefixes, not all rules.
type Index struct {
	Domain Domain
	rules  []*Rule
	any    []int            // rules with a version that asks for no path
	exact  map[string][]int // by path
	prefix map[string][]int // by "/v1/", for "/v1/*"
}

// NewIndex builds the index of a domain's rules, in the order of their names.
func NewIndex(domain Domain, list []*Rule) *Index {
	x := &Index{
		Domain: domain,
		rules:  slices.Clone(list),
		exact:  map[string][]int{},
		prefix: map[string][]int{},
	}
	slices.SortFunc(x.rules, func(a, b *Rule) int { return strings.Compare(a.Name, b.Name) })
	for i, r := range x.rules {
		for _, v := range []*Version{r.Stable, r.Candidate} {
			if v != nil {
				x.file(i, v.Spec.Match.Path)
			}
		}
	}
	return x
}

func (x *Index) file(i int, paths []string) {
	if len(paths) == 0 {
		x.any = appendOnce(x.any, i)
	}
	for _, p := range paths {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			x.prefix[prefix] = appendOnce(x.prefix[prefix], i)
		} else {
			x.exact[p] = appendOnce(x.exact[p], i)
		}
	}
}

func appendOnce(list []int, i int) []int {
	if len(list) > 0 && list[len(list)-1] == i {
		return list
	}
	return append(list, i)
}

// Rules returns all rules in the order of their names. The caller must not change them.
func (x *Index) Rules() []*Rule { return x.rules }

// Hit is a rule with a version that matches a request, and the versions by role.
type Hit struct {
	Rule    *Rule
	Binding *Version // decides for this request; nil where only a what-if version matches
	WhatIf  *Version // is only judged; nil where there is none, or it does not match
}

// Lookup returns the rules with at least one version that matches, in the order of their names.
func (x *Index) Lookup(r *Request) []Hit {
	filed := slices.Clone(x.any)
	filed = append(filed, x.exact[r.Path]...)
	for i := range len(r.Path) {
		if r.Path[i] == '/' {
			filed = append(filed, x.prefix[r.Path[:i+1]]...)
		}
	}
	slices.Sort(filed)
	hits := make([]Hit, 0, len(filed))
	for _, i := range slices.Compact(filed) {
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
	if hit.Binding != nil && !hit.Binding.Spec.Match.Matches(req) {
		hit.Binding = nil
	}
	if hit.WhatIf != nil && !hit.WhatIf.Spec.Match.Matches(req) {
		hit.WhatIf = nil
	}
	return hit
}
