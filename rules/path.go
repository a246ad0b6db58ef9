package rules

import (
	"errors"
	"strings"
)

// NormalizePath brings an escaped URL path into the one form that is matched and forwarded, so that no spelling of a
// path gets around a limit: percent-encoded unreserved characters are decoded (RFC 3986, section 6.2.2.2), and so are
// those others that a path segment may hold as they are (":", "@" and the sub-delimiters), which servers do not tell
// apart; other encodings are written in upper case, repeated slashes merged and dot segments resolved. An encoded slash
// or NUL, and a "%" that begins no encoding, are errors: what a server behind makes of them cannot be known.
func NormalizePath(escaped string) (string, error) {
	switch {
	case escaped == "":
		return "/", nil
	case escaped[0] != '/':
		return "", errors.New("the path does not begin with a slash")
	}
	decoded, err := decodeSafe(escaped)
	if err != nil {
		return "", err
	}
	return resolveDots(decoded), nil
}

func decodeSafe(escaped string) (string, error) {
	var b strings.Builder
	b.Grow(len(escaped))
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '%' {
			if i+2 >= len(escaped) || !isHex(escaped[i+1]) || !isHex(escaped[i+2]) {
				return "", errors.New("the path has a % that begins no encoding")
			}
			c = unhex(escaped[i+1])<<4 | unhex(escaped[i+2])
			if c == '/' {
				return "", errors.New("the path has an encoded slash")
			}
			i += 2
		}
		if c == 0 {
			return "", errors.New("the path has a NUL")
		}
		writePathByte(&b, c)
	}
	return b.String(), nil
}

// writePathByte writes a byte that stands for itself, or encodes it where a path may not hold it.
func writePathByte(b *strings.Builder, c byte) {
	if isUnreserved(c) || strings.IndexByte("/!$&'()*+,;=:@", c) >= 0 {
		b.WriteByte(c)
		return
	}
	writeEncoded(b, c)
}

const upperHex = "0123456789ABCDEF"

func writeEncoded(b *strings.Builder, c byte) {
	b.WriteByte('%')
	b.WriteByte(upperHex[c>>4])
	b.WriteByte(upperHex[c&15])
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// resolveDots merges slashes and removes "." and "..", keeping a trailing slash.
func resolveDots(path string) string {
	segments := strings.Split(path, "/")
	kept := segments[:0]
	for _, s := range segments {
		switch s {
		case "", ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, s)
		}
	}
	clean := "/" + strings.Join(kept, "/")
	last := path[strings.LastIndexByte(path, '/')+1:]
	if (last == "" || last == "." || last == "..") && clean != "/" {
		clean += "/"
	}
	return clean
}
