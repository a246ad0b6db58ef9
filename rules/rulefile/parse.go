package rulefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// Bounds of one file. A parsed part costs about 500 bytes with what is made of it, so the worst file costs
// about 300 MB for the time it is read.
// Ten thousand rules are about 2 MiB and 200,000 parts.
const (
	MaxSize  = 4 << 20
	maxParts = 1 << 19
)

// parse returns the root node of every document that is not empty. What cannot be parsed is a problem, and ends the
// file; the documents before it are returned.
func (d *decoder) parse(content []byte) []*yaml.Node {
	switch {
	case len(content) > MaxSize:
		d.place(1, 1, CodeSize, "the file is larger than %d bytes, and not read: split it", MaxSize)
		return nil
	case !utf8.Valid(content):
		line, column := firstInvalid(content)
		d.place(line, column, CodeSyntax, "the file is not UTF-8 text")
		return nil
	case parts(content) > maxParts:
		d.place(1, 1, CodeSize, "the file has more than %d keys and values: split it", maxParts)
		return nil
	case isJSON(content):
		return []*yaml.Node{parseJSON(content)}
	}
	return d.parseYAML(content)
}

func isJSON(content []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) && json.Valid(content)
}

func (d *decoder) parseYAML(content []byte) []*yaml.Node {
	var roots []*yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var document yaml.Node
		err := in.Decode(&document)
		if errors.Is(err, io.EOF) {
			return roots
		}
		if err != nil {
			d.syntax(content, err)
			return roots
		}
		// A document without content is what a "---" too many leaves behind.
		if len(document.Content) == 1 && document.Content[0].ShortTag() != "!!null" {
			roots = append(roots, document.Content[0])
		}
	}
}

// The parser tells where it gave up only in its text, and without a column.
var (
	yamlError     = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

func (d *decoder) syntax(content []byte, err error) {
	line, text := 1, err.Error()
	if m := yamlError.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		text = m[2]
		if strings.HasPrefix(text, "did not find expected") {
			line++ // the parser counts from 0 where the scanner counts from 1
		}
	}
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		before, _, _ := bytes.Cut(content, []byte("*"+m[1]))
		d.place(bytes.Count(before, []byte("\n"))+1, lastColumn(before), CodeHidden, "*%s: %s", m[1], noAliases)
		return
	}
	lines := bytes.Split(content, []byte("\n"))
	line = min(line, len(lines))
	indent := len(lines[line-1]) - len(bytes.TrimLeft(lines[line-1], " \t"))
	d.place(line, indent+1, CodeSyntax, "this is not YAML: %s", text)
}

func firstInvalid(content []byte) (line, column int) {
	at := 0
	for at < len(content) {
		r, size := utf8.DecodeRune(content[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return bytes.Count(content[:at], []byte("\n")) + 1, lastColumn(content[:at])
}

// lastColumn is the column that follows the text.
func lastColumn(before []byte) int {
	return utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
}

// parts counts what separates keys and values; there are about as many.
func parts(content []byte) int {
	n := 0
	for _, c := range content {
		if strings.IndexByte(",:\n[{", c) >= 0 {
			n++
		}
	}
	return n
}
