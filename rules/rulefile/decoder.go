package rulefile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
)

// Stable codes of the problems found here.
const (
	CodeSyntax  = "HG0001" // not YAML, not UTF-8
	CodeUnknown = "HG0002" // a key that is not known
	CodeAgain   = "HG0003" // a key that is repeated
	CodeKind    = "HG0004" // a value of the wrong kind
	CodeMissing = "HG0005" // a key that must be there
	CodeHidden  = "HG0006" // anchors, aliases, merge keys, tags
	CodeTwice   = "HG0007" // two rules of one name
	CodeHeader  = "HG0008" // apiVersion or kind
	CodeSize    = "HG0009" // too large, too many
	CodeEmpty   = "HG0010" // nothing in the file
	CodeBoth    = "HG0011" // two keys that exclude each other
)

const noAliases = "anchors, aliases and merge keys are not read: write the value where it is used"

// maxText bounds one text. A longer one is a mistake, and would be repeated in messages.
const maxText = 1024

// maxName bounds the keys that are free: names of headers, labels, plans.
const maxName = 256

// decoder reads one file and collects its problems.
type decoder struct {
	file     string
	problems []rules.Problem
	reported map[position]bool // places that have a problem already: one fault is reported once
	programs *programs
	more     int // problems beyond maxProblems: counted, not written out
}

type position struct{ line, column int }

func (d *decoder) place(line, column int, code, format string, args ...any) {
	d.report(position{line, column}, code, "", format, args...)
}

func (d *decoder) problem(at *yaml.Node, code, path, format string, args ...any) {
	d.reported[position{at.Line, at.Column}] = true
	d.report(position{at.Line, at.Column}, code, path, format, args...)
}

func (d *decoder) report(at position, code, path, format string, args ...any) {
	if d.full() {
		d.more++
		return
	}
	d.problems = append(d.problems, rules.Problem{
		Code: code, File: d.file, Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// full reports that no further problem of the file will be shown. Looking for what was meant is in vain then.
func (d *decoder) full() bool { return len(d.problems) >= maxProblems }

// refuseHidden reports every anchor, alias and tag below the node. With them the same text means something else than it
// says, and a short file can stand for a huge one. Depth is bounded by the parser, at 10,000.
func (d *decoder) refuseHidden(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		d.problem(n, CodeHidden, "", "*%s: %s", shorten(n.Value), noAliases)
		return // not into what it stands for
	case n.Anchor != "":
		d.problem(n, CodeHidden, "", "&%s: %s", shorten(n.Anchor), noAliases)
	case n.Style&yaml.TaggedStyle != 0:
		d.problem(n, CodeHidden, "", "the tag %s is not read: write the plain value", shorten(n.Tag))
	}
	for _, child := range n.Content {
		d.refuseHidden(child)
	}
}

// An object is a mapping whose keys have been checked.
type object struct {
	node   *yaml.Node
	path   string // with a trailing dot, where it is not ""
	values map[string]*yaml.Node
	meant  map[string]bool // known keys that an unknown one is near to
}

// has reports that the key is there, or something that was meant to be it and has a problem of its own.
func (o object) has(key string) bool { return o.values[key] != nil || o.meant[key] }

// object returns the mapping with those of its keys that are known; false when the node is none.
func (d *decoder) object(n *yaml.Node, path string, of *Object) (object, bool) {
	known := of.names()
	if n.Kind != yaml.MappingNode {
		d.wrongKind(n, path, "a mapping of keys to values")
		return object{}, false
	}
	o := object{node: n, path: path, values: map[string]*yaml.Node{}, meant: map[string]bool{}}
	if path != "" {
		o.path += "."
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case !d.usableKey(key, path, o.path, first):
		case slices.Contains(known, key.Value):
			o.values[key.Value] = value
		case d.full():
			d.more++
		default:
			d.problem(key, CodeUnknown, o.path+shorten(key.Value), "unknown key %q: %s", shorten(key.Value), didYouMean(key.Value, known))
			o.meant[Nearest(key.Value, known)] = true
		}
	}
	return o, true
}

// usableKey reports a key that is no text or is repeated; first holds the keys seen before, by their text.
func (d *decoder) usableKey(key *yaml.Node, path, prefix string, first map[string]*yaml.Node) bool {
	switch {
	case key.Kind == yaml.AliasNode:
		return false // reported already
	case key.Kind != yaml.ScalarNode:
		d.problem(key, CodeKind, path, "a key must be text")
		return false
	case key.Tag == "!!merge":
		d.problem(key, CodeHidden, path, "<<: %s", noAliases)
		return false
	case first[key.Value] != nil:
		d.problem(key, CodeAgain, prefix+shorten(key.Value), "key %q is repeated; it is first at %s", shorten(key.Value),
			Place{d.file, first[key.Value].Line, first[key.Value].Column})
		return false
	}
	first[key.Value] = key
	return true
}

// entry is a key of a mapping whose keys are free, and its value.
type entry struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
	path  string
}

// entries returns the keys of a mapping whose keys are free, in the order of the file. A key that is a number or true
// is refused as any other text is, since what becomes of it depends on the reader.
func (d *decoder) entries(n *yaml.Node, path, want string) []entry {
	if n.Kind != yaml.MappingNode {
		d.wrongKind(n, path, want)
		return nil
	}
	list := make([]entry, 0, len(n.Content)/2)
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !d.usableKey(key, path, path+".", first) {
			continue
		}
		if name, ok := d.text(key, path+"."+shorten(key.Value), maxName); ok {
			list = append(list, entry{name, key, n.Content[i+1], path + "." + name})
		}
	}
	return list
}

// required returns the value of a key, and reports one that is missing; one that is only misspelt is not reported twice.
func (d *decoder) required(o object, key, example string) (*yaml.Node, bool) {
	n, ok := o.values[key]
	if !ok && !o.meant[key] {
		// Not marked as reported: the first key of the mapping stands at the same place.
		d.report(position{o.node.Line, o.node.Column}, CodeMissing, o.path+key, "is missing; write for example %s", example)
	}
	return n, ok
}

// text returns a scalar that is text. Numbers, true and dates are refused, since they are not always kept as written.
func (d *decoder) text(n *yaml.Node, path string, longest int) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		d.wrongKind(n, path, "text")
		return "", false
	}
	if len(n.Value) > longest {
		d.problem(n, CodeSize, path, "the text has %d bytes; at most %d are read", len(n.Value), longest)
		return "", false
	}
	if strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) {
		// They could redraw a terminal, and a database does not store all of them.
		d.problem(n, CodeKind, path, "the text has a control character in it")
		return "", false
	}
	return n.Value, true
}

// word returns one of the known words.
func (d *decoder) word(n *yaml.Node, code, path string, known ...string) (string, bool) {
	text, ok := d.text(n, path, maxText)
	if ok && !slices.Contains(known, text) {
		d.problem(n, code, path, "%q is not known: %s", shorten(text), didYouMean(text, known))
		return "", false
	}
	return text, ok
}

// number returns a whole number from 0, which may be grouped with "_"; that is a text to readers of YAML 1.2. Forms that
// readers disagree about (010, 0x10, 1e3) are refused.
func (d *decoder) number(n *yaml.Node, path string) (int64, bool) {
	digits := strings.ReplaceAll(n.Value, "_", "")
	plain := n.Kind == yaml.ScalarNode && digits != "" && strings.Trim(digits, "0123456789") == "" &&
		n.Value[0] != '_' && n.Value[len(n.Value)-1] != '_' && (n.Value[0] != '0' || n.Value == "0") &&
		(n.ShortTag() == "!!int" || strings.Contains(n.Value, "_"))
	if !plain {
		d.wrongKind(n, path, "a whole number from 0")
		return 0, false
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		d.problem(n, CodeKind, path, "%s is too large", shorten(n.Value))
		return 0, false
	}
	return number, true
}

// truth returns true or false; yes, no, on and off are text, and refused.
func (d *decoder) truth(n *yaml.Node, path string) (is, ok bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		d.wrongKind(n, path, "true or false")
		return false, false
	}
	return n.Value == "true", true
}

// texts returns a list of texts, or one text as a list of one. Its elements have a place of their own; the path of
// element i is path[i] in a list, and path itself for a single text.
func (d *decoder) texts(n *yaml.Node, path string) (texts []string, places []spot) {
	elements, at := []*yaml.Node{n}, func(int) string { return path }
	if n.Kind == yaml.SequenceNode {
		elements, at = n.Content, func(i int) string { return index(path, i) }
		if len(elements) == 0 {
			d.problem(n, CodeKind, path, "the list is empty: leave %s out where it should not matter", path)
		}
	}
	for i, e := range elements {
		if text, ok := d.text(e, at(i), maxText); ok {
			texts, places = append(texts, text), append(places, spot{at(i), e})
		}
	}
	return texts, places
}

// list returns the elements of a list; none when the node is something else.
func (d *decoder) list(n *yaml.Node, path, example string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		d.wrongKind(n, path, "a list, for example "+example)
		return nil
	}
	return n.Content
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
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		got = fmt.Sprintf("the text %q", shorten(n.Value))
	case n.Kind == yaml.ScalarNode && want == "text":
		d.problem(n, CodeKind, path, "%s must be text: write it in quotes", shorten(n.Value))
		return
	case n.Kind == yaml.ScalarNode:
		got = shorten(n.Value)
	}
	d.problem(n, CodeKind, path, "here must be %s, not %s", want, got)
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// shorten keeps a message readable when the file is not.
func shorten(text string) string {
	if r := []rune(text); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return text
}
