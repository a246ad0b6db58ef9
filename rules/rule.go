package rules

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Rule is one rule as it stands: its versions, and how far its candidate is promoted.
type Rule struct {
	Domain string
	Name   string
	// UID is the rule's identity, in its counters and its history. A rule that is deleted keeps it: brought back, under
	// the same name in the same domain, it is the same rule, with its counters and the next version number. Another rule
	// never gets it.
	UID string
	// Revision is the last one that touched the rule.
	Revision int64

	Stable    *Version // nil: nothing is in force yet
	Candidate *Version // nil: nothing is being tried

	// Percent is the share of keys for which the candidate binds; 0 is shadow.
	Percent Percent
	// Salt chooses the cohort; born with a candidate.
	Salt uint64
	// Epoch names the what-if counters of this trial: the revision they were started at.
	Epoch int64
	// Paused holds a candidate where it is: nothing promotes it until it is resumed. Going back is always possible.
	Paused bool
	// Course is the plan that promotes the candidate, and how far it has come; nil: none does. It stays after the last
	// step, until something else is done with the rule's versions.
	Course *Course

	// Overrides are other rates for single keys, for a time; at most [MaxOverrides].
	Overrides []Override
}

// Version is an immutable, numbered spec of one rule.
type Version struct {
	Number int64
	Spec   Spec
}

// ID is "domain/name".
func (r *Rule) ID() string { return r.Domain + "/" + r.Name }

// Other returns the rule's other version; nil where there is none.
func (r *Rule) Other(v *Version) *Version {
	if v == r.Candidate {
		return r.Stable
	}
	return r.Candidate
}

// Stage names where a rule stands.
type Stage string

// The stages of a rule.
const (
	StageShadow  Stage = "shadow"  // a candidate that refuses nobody
	StagePartial Stage = "partial" // a candidate that binds for a percentage of keys
	StageStable  Stage = "stable"  // no candidate
	StageDeleted Stage = "deleted" // no version at all
)

// Deleted reports that the rule is not there any more. What it was is in its history, and a rollback restores it.
func (r *Rule) Deleted() bool { return r.Stable == nil && r.Candidate == nil }

// Stage of the rule's candidate; StageStable or StageDeleted where there is none.
func (r *Rule) Stage() Stage {
	switch {
	case r.Deleted():
		return StageDeleted
	case r.Candidate == nil:
		return StageStable
	case r.Percent == 0:
		return StageShadow
	}
	return StagePartial
}

// State says in words where the rule stands: "v8 at 10% beside stable v7".
func (r *Rule) State() string {
	var b strings.Builder
	switch r.Stage() {
	case StageShadow:
		fmt.Fprintf(&b, "v%d in shadow", r.Candidate.Number)
	case StagePartial:
		fmt.Fprintf(&b, "v%d at %s", r.Candidate.Number, r.Percent)
	case StageStable:
		return fmt.Sprintf("v%d stable", r.Stable.Number)
	case StageDeleted:
		return "deleted"
	}
	if r.Course != nil {
		b.WriteString(", " + r.Course.String())
	}
	if r.Paused {
		b.WriteString(", paused")
	}
	if r.Course != nil || r.Paused {
		b.WriteString(",")
	}
	if r.Stable == nil {
		b.WriteString(" with no stable version")
	} else {
		fmt.Fprintf(&b, " beside stable v%d", r.Stable.Number)
	}
	return b.String()
}

// Percent is a share of keys in steps of 0.01 %: 10000 is all of them.
type Percent uint32

// AllKeys is 100 %.
const AllKeys Percent = 10_000

// ParsePercent reads "25%", "0.01%" or "25", from 0 to 100 with at most two decimals. A fraction wants its "%": "0.25"
// could be meant as a quarter.
func ParsePercent(text string) (Percent, error) {
	number, sign := strings.CutSuffix(text, "%")
	if !sign && strings.Contains(text, ".") {
		return 0, fmt.Errorf("%w: %q is ambiguous: write %s%%, or a share of all keys as a whole percentage", ErrInvalid, text, text)
	}
	whole, fraction, _ := strings.Cut(number, ".")
	w, err := strconv.ParseUint(whole, 10, 32)
	if err != nil || len(fraction) > 2 || w > 100 {
		return 0, fmt.Errorf("%w: %q is not a percentage from 0 to 100 with at most two decimals", ErrInvalid, text)
	}
	f := uint64(0)
	if fraction != "" {
		if f, err = strconv.ParseUint((fraction + "0")[:2], 10, 32); err != nil {
			return 0, fmt.Errorf("%w: %q is not a percentage", ErrInvalid, text)
		}
	}
	p := Percent(w*100 + f) //nolint:gosec // at most 100·100 + 99
	if p > AllKeys {
		return 0, fmt.Errorf("%w: %q is more than 100%%", ErrInvalid, text)
	}
	return p, nil
}

func (p Percent) String() string {
	return strconv.FormatFloat(float64(p)/100, 'f', -1, 64) + "%"
}

// InCohort reports whether the candidate binds for the request.
func (r *Rule) InCohort(req *Request) bool {
	if r.Candidate == nil {
		return false
	}
	switch r.Percent {
	case 0:
		return false
	case AllKeys:
		return true
	}
	return CohortPosition(r.UID, r.Salt, r.cohortKey(req)) < r.Percent
}

// cohortKey is what keeps a caller on one side: the stable's key (the candidate's where there is no stable), the client
// address where that key is shared by many, and the request's attributes where there is no address either.
func (r *Rule) cohortKey(req *Request) []byte {
	v := r.Stable
	if v == nil {
		v = r.Candidate
	}
	if key := KeyOf(&v.Spec, req); !key.Shared() {
		return key.Encoded()
	}
	if address, ok := addressValue(req.IP, 128); ok {
		return AppendString(nil, address)
	}
	return req.attributes()
}

// CohortPosition places a key on the line from 0 to 9999 on which a percentage is a point: a key is in the cohort when
// its position is below the percentage. So raising a percentage only adds keys, and lowering it returns exactly the
// earlier set. The position is the first 64 bits of SHA-256(uid, salt, key), scaled: the same on every machine, and
// independent between rules and trials.
func CohortPosition(uid string, salt uint64, key []byte) Percent {
	b := AppendString(make([]byte, 0, 64), uid)
	b = binary.BigEndian.AppendUint64(b, salt)
	b = append(b, key...)
	sum := sha256.Sum256(b)
	hi, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), uint64(AllKeys))
	return Percent(hi) //nolint:gosec // hi is below 10,000
}

// NewUID returns a fresh random identity for a rule.
func NewUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// NewSalt returns a fresh random salt for a candidate.
func NewSalt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}
