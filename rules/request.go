package rules

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Request is what a rule sees of a call. A door fills it in; nothing changes it afterwards.
type Request struct {
	Domain   string
	Method   string // upper case
	Host     string // see [NormalizeHost]
	Path     string // see [NormalizePath]; without the query string
	RawQuery string // as sent, without "?"
	IP       netip.Addr
	// Header has net/http's canonical names ("X-Api-Key").
	Header map[string][]string
	// Attr are values that the caller names itself: the entries of a descriptor, or what a gateway adds.
	Attr map[string]string
	// Hits multiplies a rule's cost. Doors set 1; 0 looks without spending.
	Hits int64
	// Descriptor says that the request is a descriptor of Envoy's rate limit service: a rule whose key it lacks does not
	// apply, unless the rule says otherwise.
	Descriptor bool
	// Given, where it is not nil, takes the place of the rate of every limit that the request meets: see [GivenRate].
	Given *Rate
}

// FromDescriptor returns the request that a descriptor's entries describe. All of them are attributes; remote_address,
// path, method and host are also the values of those names.
func FromDescriptor(domain string, entries map[string]string, hits int64) *Request {
	r := &Request{
		Domain: domain, Method: strings.ToUpper(entries["method"]), Host: NormalizeHost(entries["host"]), Attr: entries, Hits: hits,
		Descriptor: true,
	}
	if address, ok := entries["remote_address"]; ok {
		if ip, err := netip.ParseAddr(address); err == nil {
			r.IP = ip
		}
	}
	if path, ok := entries["path"]; ok {
		path, r.RawQuery, _ = strings.Cut(path, "?")
		r.Path = path
		if normal, err := NormalizePath(path); err == nil {
			r.Path = normal
		}
	}
	return r
}

// GivenRate returns the rate that a request may bring along, as a descriptor of Envoy's rate limit service can. It keeps to
// the bounds of a rule's rates; the error says which.
func GivenRate(amount int64, window time.Duration) (Rate, error) {
	r := Rate{Amount: amount, Window: window, Burst: amount}
	if err := r.check(SlidingWindow); err != nil { // which is the tighter bound where the burst is the amount
		return Rate{}, err
	}
	return r, nil
}

// NormalizeHost returns the host in lower case, without port and trailing dot.
func NormalizeHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// CheckMethod says why a method cannot be told; "" when it can. A service may read it in another case, and CONNECT has no
// path.
func CheckMethod(method string) (problem string) {
	if method == "CONNECT" || method != strings.ToUpper(method) || !validHeaderName(strings.ToLower(method)) {
		return "The method is CONNECT, or not a word in upper case."
	}
	return ""
}

// CheckHost says why it cannot be told which host is meant, with or without its port; "" when it can, or none is. It is
// a name or an address of RFC 3986, section 3.2.2, in ASCII and without percent signs: who hands on another one may
// decode it, translate it (IDNA), cut a zone off or leave the whole out, and the service would see a host that no rule saw.
// Of "a:80:90" some take "a", others "a:80".
func CheckHost(host string) (problem string) {
	name, port, marks := host, "", "!$&'()*+,;="
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
	}
	if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") {
		name, marks = name[1:len(name)-1], ":"
	}
	known := func(c rune) bool { return c < 0x80 && (isUnreserved(byte(c)) || strings.ContainsRune(marks, c)) } //nolint:gosec // it is ASCII
	if strings.Trim(port, "0123456789") != "" || strings.ContainsFunc(name, func(c rune) bool { return !known(c) }) {
		return "The host is neither a name nor an address."
	}
	return ""
}

// query returns a parameter's first value and how often it is given.
func (r *Request) query(name string) (first string, count int) {
	for rest := r.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key != name {
			decoded, err := url.QueryUnescape(key)
			if err != nil || decoded != name {
				continue
			}
		}
		if count++; count == 1 {
			if decoded, err := url.QueryUnescape(value); err == nil {
				value = decoded
			}
			first = value
		}
	}
	return first, count
}

// cookie returns a cookie's first value, and false where there is none.
func (r *Request) cookie(name string) (string, bool) {
	for _, line := range r.Header["Cookie"] {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			key, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if key == name {
				return strings.Trim(value, `"`), true
			}
		}
	}
	return "", false
}

// attributes encodes what tells requests without a client address apart: the method, the path and the attributes.
func (r *Request) attributes() []byte {
	b := AppendString(nil, r.Method)
	b = AppendString(b, r.Path)
	for _, name := range slices.Sorted(maps.Keys(r.Attr)) {
		b = AppendString(b, name)
		b = AppendString(b, r.Attr[name])
	}
	return b
}
