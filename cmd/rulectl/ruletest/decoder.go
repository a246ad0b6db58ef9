package ruletest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// decoder reads one file strictly and collects its problems.
type decoder struct {
	file     string
	content  []byte
	problems []rules.Problem
}

func (d *decoder) add(line, column int, code, path, format string, args ...any) {
	d.problems = append(d.problems, rules.Problem{
		Code: code, File: d.file, Line: line, Column: column, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

func (d *decoder) fail(n *yaml.Node, code, path, format string, args ...any) {
	d.add(n.Line, n.Column, code, path, format, args...)
}

func (d *decoder) place(n *yaml.Node) rulefile.Place {
	return rulefile.Place{File: d.file, Line: n.Line, Column: n.Column}
}

// refuseHidden reports anchors, aliases and tags, as in rule files: with them a text means something else than it says,
// and a short file can stand for a huge one.
func (d *decoder) refuseHidden(n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		d.fail(n, rulefile.CodeHidden, "", "anchors, aliases and tags are not read: write the value where it is used")
	}
	if n.Kind == yaml.AliasNode {
		return // not into what it stands for
	}
	for _, child := range n.Content {
		d.refuseHidden(child)
	}
}

// object is a mapping whose keys have been checked.
type object struct {
	node   *yaml.Node
	path   string       // with a trailing dot, where it is not ""
	keys   []*yaml.Node // that are known
	lines  []int        // where keys stand, unknown ones too
	values map[string]*yaml.Node
}

func (o object) get(key string) *yaml.Node { return o.values[key] }

// mapping returns a mapping with the known keys; with none named, all keys are known.
func (d *decoder) mapping(n *yaml.Node, path string, known ...string) (object, bool) {
	o := object{node: n, path: path, values: map[string]*yaml.Node{}}
	if path != "" {
		o.path += "."
	}
	if n.Kind != yaml.MappingNode {
		d.wrongKind(n, path, "a mapping of keys to values")
		return o, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		o.lines = append(o.lines, key.Line)
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			d.fail(key, rulefile.CodeKind, path, "a key must be text")
		case o.values[key.Value] != nil:
			d.fail(key, rulefile.CodeAgain, o.path+key.Value, "the key is repeated")
		case len(known) > 0 && !slices.Contains(known, key.Value):
			d.fail(key, rulefile.CodeUnknown, o.path+key.Value, "unknown key; known here: %s", strings.Join(known, ", "))
		default:
			o.values[key.Value] = value
			o.keys = append(o.keys, key)
		}
	}
	return o, true
}

func (d *decoder) required(o object, key string) (*yaml.Node, bool) {
	n := o.values[key]
	if n == nil {
		d.fail(o.node, rulefile.CodeMissing, o.path+key, "is missing")
	}
	return n, n != nil
}

func (d *decoder) sequence(n *yaml.Node, path string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		d.wrongKind(n, path, "a list")
		return nil
	}
	return n.Content
}

func isScalar(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" }

// scalar returns a text, number or truth value as it is written.
func (d *decoder) scalar(n *yaml.Node, path string) (string, bool) {
	if !isScalar(n) {
		d.wrongKind(n, path, "a single value")
		return "", false
	}
	return n.Value, true
}

func (d *decoder) text(n *yaml.Node, path string) (string, bool) {
	if !isScalar(n) || n.ShortTag() != "!!str" {
		d.wrongKind(n, path, "text")
		return "", false
	}
	return n.Value, true
}

func (d *decoder) word(n *yaml.Node, path string, known ...string) (string, bool) {
	text, ok := d.text(n, path)
	if ok && !slices.Contains(known, text) {
		d.fail(n, rulefile.CodeKind, path, "%q is not known: use %s", text, strings.Join(known, ", "))
		return "", false
	}
	return text, ok
}

func (d *decoder) integer(n *yaml.Node, path string, least, most int64) (int64, bool) {
	text, ok := d.scalar(n, path)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < least || v > most {
		d.fail(n, rulefile.CodeKind, path, "%q is not a whole number from %d to %d", text, least, most)
		return 0, false
	}
	return v, true
}

func (d *decoder) wrongKind(n *yaml.Node, path, want string) {
	got := "a mapping"
	switch {
	case n.Kind == yaml.AliasNode:
		return // reported already
	case n.Kind == yaml.SequenceNode:
		got = "a list"
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		got = "nothing"
	case n.Kind == yaml.ScalarNode && want == "text":
		d.fail(n, rulefile.CodeKind, path, "%s must be text: write it in quotes", n.Value)
		return
	case n.Kind == yaml.ScalarNode:
		got = strconv.Quote(n.Value)
	}
	d.fail(n, rulefile.CodeKind, path, "here must be %s, not %s", want, got)
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
