package ruletest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// Kind is what a test file begins with.
const Kind = "RuleTest"

// Decode reads the tests of a file. Rule files it names are read relative to it. Unless all is right it returns no test
// and a [rules.ValidationError] with every problem.
func Decode(name string, content []byte) ([]Test, error) {
	d := &decoder{file: name, content: content}
	var tests []Test
	for i, root := range d.parse() {
		t := d.test(root)
		t.Name, t.File = name, name
		if i > 0 {
			t.Name = fmt.Sprintf("%s#%d", name, i+1)
		}
		tests = append(tests, t)
	}
	if len(tests) == 0 && len(d.problems) == 0 {
		d.add(1, 1, rulefile.CodeEmpty, "", "there is no test in this file: begin with kind: %s", Kind)
	}
	if len(d.problems) > 0 {
		return nil, &rules.ValidationError{Problems: d.sorted()}
	}
	return tests, nil
}

// sorted returns the problems in the order of the test file's lines, then those of the files it names.
func (d *decoder) sorted() []rules.Problem {
	slices.SortStableFunc(d.problems, func(a, b rules.Problem) int {
		switch here := a.File == d.file; {
		case here != (b.File == d.file):
			if here {
				return -1
			}
			return 1
		case here:
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		}
		return 0
	})
	return d.problems
}

// parse returns the root of every document that is not empty.
func (d *decoder) parse() []*yaml.Node {
	switch {
	case len(d.content) > rulefile.MaxSize:
		d.add(1, 1, rulefile.CodeSize, "", "the file has more than %d bytes", rulefile.MaxSize)
		return nil
	case !utf8.Valid(d.content):
		d.add(1, 1, rulefile.CodeSyntax, "", "the file is not UTF-8 text")
		return nil
	}
	var roots []*yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(d.content))
	for {
		var document yaml.Node
		err := in.Decode(&document)
		if errors.Is(err, io.EOF) {
			return roots
		}
		if err != nil {
			d.syntax(err)
			return nil
		}
		if len(document.Content) == 1 && document.Content[0].ShortTag() != "!!null" {
			roots = append(roots, document.Content[0])
		}
	}
}

// The parser tells where it gave up only in its text, and without a column.
var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func (d *decoder) syntax(err error) {
	line, text := 1, err.Error()
	if m := yamlError.FindStringSubmatch(text); m != nil {
		text = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	d.add(line, 1, rulefile.CodeSyntax, "", "this is not YAML: %s", text)
}

func (d *decoder) test(root *yaml.Node) Test {
	var t Test
	d.refuseHidden(root)
	o, ok := d.mapping(root, "", "apiVersion", "kind", "description", "ruleset", "rules", "shadow", "steps")
	if !ok {
		return t
	}
	if n, ok := d.required(o, "kind"); ok {
		d.word(n, "kind", Kind)
	}
	if n := o.get("apiVersion"); n != nil {
		d.word(n, "apiVersion", rulefile.APIVersion)
	}
	if n := o.get("description"); n != nil {
		d.text(n, "description")
	}
	known := d.ruleSets(o, &t)
	if n := o.get("shadow"); n != nil {
		t.shadow = map[string]bool{}
		for _, id := range d.ruleNames(n, "shadow", &t, known) {
			t.shadow[id] = true
		}
	}
	n, ok := d.required(o, "steps")
	if !ok {
		return t
	}
	elements := d.sequence(n, "steps")
	if n.Kind == yaml.SequenceNode && len(elements) == 0 {
		d.fail(n, rulefile.CodeMissing, "steps", "there is no step: a test that asks nothing passes always")
	}
	for i, e := range elements {
		t.steps = append(t.steps, d.step(e, index("steps", i), &t, known))
	}
	d.checkTimes(elements, t.steps)
	return t
}

// farthestBack is how far a step may go back behind the latest instant before it: as long as every store keeps a counter
// that has run out. Farther back the stores would differ.
const farthestBack = time.Hour

func (d *decoder) checkTimes(elements []*yaml.Node, steps []step) {
	var now, latest time.Duration
	for i := range steps {
		s := &steps[i]
		if s.at >= 0 {
			now = s.at
		}
		if latest-now > farthestBack {
			d.fail(elements[i], rulefile.CodeKind, index("steps", i)+".at", "the step is more than %s before a request above it", farthestBack)
		}
		now += time.Duration(s.repeat-1) * s.every
		latest = max(latest, now)
	}
}

// ruleNames reads a list of rules as "domain/name", in order.
func (d *decoder) ruleNames(n *yaml.Node, path string, t *Test, known bool) []string {
	ids := []string{}
	for i, e := range d.sequence(n, path) {
		name, ok := d.text(e, index(path, i))
		if !ok || !known {
			continue
		}
		found := t.find(name)
		switch len(found) {
		case 0:
			d.fail(e, rulefile.CodeUnknown, index(path, i), "there is no rule %q", name)
		case 1:
			ids = append(ids, found[0])
		default:
			d.fail(e, rulefile.CodeUnknown, index(path, i), "%q is a rule of several domains: write domain/name", name)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// find returns the rules with a name, "name" or "domain/name", in the latter form.
func (t *Test) find(name string) (ids []string) {
	for _, set := range t.sets {
		for _, r := range set.Rules {
			if id := set.Domain + "/" + r.Name; name == r.Name || name == id {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
