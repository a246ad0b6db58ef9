package rules

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A KeySource is one part of a rule's key: where a request's value comes from. As text it is "ip", "ip/64" or
// "header:x-api-key".
type KeySource struct {
	kind   sourceKind
	prefix int    // ip: how many leading bits of an IPv6 address count; IPv4 counts whole
	name   string // header: lower case
	header string // header: as Request.Header spells it
}

type sourceKind uint8

const (
	sourceIP sourceKind = iota + 1
	sourceHeader
)

// ParseKeySource reads the text form.
func ParseKeySource(text string) (KeySource, error) {
	if text == "ip" {
		return KeySource{kind: sourceIP, prefix: 128}, nil
	}
	if bits, ok := strings.CutPrefix(text, "ip/"); ok {
		n, err := strconv.Atoi(bits)
		if err != nil || n < 1 || n > 128 {
			return KeySource{}, fmt.Errorf("key %q: the IPv6 prefix is a number from 1 to 128, such as ip/64", text)
		}
		return KeySource{kind: sourceIP, prefix: n}, nil
	}
	if name, ok := strings.CutPrefix(text, "header:"); ok {
		name = strings.ToLower(name)
		if !validHeaderName(name) {
			return KeySource{}, fmt.Errorf("key %q: %q is not a header name", text, name)
		}
		return KeySource{kind: sourceHeader, name: name, header: canonicalHeader(name)}, nil
	}
	return KeySource{}, fmt.Errorf("key %q is not known: use ip, ip/N or header:NAME", text)
}

func (k KeySource) String() string {
	switch {
	case k.kind == sourceHeader:
		return "header:" + k.name
	case k.prefix < 128:
		return "ip/" + strconv.Itoa(k.prefix)
	}
	return "ip"
}

// MarshalText writes the text form.
func (k KeySource) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what [ParseKeySource] reads.
func (k *KeySource) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKeySource(string(text))
	return err
}

// value returns the request's value, and false where the request has none: a missing value is not an empty one.
func (k KeySource) value(r *Request) (string, bool) {
	if k.kind == sourceHeader {
		values := r.Header[k.header]
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}
	return addressValue(r.IP, k.prefix)
}

func addressValue(ip netip.Addr, prefix int) (string, bool) {
	if !ip.IsValid() {
		return "", false
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() || prefix == 128 {
		return ip.String(), true
	}
	// Prefix fails only for a length the address does not have; 1 to 128 fits every IPv6 address.
	p, _ := ip.Prefix(prefix)
	return p.String(), true
}

// Key is a request's value for each source of a spec's key, in order. Two keys are the same key exactly when their
// encodings are equal.
type Key struct {
	encoded []byte
	missing bool
}

// KeyOf collects the request's values for the sources.
func KeyOf(sources []KeySource, r *Request) Key {
	var key Key
	for _, s := range sources {
		v, ok := s.value(r)
		if !ok {
			key.missing = true
			key.encoded = append(key.encoded, 0)
			continue
		}
		key.encoded = append(key.encoded, 1)
		key.encoded = AppendString(key.encoded, v)
	}
	return key
}

// Encoded is the key's unambiguous form: for each source one byte (0 missing, 1 present) and the length-prefixed value.
// It holds raw values: hash it before it leaves the process.
func (k Key) Encoded() []byte { return k.encoded }

// Shared reports that other callers use the same counter: the key is empty, or a value is missing.
func (k Key) Shared() bool { return len(k.encoded) == 0 || k.missing }

// AppendString appends s behind its length, so that no two sequences of strings have the same bytes.
func AppendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s))) //nolint:gosec // values are parts of requests, far below 4 GiB
	return append(b, s...)
}

// validHeaderName reports whether the lower-case name is a token of RFC 9110, section 5.6.2.
func validHeaderName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return name != ""
}

// canonicalHeader spells a lower-case header name as net/http keeps it: "x-api-key" becomes "X-Api-Key".
func canonicalHeader(name string) string {
	b := []byte(name)
	upper := true
	for i, c := range b {
		if upper && c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
		upper = c == '-'
	}
	return string(b)
}
