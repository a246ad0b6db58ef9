package storage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// RuleRow is a state of a rule as a row holds it: versions by number, with their specs beside them when read.
type RuleRow struct {
	Domain, Name, UID         string
	Revision                  int64
	Stable, Candidate         *int64 // version numbers; nil: NULL
	StableSpec, CandidateSpec *string
	Percent                   int64
	Salt                      int64 // the uint64's bits: SQL knows only signed integers
	Epoch                     int64
	Paused                    bool
	Overrides                 string
	Plan                      string
}

// Fields returns where to scan the columns domain, name, uid, revision, stable, its spec, candidate, its spec, percent,
// salt, epoch, paused, overrides, plan, in this order.
func (r *RuleRow) Fields() []any {
	return []any{
		&r.Domain, &r.Name, &r.UID, &r.Revision, &r.Stable, &r.StableSpec, &r.Candidate, &r.CandidateSpec,
		&r.Percent, &r.Salt, &r.Epoch, &r.Paused, &r.Overrides, &r.Plan,
	}
}

// Rule returns the rule the row holds.
func (r *RuleRow) Rule() (rules.Rule, error) { return r.rule(map[versionID]*rules.Version{}) }

// rule decodes only versions that are not known yet.
func (r *RuleRow) rule(known map[versionID]*rules.Version) (rules.Rule, error) {
	rule := rules.Rule{
		Domain: r.Domain, Name: r.Name, UID: r.UID, Revision: r.Revision,
		Percent: rules.Percent(r.Percent), //nolint:gosec // the database checks 0 to 10,000
		Salt:    uint64(r.Salt),           //nolint:gosec // the same bits
		Epoch:   r.Epoch, Paused: r.Paused,
	}
	var err error
	if rule.Stable, err = r.version(known, r.Stable, r.StableSpec); err != nil {
		return rules.Rule{}, err
	}
	if rule.Candidate, err = r.version(known, r.Candidate, r.CandidateSpec); err != nil {
		return rules.Rule{}, err
	}
	if rule.Overrides, err = rules.DecodeOverrides([]byte(r.Overrides)); err != nil {
		return rules.Rule{}, unreadable(fmt.Sprintf("the overrides of %s/%s at revision %d", r.Domain, r.Name, r.Revision), err)
	}
	if rule.Course, err = rules.DecodeCourse(r.Plan); err != nil {
		return rules.Rule{}, unreadable(fmt.Sprintf("the plan of %s/%s at revision %d", r.Domain, r.Name, r.Revision), err)
	}
	return rule, nil
}

type versionID struct {
	uid    string
	number int64
}

func (r *RuleRow) version(known map[versionID]*rules.Version, number *int64, spec *string) (*rules.Version, error) {
	if number == nil {
		return nil, nil
	}
	id := versionID{r.UID, *number}
	if v := known[id]; v != nil {
		return v, nil
	}
	if spec == nil {
		return nil, fmt.Errorf("read %s/%s: the database does not hold v%d", r.Domain, r.Name, *number)
	}
	decoded, err := rules.DecodeSpec([]byte(*spec))
	if err != nil {
		return nil, unreadable(fmt.Sprintf("v%d of %s/%s", *number, r.Domain, r.Name), err)
	}
	known[id] = &rules.Version{Number: *number, Spec: decoded}
	return known[id], nil
}

// unreadable says what of the database this program does not understand. The error is of no kind: the ErrInvalid of a
// decoder would blame whoever asked.
func unreadable(what string, err error) error {
	return fmt.Errorf("read %s as stored, probably by a newer program: %v", what, err) //nolint:errorlint // see above
}

// EntryRow is a step of a rule's history as a row holds it.
type EntryRow struct {
	RuleRow

	Action   rollout.Action
	At       int64 // microseconds since the Unix epoch
	Actor    string
	Verified bool
	Message  string
}

// Fields returns where to scan the columns of [RuleRow.Fields], action, and of its audit record the time, actor, verified
// and message.
func (e *EntryRow) Fields() []any {
	return append(e.RuleRow.Fields(), &e.Action, &e.At, &e.Actor, &e.Verified, &e.Message)
}

func (e *EntryRow) entry(rule rules.Rule) rollout.Entry {
	return rollout.Entry{
		Action: e.Action, Rule: rule, Time: time.UnixMicro(e.At).UTC(), Actor: rollout.Actor{Name: e.Actor, Verified: e.Verified},
		Message: e.Message,
	}
}

// Histories returns the entries by the uid of their rule, in the order of the rows. A version that many of them hold is
// decoded once.
func Histories(rows []EntryRow) (map[string][]rollout.Entry, error) {
	all, known := map[string][]rollout.Entry{}, map[versionID]*rules.Version{}
	for i := range rows {
		rule, err := rows[i].rule(known)
		if err != nil {
			return nil, err
		}
		all[rule.UID] = append(all[rule.UID], rows[i].entry(rule))
	}
	return all, nil
}

// DomainRow is a domain as a row holds it, with its newest settings beside it.
type DomainRow struct {
	Name             string
	Secret           []byte
	Revision         int64
	SettingsRevision *int64 // nil: NULL, as the settings are then
	Settings         *string
}

// Fields returns where to scan the columns name, secret, revision, settings_revision, settings, in this order.
func (d *DomainRow) Fields() []any {
	return []any{&d.Name, &d.Secret, &d.Revision, &d.SettingsRevision, &d.Settings}
}

// Domain returns the domain the row holds.
func (d *DomainRow) Domain() (rules.Domain, error) {
	domain := rules.Domain{Name: d.Name, Revision: d.Revision}
	copy(domain.Secret[:], d.Secret)
	if d.SettingsRevision == nil || d.Settings == nil {
		return domain, nil
	}
	settings, err := DecodeSettings(d.Name, *d.Settings)
	domain.SettingsRevision = *d.SettingsRevision
	domain.Set(settings)
	return domain, err
}

// DecodeSettings reads the settings of a domain as they are stored.
func DecodeSettings(domain, stored string) (rules.Settings, error) {
	settings, err := rules.DecodeSettings([]byte(stored))
	if err != nil {
		return rules.Settings{}, unreadable("the settings of "+domain, err)
	}
	return settings, nil
}

// All returns what the rows hold, or fails over the first that this program cannot read.
func All[R, V any](rows []R, read func(*R) (V, error)) ([]V, error) {
	var first error
	list := Readable(rows, read, func(err error) { first = cmp.Or(first, err) })
	if first != nil {
		return nil, first
	}
	return list, nil
}

// Readable returns what the rows hold, without those that this program cannot read: a version that a newer program wrote
// must not hide all the others. Why each is missing is handed to skipped.
func Readable[R, V any](rows []R, read func(*R) (V, error), skipped func(error)) []V {
	list := make([]V, 0, len(rows))
	for i := range rows {
		v, err := read(&rows[i])
		if err != nil {
			skipped(err)
			continue
		}
		list = append(list, v)
	}
	return list
}

// Step lays out what has changed, without what this program cannot read, and without the rules of a domain that it cannot
// read: where the one is not known, the others cannot be enforced.
func Step(c *rollout.Changes, domains []DomainRow, changed []RuleRow, skipped func(error)) {
	c.Domains = Readable(domains, (*DomainRow).Domain, skipped)
	if len(c.Domains) < len(domains) {
		known := make(map[string]bool, len(c.Domains))
		for i := range c.Domains {
			known[c.Domains[i].Name] = true
		}
		changed = slices.DeleteFunc(changed, func(r RuleRow) bool { return !known[r.Domain] })
	}
	c.Rules = Readable(changed, (*RuleRow).Rule, skipped)
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

// ChangeRows is a change as rows hold it.
type ChangeRows struct {
	States   []RuleRow
	Versions []VersionRow // every one that the states hold
	Settings *string      // nil: the domain's stay as they are
}

// Rows lays out a change, stamped with the revision. It refuses, as [rules.ErrInvalid], what belongs to another domain or
// names a rule twice.
func Rows(domain string, revision int64, change *rollout.Change) (rows ChangeRows, err error) {
	if change.Record.Domain != domain {
		return ChangeRows{}, fmt.Errorf("%w: a change of %q has an audit record of %q", rules.ErrInvalid, domain, change.Record.Domain)
	}
	if change.Settings != nil {
		settings, err := change.Settings.Encode()
		if err != nil {
			return ChangeRows{}, fmt.Errorf("domain %s: %w", domain, err)
		}
		text := string(settings)
		rows.Settings = &text
	}
	seen := make(map[string]bool, len(change.Rules))
	for i := range change.Rules {
		r := &change.Rules[i]
		if r.Domain != domain || r.UID == "" || seen[r.UID] {
			return ChangeRows{}, fmt.Errorf("%w: a change of %q holds %s (uid %q) twice, or without a uid, or of another domain", rules.ErrInvalid, domain, r.ID(), r.UID)
		}
		seen[r.UID] = true
		if err := rows.add(r, revision); err != nil {
			return ChangeRows{}, err
		}
	}
	return rows, nil
}

// add lays out the state of one rule and the versions it holds.
func (rows *ChangeRows) add(r *rules.Rule, revision int64) error {
	overrides, err := rules.EncodeOverrides(r.Overrides)
	if err != nil {
		return fmt.Errorf("%s: %w", r.ID(), err)
	}
	plan, err := rules.EncodeCourse(r.Course)
	if err != nil {
		return fmt.Errorf("%s: %w", r.ID(), err)
	}
	row := RuleRow{
		Domain: r.Domain, Name: r.Name, UID: r.UID, Revision: revision,
		Percent: int64(r.Percent), Salt: int64(r.Salt), //nolint:gosec // the same bits
		Epoch: r.Epoch, Paused: r.Paused, Overrides: string(overrides), Plan: plan,
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
			return fmt.Errorf("v%d of %s: %w", side.version.Number, r.ID(), err)
		}
		*side.number = &side.version.Number
		rows.Versions = append(rows.Versions, VersionRow{UID: r.UID, Number: side.version.Number, Spec: string(spec)})
	}
	rows.States = append(rows.States, row)
	return nil
}
