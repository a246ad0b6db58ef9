package rulefile

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// parseJSON returns the nodes of a valid JSON text. The YAML parser would take most JSON, but not all: it knows neither
// "\/", which some programs write for every slash, nor surrogate pairs.
func parseJSON(content []byte) *yaml.Node {
	p := jsonParser{content: content, tokens: json.NewDecoder(bytes.NewReader(content)), line: 1, column: 1}
	p.tokens.UseNumber()
	return p.value()
}

type jsonParser struct {
	content      []byte
	tokens       *json.Decoder
	at           int // offset up to which line and column have been counted
	line, column int
}

// value reads one value. Its depth is bounded: encoding/json calls nothing valid that is nested deeper than 10,000.
func (p *jsonParser) value() *yaml.Node {
	p.skipTo(func(c byte) bool { return bytes.IndexByte([]byte(" \t\r\n,:"), c) < 0 })
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: p.line, Column: p.column}
	token, err := p.tokens.Token()
	if err != nil {
		return node // not reached: the text is valid
	}
	p.skip(int(p.tokens.InputOffset()))
	switch t := token.(type) {
	case json.Delim:
		node.Kind, node.Tag = yaml.SequenceNode, "!!seq"
		if t == '{' {
			node.Kind, node.Tag = yaml.MappingNode, "!!map"
		}
		for p.tokens.More() {
			node.Content = append(node.Content, p.value())
		}
		_, _ = p.tokens.Token() // the closing delimiter, which is there
		p.skip(int(p.tokens.InputOffset()))
	case string:
		node.Tag, node.Value, node.Style = "!!str", t, yaml.DoubleQuotedStyle
	case json.Number:
		node.Tag, node.Value = "!!float", t.String()
		if strings.Trim(node.Value, "-0123456789") == "" {
			node.Tag = "!!int"
		}
	case bool:
		node.Tag, node.Value = "!!bool", "false"
		if t {
			node.Value = "true"
		}
	case nil:
		node.Tag, node.Value = "!!null", "null"
	}
	return node
}

func (p *jsonParser) skipTo(found func(byte) bool) {
	end := p.at
	for end < len(p.content) && !found(p.content[end]) {
		end++
	}
	p.skip(end)
}

func (p *jsonParser) skip(end int) {
	passed := p.content[p.at:end]
	if n := bytes.Count(passed, []byte("\n")); n > 0 {
		p.line, p.column = p.line+n, lastColumn(passed)
	} else {
		p.column += utf8.RuneCount(passed)
	}
	p.at = end
}
