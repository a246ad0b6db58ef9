package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Domain is what holds for all the rules of a domain.
type Domain struct {
	Name     string
	Revision int64    // the last one that touched the domain or one of its rules
	Secret   [16]byte // keys the hashes of counters

	// SettingsRevision is the last one that touched what follows; 0 where none did.
	SettingsRevision int64
	// Shard keeps the counters of rules whose key has this source to one Redis slot for each value; nil: none.
	Shard *Source
	// Exempt requests meet no rule at all.
	Exempt []Exemption
	// Freezes let everything pass for a time.
	Freezes []Freeze
}

// Exemption names requests that meet no rule.
type Exemption struct {
	Name  string `json:"name"`
	Match Match  `json:"match"`
}

// A Freeze makes every version of a rule, or of all rules of a domain, what-if until a time: nothing is refused by
// them. It ends by itself, wherever it is enforced.
type Freeze struct {
	Rule  string    `json:"rule,omitempty"` // its name; "": all rules of the domain
	Until time.Time `json:"until"`          // UTC
	// IncludingClosed freezes versions with `failure: closed` as well: those guard something that is worse than a refusal.
	IncludingClosed bool `json:"includingClosed,omitempty"`
}

// MaxFreeze is the longest a freeze lasts: who needs a week wants another rule.
const MaxFreeze = 24 * time.Hour

// Covers reports whether the freeze holds for a version of the rule at the time.
func (f *Freeze) Covers(rule string, s *Spec, now time.Time) bool {
	return now.Before(f.Until) && (f.Rule == "" || f.Rule == rule) && (f.IncludingClosed || s.Failure.Mode != FailClosed)
}

// Frozen returns the freeze that holds for a version of the rule at the time, the one that ends last; nil for none.
func (d *Domain) Frozen(rule string, s *Spec, now time.Time) *Freeze {
	var last *Freeze
	for i := range d.Freezes {
		if f := &d.Freezes[i]; f.Covers(rule, s, now) && (last == nil || f.Until.After(last.Until)) {
			last = f
		}
	}
	return last
}

// Settings is the part of a domain that files and commands change, as it is stored and sent.
type Settings struct {
	Shard   *Source     `json:"shard,omitempty"`
	Exempt  []Exemption `json:"exempt,omitempty"`
	Freezes []Freeze    `json:"freezes,omitempty"`
}

// Settings returns the domain's settings.
func (d *Domain) Settings() Settings {
	return Settings{Shard: d.Shard, Exempt: d.Exempt, Freezes: d.Freezes}
}

// Set replaces the domain's settings.
func (d *Domain) Set(s Settings) { d.Shard, d.Exempt, d.Freezes = s.Shard, s.Exempt, s.Freezes }

// Validate returns every problem of the settings, with paths as in a file ("exempt[1].match.path[0]").
func (s *Settings) Validate() []Problem {
	var problems []Problem
	add := report(func(code, path, format string, args ...any) {
		problems = append(problems, Problem{Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
	})
	switch {
	case s.Shard == nil:
	case s.Shard.kind == 0:
		add(CodeKey, "shard", "the source is missing: use %s", sourceForms)
	case s.Shard.kind == sourcePathParam:
		add(CodeKey, "shard", "%s: segments are named by each rule's own paths; a shard is for a whole domain", *s.Shard)
	}
	seen := map[string]bool{}
	for i := range s.Exempt {
		x := &s.Exempt[i]
		at := fmt.Sprintf("exempt[%d].", i)
		if problem := CheckName(x.Name); problem != "" {
			add(CodeName, at+"name", "%s", problem)
		} else if seen[x.Name] {
			add(CodeName, at+"name", "%q names two exemptions of this domain", x.Name)
		}
		seen[x.Name] = true
		if x.Match.IsZero() {
			add(CodeMatch, at+"match", "an empty match exempts every request: say which are meant")
		}
		x.Match.Validate(add.under(at + "match"))
	}
	for i := range s.Freezes {
		f := &s.Freezes[i]
		at := fmt.Sprintf("freezes[%d].", i)
		if f.Rule != "" && CheckName(f.Rule) != "" {
			add(CodeName, at+"rule", "%s", CheckName(f.Rule))
		}
		if f.Until.IsZero() {
			add(CodeMode, at+"until", "the end of the freeze is missing")
		}
	}
	return problems
}

// Encode returns the settings' canonical JSON: equal settings have equal bytes.
func (s Settings) Encode() ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode settings: %w", err)
	}
	return b, nil
}

// Equal reports whether two settings say the same.
func (s Settings) Equal(other Settings) bool {
	x, errX := s.Encode()
	y, errY := other.Encode()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// DecodeSettings reads what Encode wrote. A field it does not know is an error.
func DecodeSettings(b []byte) (Settings, error) {
	var s Settings
	if err := unmarshalStrict(b, &s); err != nil {
		return Settings{}, fmt.Errorf("decode settings: %w: %w", ErrInvalid, err)
	}
	return s, nil
}

// unmarshalStrict reads one JSON value. A field it does not know, or anything behind the value, is an error.
func unmarshalStrict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}
