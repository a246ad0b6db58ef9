package rules

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxOverrides is how many a rule may have at a time. They are part of its resource and of each of its states.
const MaxOverrides = 100

// Override is another rate for one key of one rule, until a time. It holds for every version of the rule that has the
// limit with the same window, and counts in the same counter, so that neither its begin nor its end is a fresh budget.
type Override struct {
	Key   OverrideKey `json:"key"`
	Limit string      `json:"limit,omitempty"` // its name; "" where the spec has only one
	Rate  Rate        `json:"rate"`            // with the limit's window
	Until time.Time   `json:"until"`           // UTC
}

// OverrideKey names a key without holding its values: it is a keyed hash.
type OverrideKey [16]byte

// NewOverrideKey is the first half of HMAC-SHA-256 (RFC 2104), keyed with the domain's secret, over the rule's uid, the
// sources of the key and its values. A spec with other sources has other keys, and no override holds for it.
func NewOverrideKey(secret [16]byte, uid string, s *Spec, key Key) OverrideKey {
	b := AppendString(nil, uid)
	for _, k := range s.Key {
		b = AppendString(b, k.Identity())
	}
	b = append(b, 0xff) // neither a presence byte nor a length begins with it
	b = append(b, key.Encoded()...)
	mac := hmac.New(sha256.New, secret[:])
	mac.Write(b)
	return OverrideKey(mac.Sum(nil)[:16])
}

// HoldsFor reports whether the override is of the limit: it has the limit's name and window. A rate of 0 refuses, and an
// unlimited one allows, whatever the window. Given for another spec, it does not hold for one by which a request may cost
// more than it can ever have: everybody else would pass, and this key never.
func (o *Override) HoldsFor(s *Spec, l *Limit) bool {
	holds := o.Rate.Burst
	if l.Algorithm == SlidingWindow {
		holds = o.Rate.Amount
	}
	return o.sharesCounter(l) && (o.Rate.Unlimited || o.Rate.Amount == 0 || holds >= s.largestCost())
}

func (o *Override) sharesCounter(l *Limit) bool {
	return o.Limit == l.Name && l.Window() > 0 && (o.Rate.Unlimited || o.Rate.Amount == 0 || o.Rate.Window == l.Window())
}

// CheckOverride says, as an [ErrInvalid], why the override cannot be of a rule with the spec; nil when it can. Key and
// Until are not looked at.
func CheckOverride(s *Spec, o Override) error {
	i := slices.IndexFunc(s.Limits, func(l Limit) bool { return l.Name == o.Limit })
	if i < 0 {
		var names []string
		for i := range s.Limits {
			names = append(names, cmp.Or(s.Limits[i].Name, "one without a name"))
		}
		if o.Limit == "" {
			return fmt.Errorf("%w: override %q: the rule has several limits: say which one with --name: %s", ErrInvalid, o.Rate, strings.Join(names, ", "))
		}
		return fmt.Errorf("%w: override %q: the rule has no limit of the name %q: it has %s", ErrInvalid, o.Rate, o.Limit, strings.Join(names, ", "))
	}
	l := &s.Limits[i]
	if err := o.Rate.check(l.Algorithm); err != nil {
		return fmt.Errorf("%w: override: %w", ErrInvalid, err)
	}
	switch cost := s.largestCost(); {
	case l.Window() == 0:
		return fmt.Errorf("%w: override %q: the limit is unlimited, so it has no counter that an override could share", ErrInvalid, o.Rate)
	case !o.sharesCounter(l):
		return fmt.Errorf("%w: override %q: it counts in the counter of the limit, whose window is %s: write an amount for %s",
			ErrInvalid, o.Rate, windowText(l.Window()), windowText(l.Window()))
	case o.Rate.Amount > 0 && o.Rate.Burst < cost:
		return fmt.Errorf("%w: override %q holds %d, but a request may cost %d: it could never pass", ErrInvalid, o.Rate, o.Rate.Burst, cost)
	}
	return nil
}

func (k OverrideKey) String() string { return hex.EncodeToString(k[:]) }

// MarshalText writes the key as hex.
func (k OverrideKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *OverrideKey) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(k) {
		return fmt.Errorf("%q is no key of an override: 32 hexadecimal digits", text)
	}
	copy(k[:], b)
	return nil
}

// EncodeOverrides returns the list as JSON; it is what is stored and sent.
func EncodeOverrides(list []Override) ([]byte, error) {
	if list == nil {
		list = []Override{}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode overrides: %w", err)
	}
	return b, nil
}

// DecodeOverrides reads what EncodeOverrides wrote. A field it does not know is an error.
func DecodeOverrides(b []byte) ([]Override, error) {
	var list []Override
	if err := unmarshalStrict(b, &list); err != nil {
		return nil, fmt.Errorf("decode overrides: %w: %w", ErrInvalid, err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, nil
}
