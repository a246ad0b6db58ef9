package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Spec is what one version of a rule says. It has no name, stage or percentage: those belong to the [Rule].
type Spec struct {
	Description string            `json:"description,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`

	Match Match `json:"match,omitzero"`
	When  *When `json:"when,omitempty"`
	// Exact demands of a descriptor that it has no entries but those the spec names.
	Exact      bool        `json:"exact,omitempty"`
	Key        []KeySource `json:"key"` // empty: one counter for all
	MissingKey MissingKey  `json:"missingKey,omitempty"`
	Limits     []Limit     `json:"limits"`
	// Cost is that of the first entry that matches; 1 when none does.
	Cost     []Cost   `json:"cost,omitempty"`
	Failure  Failure  `json:"failure,omitzero"`
	Response Response `json:"response,omitzero"`
}

// MissingKey says what a request without a value of the key gets.
type MissingKey string

// The choices. By default it is MissingShared for HTTP requests, since otherwise leaving out a header would leave the
// limit, and MissingSkip for descriptors, as users of Envoy expect.
const (
	MissingDefault MissingKey = ""
	MissingShared  MissingKey = "shared" // one common counter
	MissingSkip    MissingKey = "skip"   // the rule does not apply
	MissingRefuse  MissingKey = "refuse"
)

// Missing returns what a request without a value of the key gets: never MissingDefault.
func (s *Spec) Missing(r *Request) MissingKey {
	switch {
	case s.MissingKey != MissingDefault:
		return s.MissingKey
	case r.Descriptor:
		return MissingSkip
	}
	return MissingShared
}

// Cost is what a request that matches costs.
type Cost struct {
	Match Match `json:"match,omitzero"`
	Cost  int64 `json:"cost"` // 0 looks without spending
}

// CostOf returns what one hit of the request costs.
func (s *Spec) CostOf(r *Request) int64 {
	for i := range s.Cost {
		if s.Cost[i].Match.Matches(r) {
			return s.Cost[i].Cost
		}
	}
	return 1
}

// largestCost is the largest that a hit may cost.
func (s *Spec) largestCost() int64 {
	most := int64(1)
	if len(s.Cost) > 0 && s.Cost[len(s.Cost)-1].Match.IsZero() {
		most = 0 // the last entry matches everything, so the default never applies
	}
	for _, c := range s.Cost {
		most = max(most, c.Cost)
	}
	return most
}

// Failure says what a rule does when the store cannot answer: "open", "closed" or "local 200/s".
type Failure struct {
	Mode  FailureMode
	Local Rate // with FailLocal
}

// FailureMode is what a rule does when the store cannot answer.
type FailureMode string

// The failure modes.
const (
	FailOpen   FailureMode = ""       // allow
	FailClosed FailureMode = "closed" // refuse with 503
	FailLocal  FailureMode = "local"  // count in the process, with a number of its own
)

// ParseFailure reads "open", "closed" or "local AMOUNT/WINDOW".
func ParseFailure(text string) (Failure, error) {
	fields := strings.Fields(text)
	switch {
	case len(fields) == 1 && fields[0] == "open":
		return Failure{}, nil
	case len(fields) == 1 && fields[0] == string(FailClosed):
		return Failure{Mode: FailClosed}, nil
	case len(fields) == 2 && fields[0] == string(FailLocal):
		rate, err := ParseRate(fields[1])
		if err != nil {
			return Failure{}, err
		}
		return Failure{Mode: FailLocal, Local: rate}, nil
	}
	return Failure{}, fmt.Errorf(`%q is not known: use open, closed or "local AMOUNT/WINDOW"`, text)
}

func (f Failure) String() string {
	switch f.Mode {
	case FailOpen:
		return "open"
	case FailLocal:
		return string(FailLocal) + " " + f.Local.String()
	}
	return string(f.Mode)
}

// MarshalText writes what [ParseFailure] reads.
func (f Failure) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what [ParseFailure] reads.
func (f *Failure) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFailure(string(text))
	return err
}

// Response says how a refusal looks.
type Response struct {
	Status  int     `json:"status,omitempty"` // 400 to 599; 0 is 429
	Title   string  `json:"title,omitempty"`
	Headers Headers `json:"headers,omitempty"`
}

// Headers says which headers tell a caller about a limit.
type Headers string

// The choices.
const (
	HeadersStandard Headers = ""       // RateLimit and RateLimit-Policy
	HeadersLegacy   Headers = "legacy" // X-RateLimit-*
	HeadersBoth     Headers = "both"
	HeadersNone     Headers = "none" // nothing, not even Retry-After
)

// DefaultStatus is the status of a refusal, where the rule names none.
const DefaultStatus = 429

// StatusCode returns the status of a refusal.
func (r Response) StatusCode() int {
	if r.Status == 0 {
		return DefaultStatus
	}
	return r.Status
}

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
	var s Spec
	if err := unmarshalStrict(b, &s); err != nil {
		return Spec{}, fmt.Errorf("decode spec: %w: %w", ErrInvalid, err)
	}
	if problems := s.Validate(); len(problems) > 0 {
		return Spec{}, fmt.Errorf("decode spec: %w", &ValidationError{Problems: problems})
	}
	return s, nil
}

// withoutText returns the spec without its text: description, owner and labels, which no verdict depends on.
func (s Spec) withoutText() Spec {
	s.Description, s.Owner, s.Labels = "", "", nil
	return s
}

// Verdicts returns the canonical JSON of what verdicts depend on: two specs that differ at most in text have the same.
func (s Spec) Verdicts() string {
	b, err := s.withoutText().Encode()
	if err != nil {
		return "" // every valid spec encodes
	}
	return string(b)
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

// attributes returns the names of a descriptor's entries that the spec looks at, where it can be told: those that an
// expression asks for are not among them.
func (s *Spec) attributes() map[string]bool {
	names := map[string]bool{}
	source := func(src Source) {
		switch src.kind {
		case sourceAttr:
			names[src.name] = true
		case sourceIP:
			names["remote_address"] = true
		case sourceMethod:
			names["method"] = true
		case sourceHost:
			names["host"] = true
		case sourcePath, sourcePathParam, sourceQuery:
			names["path"] = true
		}
	}
	for _, k := range s.Key {
		source(k.Source)
	}
	for _, l := range s.Limits {
		if l.By != nil {
			source(*l.By)
		}
	}
	s.Match.attributes(names)
	for i := range s.Cost {
		s.Cost[i].Match.attributes(names)
	}
	return names
}

func (m *Match) attributes(names map[string]bool) {
	for _, f := range m.Attr {
		names[f.Name] = true
	}
	if len(m.Path) > 0 || len(m.Query) > 0 || len(m.GRPC) > 0 {
		names["path"] = true
	}
	if len(m.Method) > 0 {
		names["method"] = true
	}
	if len(m.Host) > 0 {
		names["host"] = true
	}
	if len(m.ClientIP) > 0 {
		names["remote_address"] = true
	}
	if m.Not != nil {
		m.Not.attributes(names)
	}
}

// Matches reports whether the spec applies to the request, its key aside. Failed is true when the expression could not
// be evaluated: the spec applies then.
func (s *Spec) Matches(r *Request) (matches, failed bool) {
	if !s.Match.Matches(r) {
		return false, false
	}
	if s.Exact && r.Descriptor && !s.namesAll(r.Attr) {
		return false, false
	}
	if s.When == nil {
		return true, false
	}
	return s.When.holds(r)
}

func (s *Spec) namesAll(entries map[string]string) bool {
	names := s.attributes()
	for name := range entries {
		if !names[name] {
			return false
		}
	}
	return true
}

// sortedValues returns the values of a plan in order, for messages.
func sortedValues(m map[string]Rate) []string {
	values := make([]string, 0, len(m))
	for v := range m {
		values = append(values, v)
	}
	slices.Sort(values)
	return values
}
