package rulefile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headgate/headgate/rules"
)

// A File is a rule file as its author named it.
type File struct {
	Name    string
	Content []byte
}

// A RuleSet is what the files say about one domain.
type RuleSet struct {
	Domain string
	Rules  []Rule // in the order of the files
}

// A Rule is one rule of a file, with the place where it begins.
type Rule struct {
	Name  string
	Spec  rules.Spec
	Place Place
}

// A Place is a position in a file; lines and columns count from 1, columns in characters.
type Place struct {
	File         string
	Line, Column int
}

func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// maxProblems bounds a report: who sees two hundred problems has one, and an answer must fit in a reply.
const maxProblems = 200

// Decode reads the rule sets of one file; see [DecodeAll].
func Decode(name string, content []byte) ([]RuleSet, error) {
	return DecodeAll([]File{{Name: name, Content: content}})
}

// DecodeAll reads the rule sets of several files, one for each domain, in the order in which they name the domains.
// Documents of one domain are joined, wherever they stand; a rule may be written only once. Unless every file is
// without a problem, it returns no rule set and a [rules.ValidationError] with the problems of all.
func DecodeAll(files []File) ([]RuleSet, error) {
	j := joiner{sets: map[string]int{}, places: map[string]Place{}}
	for _, f := range files {
		d := decoder{file: f.Name, reported: map[position]bool{}}
		found := d.decode(f.Content)
		for _, set := range found {
			j.join(&d, set)
		}
		// Problems are found key by key; the reader goes through the file line by line.
		slices.SortStableFunc(d.problems, func(a, b rules.Problem) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		j.problems = append(j.problems, d.problems...)
	}
	if n := len(j.problems); n > maxProblems {
		j.problems = append(j.problems[:maxProblems:maxProblems], rules.Problem{
			Code: CodeSize, Message: fmt.Sprintf("%d more problems are left out", n-maxProblems),
		})
	}
	if len(j.problems) > 0 {
		return nil, &rules.ValidationError{Problems: j.problems}
	}
	return j.list, nil
}

// joiner collects the documents of each domain.
type joiner struct {
	list     []RuleSet
	sets     map[string]int   // domain: its index in list
	places   map[string]Place // "domain/name": where it was written first
	problems []rules.Problem
}

func (j *joiner) join(d *decoder, set document) {
	at, known := j.sets[set.domain]
	if !known {
		at = len(j.list)
		j.sets[set.domain] = at
		j.list = append(j.list, RuleSet{Domain: set.domain})
	}
	for _, r := range set.rules {
		id := set.domain + "/" + r.Name
		if first, twice := j.places[id]; twice {
			d.problem(r.node, CodeTwice, r.path+".name", "%q is already the name of the rule at %s", r.Name, first)
			continue
		}
		j.places[id] = r.Place
		j.list[at].Rules = append(j.list[at].Rules, r.Rule)
	}
}
