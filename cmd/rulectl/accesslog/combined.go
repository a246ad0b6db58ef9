package accesslog

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// ParseCombined reads a line of Apache's and nginx's combined format:
//
//	ADDRESS IDENT USER [17/May/2015:10:05:03 +0000] "GET /path?query HTTP/1.1" 200 1234 "REFERER" "USER-AGENT"
//
// It gives method, path, query, address and the headers user-agent and referer; "-" stands for a header that was not
// sent. The host comes from a target in absolute form. A line without a whole request line ("-", a TLS handshake) is
// malformed: there was no request that a rule could have seen.
func ParseCombined(line string) (Entry, error) {
	client, rest, _ := strings.Cut(line, " ")
	ip, isAddress := address(client)
	if !isAddress && !isHostName(client) {
		return Entry{}, errors.New("it does not begin with an address")
	}
	ident, rest, _ := strings.Cut(rest, " ")
	if ident == "" {
		return Entry{}, errors.New("the identity and the user are missing")
	}
	at, rest, err := cutTime(rest)
	if err != nil {
		return Entry{}, err
	}
	request, rest, err := cutQuoted(rest, "request")
	if err != nil {
		return Entry{}, err
	}
	if rest, err = cutStatus(rest); err != nil {
		return Entry{}, err
	}
	referer, rest, err := cutQuoted(rest, "referer")
	if err != nil {
		return Entry{}, err
	}
	agent, _, err := cutQuoted(rest, "user agent")
	if err != nil {
		return Entry{}, err
	}
	method, target, err := splitRequest(request)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{At: at, Request: &rules.Request{Method: method, IP: ip, Header: map[string][]string{}, Hits: 1}}
	setHeader(e.Request.Header, "Referer", referer)
	setHeader(e.Request.Header, "User-Agent", agent)
	e.setTarget(target)
	return e, nil
}

func setHeader(header map[string][]string, name, value string) {
	if value != "-" {
		header[name] = []string{value}
	}
}

// isHostName reports whether a server that looks names up could have written it in place of an address. A name whose
// last label is a number is an address that is wrong.
func isHostName(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	last := text[strings.LastIndexByte(strings.TrimSuffix(text, "."), '.')+1:]
	return strings.Trim(last, "0123456789.") != ""
}

const (
	timeLayout = "02/Jan/2006:15:04:05 -0700"
	timeLength = len(timeLayout)
)

// cutTime reads `USER [TIME] `. Users' names may have spaces in them, and brackets, but no quotes.
func cutTime(text string) (at int64, rest string, err error) {
	for from := 0; ; {
		i := strings.Index(text[from:], " [")
		if i < 0 {
			return 0, "", errors.New("there is no time in brackets")
		}
		start := from + i + 2
		from = start - 1
		end := start + timeLength
		if end+1 >= len(text) || text[end] != ']' || text[end+1] != ' ' {
			continue
		}
		t, parseErr := time.Parse(timeLayout, text[start:end])
		if parseErr != nil {
			continue
		}
		if user := text[:start-2]; user == "" || strings.IndexByte(user, '"') >= 0 {
			return 0, "", errors.New("the user is missing")
		}
		at, err = micros(t)
		return at, text[end+2:], err
	}
}

// cutQuoted reads `"TEXT"`, and the space behind it where anything follows.
func cutQuoted(text, what string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", fmt.Errorf("the %s is missing", what)
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			rest = text[i+1:]
			if rest != "" && rest[0] != ' ' {
				return "", "", fmt.Errorf("the %s has a quote in it that is not escaped", what)
			}
			return unescape(text[1:i]), strings.TrimPrefix(rest, " "), nil
		}
	}
	return "", "", fmt.Errorf("the %s does not end", what)
}

// cutStatus reads `STATUS BYTES `.
func cutStatus(text string) (rest string, err error) {
	status, rest, _ := strings.Cut(text, " ")
	if len(status) != 3 || !isDigits(status) {
		return "", errors.New("the status is missing")
	}
	size, rest, _ := strings.Cut(rest, " ")
	if size != "-" && !isDigits(size) {
		return "", errors.New("the size is missing")
	}
	return rest, nil
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// splitRequest reads `METHOD TARGET HTTP/VERSION`. A target that was sent with spaces in it keeps them.
func splitRequest(line string) (method, target string, err error) {
	method, rest, _ := strings.Cut(line, " ")
	end := strings.LastIndexByte(rest, ' ')
	if !isToken(method) || end < 1 {
		return "", "", errors.New("the request is not METHOD TARGET HTTP/VERSION")
	}
	version, ok := strings.CutPrefix(rest[end+1:], "HTTP/")
	major, minor, dotted := strings.Cut(version, ".")
	if !ok || !isDigits(major) || dotted && !isDigits(minor) {
		return "", "", errors.New("the request is not METHOD TARGET HTTP/VERSION")
	}
	return method, rest[:end], nil
}

// unescape undoes what servers do to quotes and unprintable bytes: \" \\ \n \r \t \b \v and \xhh. Any other backslash
// stands for itself.
func unescape(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			b.WriteByte(c)
			continue
		}
		next := text[i+1]
		if at := strings.IndexByte(`"\nrtbv`, next); at >= 0 {
			b.WriteByte("\"\\\n\r\t\b\v"[at])
			i++
			continue
		}
		if next == 'x' && i+3 < len(text) && isHex(text[i+2]) && isHex(text[i+3]) {
			b.WriteByte(unhex(text[i+2])<<4 | unhex(text[i+3]))
			i += 3
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

func isHex(c byte) bool { return unhex(c) < 16 }

// unhex returns the value of a hexadecimal digit; 255 where it is none.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
