package rulefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules"
)

// canonicalScalar writes a value of a type of the reference in its canonical form. What cannot be read, or has none, is
// returned as it is.
func canonicalScalar(fieldType, value string) string {
	switch fieldType {
	case "source", "list of key parts":
		if s, err := rules.ParseSource(value); err == nil {
			return s.String()
		}
	case "limit", "map of limits":
		if r, err := rules.ParseRate(value); err == nil {
			return rateText(r)
		}
	case "open, closed or local AMOUNT/WINDOW":
		if f, err := rules.ParseFailure(value); err == nil && f.Mode == rules.FailLocal {
			return "local " + rateText(f.Local)
		} else if err == nil {
			return f.String()
		}
	case "number", "number, or list of costs":
		if n, err := strconv.ParseInt(strings.ReplaceAll(value, "_", ""), 10, 64); err == nil {
			return groupDigits(strconv.FormatInt(n, 10))
		}
	case "method, or list":
		return strings.ToUpper(value)
	case "host, or list":
		return strings.ToLower(value)
	case "CIDR, or list":
		if p, err := netip.ParsePrefix(value); err == nil {
			return p.String()
		}
	}
	return value
}

// rateText is the rate's own form, with large numbers grouped: who reads 5000000/d counts zeros.
func rateText(r rules.Rate) string {
	return digitRun.ReplaceAllStringFunc(r.String(), groupDigits)
}

var digitRun = regexp.MustCompile(`[0-9]+`)

// groupDigits writes a "_" between each three digits of numbers with five and more.
func groupDigits(digits string) string {
	if len(digits) < 5 {
		return digits
	}
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// scalarText writes a text so that every YAML reader reads it back: plain where that is safe, in quotes otherwise.
func scalarText(n *yaml.Node, flow bool) string {
	if n.ShortTag() != "!!str" {
		return n.Value // numbers and truths, in a form that has only one reading
	}
	switch {
	case plainIsSafe(n.Value, flow):
		return n.Value
	case strings.ContainsAny(n.Value, `"\`) && !strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "'" + strings.ReplaceAll(n.Value, "'", "''") + "'"
	}
	return doubleQuoted(n.Value)
}

// doubleQuoted writes JSON, which YAML reads alike; but it takes a byte order mark and the like only escaped.
func doubleQuoted(text string) string {
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes
	var b strings.Builder
	for _, r := range strings.TrimSuffix(quoted.String(), "\n") {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	return b.String()
}

// Words that some reader of YAML takes for true, false or nothing.
var reserved = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null|~)$|^[-+.0-9:_]+$`)

// plainIsSafe errs on the side of quotes.
func plainIsSafe(text string, flow bool) bool {
	if text == "" || strings.TrimSpace(text) != text || reserved.MatchString(text) {
		return false
	}
	first := []rune(text)[0]
	if !unicode.IsLetter(first) && !unicode.IsDigit(first) && !strings.ContainsRune("/._", first) {
		return false
	}
	if strings.Contains(text, ": ") || strings.Contains(text, " #") || strings.HasSuffix(text, ":") ||
		strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == '\uFEFF' }) {
		return false
	}
	if flow && strings.ContainsAny(text, ",[]{}?") {
		return false
	}
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: text}
	return plain.ShortTag() == "!!str"
}

// literal returns the lines of a text for a "|" block with its header; false where a block would not keep the text.
func literal(text string) (header string, lines []string, ok bool) {
	header = "|-"
	body, ends := strings.CutSuffix(text, "\n")
	if ends {
		header = "|"
	}
	lines = strings.Split(body, "\n")
	if len(lines) < 2 {
		return "", nil, false
	}
	for i, line := range lines {
		blank := strings.TrimSpace(line) == ""
		if blank && (line != "" || i == 0 || i == len(lines)-1) || i == 0 && strings.TrimLeft(line, " \t") != line ||
			strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) || r == '\uFEFF' }) {
			return "", nil, false
		}
	}
	return header, lines, true
}
