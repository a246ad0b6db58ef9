package tally

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dchest/siphash"

	"github.com/headgate/headgate/rules"
)

// KeyID names a key of a rule without holding its values. Rules of a domain whose keys have the same parts share it, so
// that one caller is one KeyID in all of them.
type KeyID [16]byte

// KeyOf names a key: SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012), keyed with the domain's secret, over the
// sources of the key and its values.
func KeyOf(secret [16]byte, s *rules.Spec, key rules.Key) KeyID {
	return KeyID(hash(secret, append(KeyPrefix(s), key.Encoded()...)))
}

// KeyPrefix is the part of what is hashed that does not depend on the request.
func KeyPrefix(s *rules.Spec) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(s.Key))) //nolint:gosec // at most 8
	for _, k := range s.Key {
		b = rules.AppendString(b, k.Identity())
	}
	return b
}

func hash(secret [16]byte, b []byte) (sum [16]byte) {
	lo, hi := siphash.Hash128(binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:]), b)
	binary.BigEndian.PutUint64(sum[:8], hi)
	binary.BigEndian.PutUint64(sum[8:], lo)
	return sum
}

func (k KeyID) String() string { return hex.EncodeToString(k[:]) }

// ParseKeyID reads what String wrote.
func ParseKeyID(text string) (k KeyID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(k) {
		return KeyID{}, fmt.Errorf("%w: %q is no id of a key: 32 hexadecimal digits", rules.ErrInvalid, text)
	}
	return KeyID(b), nil
}

// MaxLabel is the most bytes a label has.
const MaxLabel = 64

// Label is how a key of the spec is shown: hashed values as "#" and eight digits of a keyed hash, others masked. What is not
// a caller's (the method, the host, the path) is shown whole. It has at most MaxLabel bytes.
func Label(secret [16]byte, s *rules.Spec, key rules.Key) string {
	return Printable(key.Show(s, func(k rules.KeySource, value string) string {
		switch {
		case k.Hashed():
			sum := hash(secret, rules.AppendString(rules.AppendString([]byte("label"), k.Identity()), value))
			return "#" + hex.EncodeToString(sum[:4])
		case k.Caller():
			return Mask(value)
		}
		return value
	}), MaxLabel)
}

// Mask hides most of a value: of an address the last part, of other text all but the first and the last two letters.
func Mask(value string) string {
	if p, err := netip.ParsePrefix(value); err == nil {
		return maskAddress(p.Addr())
	}
	if a, err := netip.ParseAddr(value); err == nil {
		return maskAddress(a)
	}
	letters := []rune(value)
	switch n := len(letters); {
	case n == 0:
		return `""`
	case n < 8:
		return string(letters[:1]) + "…"
	default:
		return string(letters[:2]) + "…" + string(letters[n-2:])
	}
}

func maskAddress(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		b := a.As4()
		return fmt.Sprintf("%d.%d.%d.*", b[0], b[1], b[2])
	}
	p, err := a.Prefix(48)
	if err != nil {
		return "*"
	}
	return strings.TrimSuffix(p.Addr().String(), "::") + "::*"
}

// Printable returns valid UTF-8 without control characters, since it goes to terminals and logs, and at most so many bytes:
// what is longer ends in "…".
func Printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
	if len(s) <= most {
		return s
	}
	end := most - len("…")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
