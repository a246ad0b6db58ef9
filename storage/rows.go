package storage

import (
	"fmt"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// RuleRow is a rule as a row holds it: versions by number, with their specs beside them when read.
type RuleRow struct {
	Domain, Name, UID         string
	Revision                  int64
	Stable, Candidate         *int64 // version numbers; nil: NULL
	StableSpec, CandidateSpec *string
	Percent                   int64
	Salt                      int64 // the uint64's bits: SQL knows only signed integers
	Epoch                     int64
}

// Fields returns where to scan the columns domain, name, uid, revision, stable, its spec, candidate, its spec, percent,
// salt, epoch, in this order.
func (r *RuleRow) Fields() []any {
	return []any{
		&r.Domain, &r.Name, &r.UID, &r.Revision, &r.Stable, &r.StableSpec, &r.Candidate, &r.CandidateSpec,
		&r.Percent, &r.Salt, &r.Epoch,
	}
}

// Rule returns the rule the row holds.
func (r *RuleRow) Rule() (rules.Rule, error) {
	rule := rules.Rule{
		Domain: r.Domain, Name: r.Name, UID: r.UID, Revision: r.Revision,
		Percent: rules.Percent(r.Percent), //nolint:gosec // the database checks 0 to 10,000
		Salt:    uint64(r.Salt),           //nolint:gosec // the same bits
		Epoch:   r.Epoch,
	}
	var err error
	if rule.Stable, err = r.version(r.Stable, r.StableSpec); err != nil {
		return rules.Rule{}, err
	}
	if rule.Candidate, err = r.version(r.Candidate, r.CandidateSpec); err != nil {
		return rules.Rule{}, err
	}
	return rule, nil
}

func (r *RuleRow) version(number *int64, spec *string) (*rules.Version, error) {
	if number == nil {
		return nil, nil
	}
	if spec == nil {
		return nil, fmt.Errorf("read %s/%s: the database does not hold v%d", r.Domain, r.Name, *number)
	}
	decoded, err := rules.DecodeSpec([]byte(*spec))
	if err != nil {
		// Not %w: DecodeSpec's ErrInvalid would blame whoever asked.
		return nil, fmt.Errorf("read v%d of %s/%s as stored: %v", *number, r.Domain, r.Name, err) //nolint:errorlint // see above
	}
	return &rules.Version{Number: *number, Spec: decoded}, nil
}

// VersionRow is a version as a row holds it: the spec in its canonical encoding, kept byte for byte.
type VersionRow struct {
	UID    string
	Number int64
	Spec   string
}

// Same reports whether the stored encoding says the same as v. The bytes of one spec may differ, when an earlier program
// wrote it.
func (v VersionRow) Same(stored string) bool {
	if v.Spec == stored {
		return true
	}
	ours, err := rules.DecodeSpec([]byte(v.Spec))
	if err != nil {
		return false
	}
	theirs, err := rules.DecodeSpec([]byte(stored))
	return err == nil && ours.Equal(theirs)
}

// Rows lays out a change: the state of each rule it touches, stamped with the revision, and every version those states
// hold. It refuses, as [rules.ErrInvalid], what belongs to another domain or names a rule twice.
func Rows(domain string, revision int64, change *rollout.Change) (states []RuleRow, versions []VersionRow, err error) {
	if change.Record.Domain != domain {
		return nil, nil, fmt.Errorf("%w: a change of %q has an audit record of %q", rules.ErrInvalid, domain, change.Record.Domain)
	}
	seen := make(map[string]bool, len(change.Rules))
	for i := range change.Rules {
		r := &change.Rules[i]
		if r.Domain != domain || r.UID == "" || seen[r.UID] {
			return nil, nil, fmt.Errorf("%w: a change of %q holds %s (uid %q) twice, or without a uid, or of another domain", rules.ErrInvalid, domain, r.ID(), r.UID)
		}
		seen[r.UID] = true
		row := RuleRow{
			Domain: r.Domain, Name: r.Name, UID: r.UID, Revision: revision,
			Percent: int64(r.Percent), Salt: int64(r.Salt), Epoch: r.Epoch, //nolint:gosec // the same bits
		}
		for _, side := range []struct {
			version *rules.Version
			number  **int64
		}{{r.Stable, &row.Stable}, {r.Candidate, &row.Candidate}} {
			if side.version == nil {
				continue
			}
			spec, err := side.version.Spec.Encode()
			if err != nil {
				return nil, nil, fmt.Errorf("v%d of %s: %w", side.version.Number, r.ID(), err)
			}
			*side.number = &side.version.Number
			versions = append(versions, VersionRow{UID: r.UID, Number: side.version.Number, Spec: string(spec)})
		}
		states = append(states, row)
	}
	return states, versions, nil
}
