package rulefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	yaml "go.yaml.in/yaml/v3"
)

// FormatFile returns a rule file in canonical form: keys in the order of the reference, limits, sources and the like in
// their shortest spelling, short mappings and lists on one line. Comments, and single blank lines between rules, stay.
// Formatting twice changes nothing more. A file with problems is not formatted; the error is that of [Decode]. JSON
// becomes YAML.
func FormatFile(name string, content []byte) ([]byte, error) {
	sets, err := Decode(name, content)
	if err != nil {
		return nil, err
	}
	documents := parseDocuments(content)
	formatted := layOut(documents, content)
	// The parser takes a comment with an odd indent for part of one thing in one layout and of another in the next.
	for range 5 {
		again := layOut(parseDocuments(formatted), formatted)
		if bytes.Equal(again, formatted) {
			break
		}
		formatted = again
	}
	// What is printed is read back: a formatter that changes a limit or drops a comment is worse than none.
	again, err := Decode(name, formatted)
	if err != nil {
		return nil, fmt.Errorf("format %s: the result cannot be read: %w", name, err)
	}
	if !sameSets(sets, again) {
		return nil, fmt.Errorf("format %s: the result would not say the same", name)
	}
	if lost := lostComment(content, formatted, documents); lost != "" {
		return nil, fmt.Errorf("format %s: the comment %q stands where it would be lost: move it above what it is about", name, lost)
	}
	return formatted, nil
}

// layOut lays the documents out, which it changes.
func layOut(documents []*yaml.Node, source []byte) []byte {
	p := printer{raw: strings.Split(string(source), "\n")}
	for i, doc := range documents {
		if i > 0 {
			p.out.WriteString("---\n")
		}
		canonical(doc.Content[0], ruleSetObject)
		p.document(doc)
	}
	return []byte(p.out.String())
}

// parseDocuments parses what Decode has accepted, with its comments.
func parseDocuments(content []byte) []*yaml.Node {
	if isJSON(content) {
		return []*yaml.Node{{Kind: yaml.DocumentNode, Content: []*yaml.Node{parseJSON(content)}}}
	}
	var list []*yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var document yaml.Node
		if err := in.Decode(&document); err != nil {
			return list
		}
		if len(document.Content) == 1 && document.Content[0].ShortTag() != "!!null" {
			list = append(list, &document)
		}
	}
}

// sameSets compares what two readings say, places aside.
func sameSets(a, b []RuleSet) bool {
	x, errX := encodeSets(a)
	y, errY := encodeSets(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func encodeSets(sets []RuleSet) ([]byte, error) {
	type rule struct {
		Name string
		Spec any
	}
	var all []any
	for _, s := range sets {
		list := make([]rule, len(s.Rules))
		for i, r := range s.Rules {
			list[i] = rule{r.Name, r.Spec}
		}
		all = append(all, s.Domain, s.Owner, s.Shard, s.Exempt, list)
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil, errors.Join(errors.New("encode rule sets"), err)
	}
	return b, nil
}

// lostComment returns a comment of the source that the result does not have; "" when there is none. The parser hands
// comments over only where it expects them, so this looks at the text: every "#" that may begin a comment must be in the
// result, or be part of a value.
func lostComment(source, result []byte, documents []*yaml.Node) string {
	kept := map[string]bool{}
	eachComment(result, func(text string) bool { kept[text] = true; return true })
	lost := ""
	eachComment(source, func(text string) bool {
		if !kept[text] && !inValue(text, documents) {
			lost = text
		}
		return lost == ""
	})
	return lost
}

// eachComment visits what follows each "#" that stands at the beginning of a line or behind a space.
func eachComment(content []byte, visit func(text string) bool) {
	for line := range strings.SplitSeq(string(content), "\n") {
		for i, c := range line {
			if c != '#' || i > 0 && !unicode.IsSpace(rune(line[i-1])) {
				continue
			}
			if !visit(strings.Join(strings.Fields(line[i:]), " ")) {
				return
			}
		}
	}
}

func inValue(text string, nodes []*yaml.Node) bool {
	text = strings.TrimSpace(strings.TrimRight(text[:strings.IndexAny(text+`"`, `"'`)], "]},"))
	for _, n := range nodes {
		if n.Kind == yaml.ScalarNode && strings.Contains(strings.Join(strings.Fields(n.Value), " "), text) || inValue(text, n.Content) {
			return true
		}
	}
	return false
}
