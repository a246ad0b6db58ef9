package accesslog

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// An Entry is one well-formed line.
type Entry struct {
	Line int   // from 1, empty lines included
	At   int64 // microseconds since 1970
	// Request is nil where a sidecar answers 400 before any rule is asked; Invalid says why.
	Request *rules.Request
	Invalid error
}

// maxTime bounds instants to those whose microseconds are exact in every limiter (2^53 is in the year 2255).
var maxTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// micros returns the instant of a line, or an error where no limiter could count at it.
func micros(t time.Time) (int64, error) {
	if t.Before(time.Unix(0, 0)) || t.After(maxTime) {
		return 0, fmt.Errorf("the time %s is not between 1970 and 2200", t.UTC().Format(time.RFC3339))
	}
	return t.UnixMicro(), nil
}

// setTarget fills in what a request's target says: the path in the form that is matched, the query, and the host where
// the target names one. What the sidecar's doors answer with 400 has no request: a target that is no path, a path that
// cannot be normalised, and a method that a service may read in another case.
func (e *Entry) setTarget(target string) {
	path, host, err := splitTarget(target)
	switch {
	case e.Request.Method == "CONNECT":
		err = errNoPath
	case e.Request.Method != strings.ToUpper(e.Request.Method):
		err = errors.New("the method is not in upper case")
	}
	if host != "" {
		e.Request.Host = rules.NormalizeHost(host)
	}
	if err == nil {
		path, e.Request.RawQuery, _ = strings.Cut(path, "?")
		e.Request.Path, err = rules.NormalizePath(path)
	}
	if err != nil {
		e.Request, e.Invalid = nil, err
	}
}

var errNoPath = errors.New("the target is not a path")

// splitTarget takes the authority off a target in absolute form (proxies and scanners send them), as a server does.
func splitTarget(target string) (path, host string, err error) {
	if strings.HasPrefix(target, "/") {
		return target, "", nil
	}
	scheme, rest, found := strings.Cut(target, "://")
	if !found || !isScheme(scheme) {
		return "", "", errNoPath
	}
	at := strings.IndexAny(rest, "/?")
	if at < 0 {
		at = len(rest)
	}
	host, path = rest[:at], rest[at:]
	if _, after, ok := strings.Cut(host, "@"); ok {
		host = after
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path, host, nil
}

// isScheme reports whether text is a scheme of RFC 3986, section 3.1.
func isScheme(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || (c < '0' || c > '9') && strings.IndexByte("+-.", c) < 0) {
			return false
		}
	}
	return text != ""
}

// address reads a client address: brackets and a zone are dropped, IPv4 in IPv6 is IPv4.
func address(text string) (netip.Addr, bool) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, false
	}
	return ip.Unmap().WithZone(""), true
}

// isToken reports whether text is a method or another token of RFC 9110, section 5.6.2.
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return text != ""
}
