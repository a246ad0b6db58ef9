package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// Service runs the use cases on a ledger.
type Service struct {
	ledger Ledger
	fleet  Fleet
	now    func() time.Time
}

// NewService returns a service that stamps records with the time that now returns.
func NewService(ledger Ledger, fleet Fleet, now func() time.Time) *Service {
	return &Service{ledger: ledger, fleet: fleet, now: now}
}

// Why is who asks for a change, and what for.
type Why struct {
	Actor   Actor
	Message string
}

// A Step is what a change did to one rule.
type Step struct {
	Rule          string // "domain/name"
	Before, After string // the states in words; Before is "" for a new rule
	Warnings      []rules.Problem
}

// Outcome is the result of a change.
type Outcome struct {
	Revision int64 // 0 when nothing changed
	Steps    []Step
	Note     string // why nothing changed
}

// Apply makes the specs the newest of their rules in the domain: see [Apply] for what becomes of each. Rules of the
// domain that specs does not name stay as they are. All of it happens, or nothing.
func (s *Service) Apply(ctx context.Context, domain string, specs []rules.NamedSpec, why Why) (Outcome, error) {
	return s.commit(ctx, domain, ActionApply, domain, why, func(tx Tx) ([]rules.Rule, []rules.Rule, string, error) {
		standing, err := tx.Rules(ctx)
		if err != nil {
			return nil, nil, "", err
		}
		byName := make(map[string]rules.Rule, len(standing))
		for _, r := range standing {
			byName[r.Name] = r
		}
		if err := refuseCopies(domain, standing, specs); err != nil {
			return nil, nil, "", err
		}
		var before, after []rules.Rule
		for _, named := range specs {
			was, exists := byName[named.Name]
			if !exists {
				after = append(after, Create(domain, named.Name, named.Spec, tx.Revision()))
				continue
			}
			versions, err := tx.Versions(ctx, was.UID)
			if err != nil {
				return nil, nil, "", err
			}
			will, changed, err := Apply(was, named.Spec, versions+1, tx.Revision())
			if err != nil {
				return nil, nil, "", err
			}
			if changed {
				before, after = append(before, was), append(after, will)
			}
		}
		return before, after, "every rule already says this", nil
	})
}

// Promote moves a rule's candidate to a percentage of keys.
func (s *Service) Promote(ctx context.Context, domain, name string, to rules.Percent, why Why) (Outcome, error) {
	action := ActionPromote
	if to == 0 {
		action = ActionAbort
	}
	return s.commit(ctx, domain, action, domain+"/"+name, why, func(tx Tx) ([]rules.Rule, []rules.Rule, string, error) {
		was, err := tx.Rule(ctx, name)
		if err != nil {
			return nil, nil, "", err
		}
		will, changed, err := Promote(was, to, tx.Revision())
		if err != nil || !changed {
			return nil, nil, "it is " + was.State(), err
		}
		return []rules.Rule{was}, []rules.Rule{will}, "", nil
	})
}

// Rollback undoes a rule's last step: see [Rollback]. With a version above 0 it makes that one the stable, from any
// state; it must have been in force before.
func (s *Service) Rollback(ctx context.Context, domain, name string, version int64, why Why) (Outcome, error) {
	action := ActionRollback
	if version > 0 {
		action = ActionRollbackTo
	}
	return s.commit(ctx, domain, action, domain+"/"+name, why, func(tx Tx) ([]rules.Rule, []rules.Rule, string, error) {
		was, err := tx.Rule(ctx, name)
		if err != nil {
			return nil, nil, "", err
		}
		history, err := tx.History(ctx, was.UID)
		if err != nil {
			return nil, nil, "", err
		}
		will, changed, reason := Rollback(was, history, tx.Revision())
		if version > 0 {
			to, err := rollbackTarget(&was, version, history)
			if err != nil {
				return nil, nil, "", err
			}
			will, changed = RollbackTo(was, *to)
			reason = "it is " + was.State()
		}
		if !changed {
			return nil, nil, reason, nil
		}
		return []rules.Rule{was}, []rules.Rule{will}, "", nil
	})
}

func rollbackTarget(r *rules.Rule, version int64, history []Entry) (*rules.Version, error) {
	to, known := stableOf(version, history)
	switch {
	case to != nil:
		return to, nil
	case slices.Contains(known, version):
		return nil, &rules.ConflictError{
			Rule: r.ID(), State: r.State(),
			Hint: fmt.Sprintf("v%d has never been in force, so there is no way back to it; promote a candidate instead", version),
		}
	}
	return nil, fmt.Errorf("%w: %s has no version v%d; it has had v%d to v%d", rules.ErrNotFound, r.ID(), version, known[0], known[len(known)-1])
}

// Rules returns the rules of a domain by name, or of all domains when domain is "".
func (s *Service) Rules(ctx context.Context, domain string) ([]rules.Rule, error) {
	return s.ledger.Rules(ctx, domain)
}

// Audit returns the newest records first, at most limit; of all domains when domain is "".
func (s *Service) Audit(ctx context.Context, domain string, limit int) ([]Record, error) {
	return s.ledger.Audit(ctx, domain, limit)
}

// commit runs decide in a ledger transaction. Decide returns the touched rules before (absent: new) and after, and a
// note for the case that nothing changed.
func (s *Service) commit(ctx context.Context, domain string, action Action, target string, why Why,
	decide func(Tx) (before, after []rules.Rule, note string, err error),
) (Outcome, error) {
	var out Outcome
	revision, err := s.ledger.Commit(ctx, domain, func(tx Tx) (*Change, error) {
		before, after, note, err := decide(tx)
		if err != nil {
			return nil, err
		}
		if len(after) == 0 {
			out.Note = note
			return nil, nil
		}
		out.Steps = steps(before, after)
		record, err := s.record(domain, action, target, why, before, after, out.Steps)
		if err != nil {
			return nil, err
		}
		record.Revision = tx.Revision()
		for i := range after {
			after[i].Revision = tx.Revision()
		}
		return &Change{Record: record, Rules: after}, nil
	})
	if err != nil {
		return Outcome{}, s.Refused(ctx, domain, action, target, why, fmt.Errorf("%s %s: %w", action, target, err))
	}
	out.Revision = revision
	return out, nil
}

// maxRefusal bounds what a record keeps of a refusal's text.
const maxRefusal = 4096

// Refused records an attempt that was refused, and returns why. What failed for another reason (the database is away, the
// caller gave up) is no refusal, and is returned as it is.
func (s *Service) Refused(ctx context.Context, domain string, action Action, target string, why Why, refusal error) error {
	if !errors.Is(refusal, rules.ErrInvalid) && !errors.Is(refusal, rules.ErrConflict) &&
		!errors.Is(refusal, rules.ErrNotFound) && !errors.Is(refusal, rules.ErrForbidden) {
		return refusal
	}
	text := refusal.Error()
	err := s.ledger.Refuse(ctx, Record{
		Refused: text[:min(len(text), maxRefusal)], Domain: domain, Time: s.now().UTC().Truncate(time.Microsecond), Actor: why.Actor,
		Action: action, Target: target, Message: why.Message, Before: json.RawMessage("{}"), After: json.RawMessage("{}"),
	})
	if err != nil {
		return errors.Join(refusal, fmt.Errorf("record the refusal: %w", err))
	}
	return refusal
}

// refuseCopies refuses a spec that says the same as another rule of the domain would then: two rules equal in all but
// name are one rule that counts twice.
func refuseCopies(domain string, standing []rules.Rule, specs []rules.NamedSpec) error {
	list := slices.Clone(specs)
	for _, r := range standing {
		named := func(s rules.NamedSpec) bool { return s.Name == r.Name }
		if !slices.ContainsFunc(specs, named) {
			list = append(list, rules.NamedSpec{Name: r.Name, Spec: newest(&r).Spec})
		}
	}
	for _, pair := range rules.SameRules(list) {
		if pair.First < len(specs) { // of two that stand already, this change is not the cause
			return fmt.Errorf("%w: %s/%s would say the same as %s/%s: leave one of them out, or make them differ in more than text",
				rules.ErrInvalid, domain, list[pair.First].Name, domain, list[pair.Second].Name)
		}
	}
	return nil
}

// newest is the version that was applied last: the candidate, where there is one.
func newest(r *rules.Rule) *rules.Version {
	if r.Candidate != nil {
		return r.Candidate
	}
	return r.Stable
}

// steps says what became of each rule. A new spec is compared with the one in force, or the one being tried.
func steps(before, after []rules.Rule) []Step {
	was := make(map[string]*rules.Rule, len(before))
	for i := range before {
		was[before[i].UID] = &before[i]
	}
	list := make([]Step, len(after))
	for i := range after {
		list[i] = Step{Rule: after[i].ID(), After: after[i].State()}
		old := was[after[i].UID]
		if old == nil {
			continue
		}
		list[i].Before = old.State()
		if now := newest(&after[i]); now.Number > newest(old).Number {
			from := old.Stable
			if from == nil {
				from = old.Candidate
			}
			list[i].Warnings = rules.CompareLimits(&from.Spec, &now.Spec)
		}
	}
	return list
}

func (s *Service) record(domain string, action Action, target string, why Why, before, after []rules.Rule, done []Step) (Record, error) {
	lines := make([]string, len(done))
	for i, step := range done {
		from := step.Before
		if from == "" {
			from = "new"
		}
		lines[i] = fmt.Sprintf("%s: %s -> %s", step.Rule, from, step.After)
	}
	was, err := json.Marshal(snapshot(before))
	if err != nil {
		return Record{}, fmt.Errorf("write the audit record: %w", err)
	}
	will, err := json.Marshal(snapshot(after))
	if err != nil {
		return Record{}, fmt.Errorf("write the audit record: %w", err)
	}
	return Record{
		Domain: domain, Time: s.now().UTC().Truncate(time.Microsecond), Actor: why.Actor, Action: action, Target: target,
		Message: why.Message, Detail: strings.Join(lines, "\n"), Before: was, After: will,
	}, nil
}

type ruleSnapshot struct {
	UID       string         `json:"uid"`
	Stable    *rules.Version `json:"stable,omitempty"`
	Candidate *rules.Version `json:"candidate,omitempty"`
	Percent   rules.Percent  `json:"percent,omitempty"`
}

func snapshot(list []rules.Rule) map[string]ruleSnapshot {
	m := make(map[string]ruleSnapshot, len(list))
	for _, r := range list {
		m[r.Name] = ruleSnapshot{UID: r.UID, Stable: r.Stable, Candidate: r.Candidate, Percent: r.Percent}
	}
	return m
}
