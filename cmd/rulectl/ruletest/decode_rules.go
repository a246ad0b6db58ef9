package ruletest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// ruleSets reads the rules under test: those in the test, or those of the files it names. It reports whether they are
// known, so that names can be checked.
func (d *decoder) ruleSets(o object, t *Test) bool {
	inline, files := o.get("ruleset"), o.get("rules")
	switch {
	case inline != nil && files != nil:
		d.fail(files, rulefile.CodeBoth, "rules", "a test has either ruleset or rules")
		return false
	case inline != nil:
		t.sets = d.inline(o, inline)
	case files != nil:
		t.sets = d.fromFiles(files)
	default:
		d.fail(o.node, rulefile.CodeMissing, "ruleset", "the rules under test are missing: give ruleset, or rules with a list of files")
	}
	return len(t.sets) > 0
}

func (d *decoder) fromFiles(n *yaml.Node) []rulefile.RuleSet {
	var files []rulefile.File
	complete := true
	for i, e := range d.sequence(n, "rules") {
		name, ok := d.text(e, index("rules", i))
		if !ok {
			complete = false
			continue
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(d.file), name)
		}
		content, err := readBounded(name)
		if err != nil {
			d.fail(e, rulefile.CodeMissing, index("rules", i), "%s", err)
			complete = false
			continue
		}
		files = append(files, rulefile.File{Name: name, Content: content})
	}
	if !complete {
		return nil
	}
	if len(files) == 0 {
		d.fail(n, rulefile.CodeMissing, "rules", "no rule file is named")
		return nil
	}
	sets, err := rulefile.DecodeAll(files)
	d.adopt(err)
	return sets
}

// adopt takes over the problems of rule files.
func (d *decoder) adopt(err error) {
	var invalid *rules.ValidationError
	switch {
	case err == nil:
	case errors.As(err, &invalid):
		d.problems = append(d.problems, invalid.Problems...)
	default:
		d.add(1, 1, rulefile.CodeSyntax, "", "%s", err)
	}
}

// readBounded reads a file as far as it is of use.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, rulefile.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}

// inline decodes the rule set that is written in the test. It is handed on with everything around it left blank, so that
// the places of its problems are those of the test file.
func (d *decoder) inline(o object, n *yaml.Node) []rulefile.RuleSet {
	if o.node.Style&yaml.FlowStyle != 0 {
		return d.inlineFlow(n)
	}
	lines := bytes.SplitAfter(d.content, []byte("\n"))
	end := len(lines)
	for i := n.Line; i < len(lines); i++ { // the lines behind the one it begins in
		if marker := lines[i]; bytes.HasPrefix(marker, []byte("---")) || bytes.HasPrefix(marker, []byte("...")) {
			end = i
			break
		}
	}
	for _, line := range o.lines {
		if line > n.Line {
			end = min(end, line-1)
		}
	}
	var text bytes.Buffer
	text.WriteString(strings.Repeat("\n", n.Line-1))
	text.WriteString(strings.Repeat(" ", n.Column-1))
	first := []rune(string(lines[n.Line-1]))
	text.WriteString(string(first[min(n.Column-1, len(first)):]))
	for _, line := range lines[n.Line:max(n.Line, end)] {
		text.Write(line)
	}
	sets, err := rulefile.Decode(d.file, text.Bytes())
	d.adopt(err)
	return sets
}

// inlineFlow decodes a rule set inside of braces, as in JSON. Its problems are told at its beginning.
func (d *decoder) inlineFlow(n *yaml.Node) []rulefile.RuleSet {
	text, err := yaml.Marshal(n)
	if err != nil {
		d.fail(n, rulefile.CodeSyntax, "ruleset", "%s", err)
		return nil
	}
	sets, err := rulefile.Decode(d.file, text)
	before := len(d.problems)
	d.adopt(err)
	for i := before; i < len(d.problems); i++ {
		d.problems[i].Line, d.problems[i].Column = n.Line, n.Column
	}
	return sets
}
