package rules

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Source says where a request's value comes from. As text it is "ip", "ip/64", "method", "host", "path", "path.NAME",
// "header:NAME", "query:NAME", "cookie:NAME" or "attr:NAME". Sources are comparable.
type Source struct {
	kind   sourceKind
	prefix int    // ip: how many leading bits of an IPv6 address count; IPv4 counts whole
	name   string // header: lower case
	header string // header: as Request.Header spells it
}

type sourceKind uint8

const (
	sourceIP sourceKind = iota + 1
	sourceMethod
	sourceHost
	sourcePath
	sourcePathParam
	sourceHeader
	sourceQuery
	sourceCookie
	sourceAttr
)

// sourceForms is the list for error messages.
const sourceForms = "ip, ip/N, method, host, path, path.NAME, header:NAME, query:NAME, cookie:NAME or attr:NAME"

// ParseSource reads the text form.
func ParseSource(text string) (Source, error) {
	switch text {
	case "ip":
		return Source{kind: sourceIP, prefix: 128}, nil
	case "method":
		return Source{kind: sourceMethod}, nil
	case "host":
		return Source{kind: sourceHost}, nil
	case "path":
		return Source{kind: sourcePath}, nil
	}
	if bits, ok := strings.CutPrefix(text, "ip/"); ok {
		n, err := strconv.Atoi(bits)
		if err != nil || n < 1 || n > 128 || strconv.Itoa(n) != bits {
			return Source{}, fmt.Errorf("%q: the IPv6 prefix is a number from 1 to 128, such as ip/64", text)
		}
		return Source{kind: sourceIP, prefix: n}, nil
	}
	if name, ok := strings.CutPrefix(text, "path."); ok {
		if !validParamName(name) {
			return Source{}, fmt.Errorf("%q: %q is not a name of a path segment: use a-z, 0-9, _ and -", text, name)
		}
		return Source{kind: sourcePathParam, name: name}, nil
	}
	kind, name, found := strings.Cut(text, ":")
	if !found {
		return Source{}, fmt.Errorf("%q is not known: use %s", text, sourceForms)
	}
	s := Source{name: name}
	switch kind {
	case "header":
		s.kind, s.name, s.header = sourceHeader, strings.ToLower(name), canonicalHeader(strings.ToLower(name))
		if !validHeaderName(s.name) {
			return Source{}, fmt.Errorf("%q: %q is not a header name", text, name)
		}
	case "query":
		s.kind = sourceQuery
	case "cookie":
		s.kind = sourceCookie
	case "attr":
		s.kind = sourceAttr
	default:
		return Source{}, fmt.Errorf("%q is not known: use %s", text, sourceForms)
	}
	if s.name == "" || len(s.name) > 256 {
		return Source{}, fmt.Errorf("%q: behind %s: belongs a name of 1 to 256 bytes", text, kind)
	}
	return s, nil
}

func (s Source) String() string {
	switch s.kind {
	case sourceIP:
		if s.prefix < 128 {
			return "ip/" + strconv.Itoa(s.prefix)
		}
		return "ip"
	case sourceMethod:
		return "method"
	case sourceHost:
		return "host"
	case sourcePath:
		return "path"
	case sourcePathParam:
		return "path." + s.name
	case sourceHeader:
		return "header:" + s.name
	case sourceQuery:
		return "query:" + s.name
	case sourceCookie:
		return "cookie:" + s.name
	case sourceAttr:
		return "attr:" + s.name
	}
	return ""
}

// MarshalText writes the text form.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what [ParseSource] reads.
func (s *Source) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSource(string(text))
	return err
}

// Client reports whether a client can choose the value freely.
func (s Source) Client() bool {
	switch s.kind {
	case sourceHeader, sourceQuery, sourceCookie:
		return true
	}
	return false
}

// Caller reports whether the value tells callers apart, and not only what they ask for.
func (s Source) Caller() bool {
	switch s.kind {
	case sourceMethod, sourceHost, sourcePath:
		return false
	}
	return true
}

// secret reports whether the source's values are always shown as a hash only.
func (s Source) secret() bool {
	return s.kind == sourceCookie || s.kind == sourceHeader && (s.name == "authorization" || s.name == "x-api-key")
}

// PathParam returns NAME of "path.NAME"; "" for other sources.
func (s Source) PathParam() string {
	if s.kind == sourcePathParam {
		return s.name
	}
	return ""
}

// value returns the request's first value and how many it has: 0 is missing, which is not the same as empty. Patterns are
// the paths that the spec matches, which name the segments of "path.NAME".
func (s Source) value(r *Request, patterns []string) (string, int) {
	switch s.kind {
	case sourceIP:
		return once(addressValue(r.IP, s.prefix))
	case sourceMethod:
		return once(r.Method, r.Method != "")
	case sourceHost:
		return once(r.Host, r.Host != "")
	case sourcePath:
		return once(r.Path, r.Path != "")
	case sourcePathParam:
		for _, p := range patterns {
			if v, ok := pathParam(p, r.Path, s.name); ok {
				return v, 1
			}
		}
	case sourceHeader:
		if values := r.Header[s.header]; len(values) > 0 {
			return values[0], len(values)
		}
	case sourceQuery:
		return r.query(s.name)
	case sourceCookie:
		return once(r.cookie(s.name))
	case sourceAttr:
		v, ok := r.Attr[s.name]
		return once(v, ok)
	}
	return "", 0
}

func once(value string, ok bool) (string, int) {
	if !ok {
		return "", 0
	}
	return value, 1
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

// A KeySource is one part of a rule's key: a source, and what is done to its values.
type KeySource struct {
	Source
	As    string // the name it is shown by; "" for the source itself
	Lower bool   // letters in lower case
	Trim  bool   // without white space at the ends
	Hash  bool   // shown as a keyed hash only; always so for credentials
}

type keySourceJSON struct {
	From  Source `json:"from"`
	As    string `json:"as,omitempty"`
	Lower bool   `json:"lower,omitempty"`
	Trim  bool   `json:"trim,omitempty"`
	Hash  bool   `json:"hash,omitempty"`
}

// ParseKeySource reads the text form of a source.
func ParseKeySource(text string) (KeySource, error) {
	s, err := ParseSource(text)
	if err != nil {
		return KeySource{}, fmt.Errorf("key %w", err)
	}
	return KeySource{Source: s}, nil
}

// MarshalJSON writes the text form, or an object where anything is done to the values.
func (k KeySource) MarshalJSON() ([]byte, error) {
	if k == (KeySource{Source: k.Source}) {
		return json.Marshal(k.Source)
	}
	return json.Marshal(keySourceJSON{From: k.Source, As: k.As, Lower: k.Lower, Trim: k.Trim, Hash: k.Hash})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (k *KeySource) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &k.Source)
	}
	var o keySourceJSON
	if err := unmarshalStrict(b, &o); err != nil {
		return err
	}
	if o.From == (Source{}) {
		return errors.New(`key: "from" is missing`)
	}
	*k = KeySource{Source: o.From, As: o.As, Lower: o.Lower, Trim: o.Trim, Hash: o.Hash}
	return nil
}

// Hashed reports whether values are shown as a keyed hash only.
func (k KeySource) Hashed() bool { return k.Hash || k.secret() }

// Label is the name the part is shown by.
func (k KeySource) Label() string {
	if k.As != "" {
		return k.As
	}
	return k.String()
}

// Identity is what of a key part belongs to the name of its counters: its source and what is done to the values, not how
// they are shown.
func (k KeySource) Identity() string {
	id := k.String()
	if k.Lower {
		id += "|lower"
	}
	if k.Trim {
		id += "|trim"
	}
	return id
}

// SameKey reports whether two keys have the same parts, so that the same requests share counters.
func SameKey(a, b []KeySource) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Source != b[i].Source || a[i].Lower != b[i].Lower || a[i].Trim != b[i].Trim {
			return false
		}
	}
	return true
}

func (k KeySource) value(r *Request, patterns []string) (string, int) {
	v, n := k.Source.value(r, patterns)
	return k.clean(v), n
}

// clean does to a value what the part says.
func (k KeySource) clean(v string) string {
	if k.Trim {
		v = strings.TrimSpace(v)
	}
	if k.Lower {
		v = strings.ToLower(v)
	}
	return v
}

// Key is a request's value for each part of a spec's key, in order. Two keys are the same key exactly when their
// encodings are equal.
type Key struct {
	encoded  []byte
	missing  bool
	repeated bool
}

// KeyOf collects the request's values for the spec's key.
func KeyOf(s *Spec, r *Request) Key {
	var key Key
	for i := range s.Key {
		v, n := s.Key[i].value(r, s.Match.Path)
		if n == 0 {
			key.missing = true
			key.encoded = append(key.encoded, 0)
			continue
		}
		key.repeated = key.repeated || n > 1
		key.encoded = append(key.encoded, 1)
		key.encoded = AppendString(key.encoded, v)
	}
	return key
}

// KeyOfValues returns the key of a request with these values, one for each part of the spec's key in order, as the
// request gives them or as [Key.Show] shows them where it does not hash. It is an [ErrInvalid] that names the parts when
// there is no such request.
func KeyOfValues(s *Spec, values []string) (Key, error) {
	if len(values) != len(s.Key) {
		return Key{}, fmt.Errorf("%w: %d values for a key of %d parts%s", ErrInvalid, len(values), len(s.Key), s.keyParts())
	}
	var key Key
	for i, k := range s.Key {
		v, problem := k.given(values[i])
		if problem != "" { // without the value, which may be a secret
			return Key{}, fmt.Errorf("%w: value %d %s; the key has %d parts%s", ErrInvalid, i+1, problem, len(s.Key), s.keyParts())
		}
		key.encoded = append(key.encoded, 1)
		key.encoded = AppendString(key.encoded, k.clean(v))
	}
	return key, nil
}

// keyParts lists the sources of the key for messages: ": ip/64, header:x-login-name"; "" when there are none.
func (s *Spec) keyParts() string {
	list, separator := "", ": "
	for _, k := range s.Key {
		list += separator + k.String()
		separator = ", "
	}
	return list
}

// given returns the value that a request with the text has, or what is wrong with the text.
func (s Source) given(text string) (value, problem string) {
	switch s.kind {
	case sourceIP:
		if p, err := netip.ParsePrefix(text); err == nil && p.Bits() == s.prefix && s.prefix < 128 && p.Addr().Is6() && !p.Addr().Is4In6() {
			text = p.Addr().String() // any address of a network stands for it
		}
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return "", "is not an address"
		}
		value, _ = addressValue(ip, s.prefix)
		return value, ""
	case sourceMethod, sourceHost, sourcePath:
		if text == "" {
			return "", "is empty, which it is in no request"
		}
	}
	return text, ""
}

// HidePath returns a path as it may be shown: "#" stands for what the spec's key takes from it and hashes.
func (s *Spec) HidePath(path string) string {
	for _, k := range s.Key {
		if !k.Hashed() || k.kind != sourcePath && k.kind != sourcePathParam {
			continue
		}
		secret, n := k.Source.value(&Request{Path: path}, s.Match.Path)
		switch {
		case n == 0:
		case k.kind == sourcePath:
			return "#"
		default:
			segments := strings.Split(path, "/")
			for i := range segments {
				if segments[i] == secret {
					segments[i] = "#"
				}
			}
			path = strings.Join(segments, "/")
		}
	}
	return path
}

// Encoded is the key's unambiguous form: for each part one byte (0 missing, 1 present) and the length-prefixed value. It
// holds raw values: hash it before it leaves the process.
func (k Key) Encoded() []byte { return k.encoded }

// Part returns the encoding of one part of the key.
func (k Key) Part(i int) []byte {
	b := k.encoded
	for {
		end := 1
		if b[0] == 1 {
			end = 5 + int(binary.BigEndian.Uint32(b[1:]))
		}
		if i == 0 {
			return b[:end]
		}
		i, b = i-1, b[end:]
	}
}

// Missing reports that the request lacks a value of the key.
func (k Key) Missing() bool { return k.missing }

// Repeated reports that the request gives a value of the key more than once, so that it could be counted by one and used
// by another behind the door.
func (k Key) Repeated() bool { return k.repeated }

// Shared reports that other callers use the same counter: the key is empty, or a value is missing.
func (k Key) Shared() bool { return len(k.encoded) == 0 || k.missing }

// Show returns a key of the spec as people see it: show(part, value) of its values joined with ",", "*" for an empty key,
// "-" for a missing value.
func (k Key) Show(s *Spec, show func(k KeySource, value string) string) string {
	if len(s.Key) == 0 {
		return "*"
	}
	parts := make([]string, len(s.Key))
	for i := range s.Key {
		parts[i] = "-"
		if part := k.Part(i); part[0] == 1 {
			parts[i] = show(s.Key[i], string(part[5:]))
		}
	}
	return strings.Join(parts, ",")
}

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
