package rulefile

import (
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// maxLine is how long a line may be before a mapping or list is written on several.
const maxLine = 120

// printer writes canonical YAML. The encoder of the YAML package is not used: it quotes header:x-api-key within [ ],
// and cannot write a mapping on one line only where it fits.
type printer struct {
	out strings.Builder
	raw []string // the lines of the source, for its blank lines; nil where there are none
}

// document writes one document: comments, then the mapping, always in lines of its own.
func (p *printer) document(doc *yaml.Node) {
	root := doc.Content[0]
	if doc.HeadComment != "" {
		p.comment(doc.HeadComment, 0)
		p.out.WriteString("\n")
	}
	p.comment(root.HeadComment, 0)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if i > 0 && p.blankBefore(key.Line) {
			p.out.WriteString("\n")
		}
		if value.Kind == yaml.SequenceNode && len(value.Content) > 0 {
			value.Style = 0
		}
		for _, e := range value.Content {
			if key.Value == "rules" {
				e.Style = 0
			}
		}
		p.pair(key, value, 0)
	}
	p.comment(root.FootComment, 0)
	if doc.FootComment != "" {
		p.out.WriteString("\n")
		p.comment(doc.FootComment, 0)
	}
}

// blankBefore reports that the source has a blank line above the line, or above the comments that stand on it.
func (p *printer) blankBefore(line int) bool {
	at := line - 2 // the index of the line above
	for at >= 0 && at < len(p.raw) && strings.HasPrefix(strings.TrimSpace(p.raw[at]), "#") {
		at--
	}
	return at >= 0 && at < len(p.raw) && strings.TrimSpace(p.raw[at]) == ""
}

func (p *printer) comment(text string, indent int) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			p.out.WriteString(strings.Repeat(" ", indent) + line + "\n")
		}
	}
}

// end writes the comment behind a line, and ends it.
func (p *printer) end(comments ...string) {
	for _, c := range comments {
		if c != "" {
			p.out.WriteString(" " + strings.Join(strings.Fields(c), " "))
		}
	}
	p.out.WriteString("\n")
}

// pair writes one key of a block mapping with its value.
func (p *printer) pair(key, value *yaml.Node, indent int) {
	p.comment(key.HeadComment, indent)
	p.comment(value.HeadComment, indent)
	p.out.WriteString(strings.Repeat(" ", indent))
	p.keyValue(key, value, indent)
	p.comment(value.FootComment, indent)
	p.comment(key.FootComment, indent)
}

// keyValue writes "key: value", the cursor standing where the key begins.
func (p *printer) keyValue(key, value *yaml.Node, indent int) {
	name := scalarText(key, false) + ":"
	p.out.WriteString(name)
	if header, lines, ok := literal(value.Value); ok && value.Kind == yaml.ScalarNode {
		p.out.WriteString(" " + header)
		p.end(key.LineComment, value.LineComment)
		for _, line := range lines {
			if line != "" {
				line = strings.Repeat(" ", indent+2) + line
			}
			p.out.WriteString(line + "\n")
		}
		return
	}
	if text, ok := p.oneLine(value, indent+utf8.RuneCountInString(name)+1); ok {
		p.out.WriteString(" " + text)
		p.end(key.LineComment, value.LineComment)
		return
	}
	p.end(key.LineComment, value.LineComment)
	p.block(value, indent+2)
}

// oneLine returns the node for the rest of a line that begins at the column; false where it needs lines of its own.
func (p *printer) oneLine(n *yaml.Node, column int) (string, bool) {
	if n.Kind == yaml.ScalarNode {
		return scalarText(n, false), true
	}
	if n.Style != yaml.FlowStyle && len(n.Content) > 0 || commentedBelow(n) {
		return "", false
	}
	text := flowText(n)
	return text, len(n.Content) == 0 || column+utf8.RuneCountInString(text) <= maxLine
}

func flowText(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		parts := make([]string, len(n.Content))
		for i, e := range n.Content {
			parts[i] = flowText(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.MappingNode:
		parts := make([]string, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, scalarText(n.Content[i], true)+": "+flowText(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return scalarText(n, true)
}

// block writes a mapping or list in lines of its own.
func (p *printer) block(n *yaml.Node, indent int) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			p.pair(n.Content[i], n.Content[i+1], indent)
		}
		return
	}
	for i, e := range n.Content {
		// Only what stands in a list of the document itself is kept apart: rules and exemptions.
		if i > 0 && indent == 2 && p.blankBefore(e.Line) {
			p.out.WriteString("\n")
		}
		p.element(e, indent)
	}
}

func (p *printer) element(e *yaml.Node, indent int) {
	p.comment(e.HeadComment, indent)
	dash := strings.Repeat(" ", indent) + "- "
	if text, ok := p.oneLine(e, indent+2); ok {
		p.out.WriteString(dash + text)
		p.end(e.LineComment)
		p.comment(e.FootComment, indent)
		return
	}
	// The comment of the first key goes above the dash.
	first, value := e.Content[0], e.Content[1]
	p.comment(first.HeadComment, indent)
	p.comment(value.HeadComment, indent)
	p.comment(e.LineComment, indent)
	p.out.WriteString(dash)
	p.keyValue(first, value, indent+2)
	p.comment(value.FootComment, indent+2)
	p.comment(first.FootComment, indent+2)
	for i := 2; i+1 < len(e.Content); i += 2 {
		p.pair(e.Content[i], e.Content[i+1], indent+2)
	}
	p.comment(e.FootComment, indent)
}
