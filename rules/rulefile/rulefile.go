package rulefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	Owner  string        // of the first document that names one; each rule's spec holds its own
	Shard  *rules.Source // nil: none
	Exempt []rules.Exemption
	Rules  []Rule // in the order of the files

	shardAt  located
	exemptAt []places
}

// A Rule is one rule of a file, with the place where it begins.
type Rule struct {
	Name  string
	Spec  rules.Spec
	Place Place

	places places
	broken bool // has problems of its own
}

// Named returns the rules' names and specs, for package rules.
func (s *RuleSet) Named() []rules.NamedSpec {
	list := make([]rules.NamedSpec, len(s.Rules))
	for i := range s.Rules {
		list[i] = rules.NamedSpec{Name: s.Rules[i].Name, Spec: s.Rules[i].Spec}
	}
	return list
}

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
	programs := newPrograms()
	order := map[string]int{}
	more := 0
	for i, f := range files {
		order[f.Name] = i
		d := decoder{file: f.Name, reported: map[position]bool{}, programs: programs}
		for _, set := range d.decode(f.Content) {
			j.join(&d, set)
		}
		j.problems = append(j.problems, d.problems...)
		more += d.more
	}
	for i := range j.list {
		j.problems = append(j.problems, sameRules(&j.list[i])...)
	}
	sortProblems(j.problems, order)
	shown := min(len(j.problems), maxProblems)
	if more += len(j.problems) - shown; more > 0 {
		j.problems = append(j.problems[:shown:shown], rules.Problem{
			Code: CodeSize, Message: fmt.Sprintf("%d more problems are left out", more),
		})
	}
	if len(j.problems) > 0 {
		return nil, &rules.ValidationError{Problems: j.problems}
	}
	return j.list, nil
}

// sortProblems brings problems, which are found key by key, into the order of the files: the reader goes through them
// line by line.
func sortProblems(problems []rules.Problem, order map[string]int) {
	slices.SortStableFunc(problems, func(a, b rules.Problem) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Warnings returns what is suspicious about rule sets that [DecodeAll] accepted, in the order of the files' lines.
func Warnings(sets []RuleSet) []rules.Problem {
	var all []rules.Problem
	order := map[string]int{}
	for i := range sets {
		set := &sets[i]
		for _, p := range rules.Warn(rules.Domain{Name: set.Domain, Shard: set.Shard, Exempt: set.Exempt}, set.Named()) {
			at := set.locate(p.Path)
			p.File, p.Line, p.Column, p.Path = at.File, at.Line, at.Column, at.path
			all = append(all, p)
		}
		for _, r := range set.Rules {
			if _, known := order[r.Place.File]; !known {
				order[r.Place.File] = len(order)
			}
		}
	}
	sortProblems(all, order)
	return all
}

// locate finds the place of a path of package rules: "rules[3].limits[0].rate", "exempt[0].match", "shard".
func (s *RuleSet) locate(path string) located {
	head, rest, _ := strings.Cut(path, ".")
	var i int
	if _, err := fmt.Sscanf(head, "rules[%d]", &i); err == nil && i < len(s.Rules) {
		return s.Rules[i].places.find(rest)
	}
	if _, err := fmt.Sscanf(head, "exempt[%d]", &i); err == nil && i < len(s.exemptAt) {
		return s.exemptAt[i].find(rest)
	}
	return s.shardAt
}
