package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Spec is what one version of a rule says. It has no name, stage or percentage: those belong to the [Rule].
type Spec struct {
	Description string      `json:"description,omitempty"`
	Owner       string      `json:"owner,omitempty"`
	Match       Match       `json:"match,omitzero"`
	Key         []KeySource `json:"key"` // empty: one counter for all
	Limits      []Limit     `json:"limits"`
	Failure     Failure     `json:"failure,omitempty"`
}

// Failure says what a rule does when the store cannot answer.
type Failure string

// The failure modes. The zero value is FailOpen.
const (
	FailOpen   Failure = ""       // allow
	FailClosed Failure = "closed" // refuse with 503
)

// Encode returns the spec's canonical JSON: equal specs have equal bytes. It is what is stored and sent.
func (s Spec) Encode() ([]byte, error) {
	if s.Key == nil {
		s.Key = []KeySource{}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode spec: %w", err)
	}
	return b, nil
}

// DecodeSpec reads what Encode wrote, and validates it. A field it does not know is an error: a sidecar must not
// enforce half of a spec.
func DecodeSpec(b []byte) (Spec, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var s Spec
	if err := d.Decode(&s); err != nil {
		return Spec{}, fmt.Errorf("decode spec: %w: %w", ErrInvalid, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Spec{}, fmt.Errorf("decode spec: %w: something follows it", ErrInvalid)
	}
	if problems := s.Validate(); len(problems) > 0 {
		return Spec{}, fmt.Errorf("decode spec: %w", &ValidationError{Problems: problems})
	}
	return s, nil
}

// withoutText returns the spec without its text: description and owner, which no verdict depends on.
func (s Spec) withoutText() Spec {
	s.Description, s.Owner = "", ""
	return s
}

// Equal reports whether two specs say the same, text included.
func (s Spec) Equal(other Spec) bool { return equalJSON(s, other) }

// SameVerdicts reports whether two specs differ at most in text.
func (s Spec) SameVerdicts(other Spec) bool { return equalJSON(s.withoutText(), other.withoutText()) }

func equalJSON(a, b Spec) bool {
	x, errX := a.Encode()
	y, errY := b.Encode()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
