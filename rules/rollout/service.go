package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// Store is what the use cases need of a database.
type Store interface {
	Ledger
	Fleet
	Feed
}

// Service runs the use cases on a store. It is safe for concurrent use.
type Service struct {
	store   Store
	tallies Tallies
	now     func() time.Time
}

// NewService returns a service that stamps records with the time that now returns.
func NewService(store Store, now func() time.Time) *Service {
	return &Service{store: store, tallies: noTallies{}, now: now}
}

// Why is who asks for a change, what for, and what it is based on.
type Why struct {
	Who     access.Identity
	Message string
	// Base is the revision that whoever asks has looked at; 0: whatever stands. When what the change names was touched
	// after it, the change is a conflict.
	Base int64
	// Dry only asks what the change would do: nothing is stored, and what refuses it leaves no record, for nobody attempts it.
	Dry bool
}

func (w Why) actor() Actor { return Actor{Name: w.Who.Name, Verified: w.Who.Verified} }

// A Step is what a change did to one rule, or to the settings of the domain.
type Step struct {
	Rule          string // "domain/name", or the domain
	Before, After string // the states in words; Before is "" for what is new
	Warnings      []string
	// Stable and Candidate are the numbers of the versions that the rule has after it; 0: none.
	Stable, Candidate int64
}

// Outcome is the result of a change.
type Outcome struct {
	Revision int64 // 0 when nothing changed
	Steps    []Step
	Note     string // why nothing changed
}

// plan is what a use case wants to change.
type plan struct {
	before, after []rules.Rule     // of the touched rules; before lacks those that are new
	had           map[string]int64 // how many versions each had, by uid
	settings      *settingsChange
	note          string // why nothing changes
	warnings      map[string][]string
	needs         access.Role // that the change turned out to need; "": what its action needs
}

type settingsChange struct {
	before, after rules.Settings
}

// touch plans that a rule becomes another, or is new.
func (p *plan) touch(was *Standing, will rules.Rule) {
	if was.Rule.UID != "" {
		p.before = append(p.before, was.Rule)
	}
	p.after = append(p.after, will)
	if p.had == nil {
		p.had = map[string]int64{}
	}
	p.had[will.UID] = was.Versions
}

// intent is what somebody asks for.
type intent struct {
	domain string
	action Action
	target string
	why    Why
	needs  access.Role
	dry    bool // part of an attempt: only say what it would do
}

// commit runs decide in a ledger transaction, and stores what it planned. Every refusal of an attempt is recorded.
func (s *Service) commit(ctx context.Context, in intent, decide func(context.Context, Tx) (*plan, error)) (Outcome, error) {
	attempt := func(err error) error {
		what := string(in.action) + " " + in.target
		if strings.HasPrefix(err.Error(), in.target) {
			what = string(in.action)
		}
		err = fmt.Errorf("%s: %w", what, err)
		return s.Refused(ctx, in.domain, in.action, in.target, in.why, err)
	}
	if err := in.why.Who.May(in.needs, in.domain); err != nil {
		return Outcome{}, attempt(err)
	}
	var out Outcome
	revision, err := s.store.Commit(ctx, in.domain, func(tx Tx) (*Change, error) {
		if in.why.Base >= tx.Revision() {
			return nil, fmt.Errorf("%w: it is based on revision %d, and the last one is %d", rules.ErrConflict, in.why.Base, tx.Revision()-1)
		}
		p, err := decide(ctx, tx)
		if err != nil {
			return nil, err
		}
		if len(p.after) == 0 && p.settings == nil {
			out.Note = p.note
			return nil, nil
		}
		if p.needs != "" {
			if err := in.why.Who.May(p.needs, in.domain); err != nil {
				return nil, err
			}
		}
		if err := refuseParted(ctx, tx); err != nil {
			return nil, err
		}
		out.Steps = p.steps(in.domain, s.now())
		if in.dry || in.why.Dry {
			out.Note = "nothing was stored: this only says what would be done"
			return nil, nil
		}
		return s.change(in, p, tx.Revision(), out.Steps)
	})
	if err != nil {
		return Outcome{}, attempt(err)
	}
	out.Revision = revision
	return out, nil
}

// refuseParted refuses to go on with a history that the fleet has seen go on otherwise: numbers would be given out twice,
// and sidecars could not tell one revision from the other.
func refuseParted(ctx context.Context, tx Tx) error {
	node, revision, err := tx.Ahead(ctx)
	if err != nil || node == "" {
		return err
	}
	return &rules.ConflictError{
		Rule:  "the database",
		State: fmt.Sprintf("older than its fleet: it ends with revision %d, and sidecar %s has revision %d", tx.Revision()-1, node, revision),
		Hint:  "after a restore from a backup stop the control planes and run controlplane renew-lineage",
	}
}

func (s *Service) change(in intent, p *plan, revision int64, done []Step) (*Change, error) {
	record, err := s.record(in, p, done)
	if err != nil {
		return nil, err
	}
	record.Revision = revision
	c := &Change{Record: record, Rules: p.after}
	if p.settings != nil {
		c.Settings = &p.settings.after
	}
	return c, nil
}

// based refuses a change that is based on something older than the last revision that touched what it names.
func (w Why) based(target, state string, touched int64) error {
	if w.Base == 0 || touched <= w.Base {
		return nil
	}
	return &rules.ConflictError{
		Rule: target, State: fmt.Sprintf("%s since revision %d", state, touched),
		Hint: fmt.Sprintf("the change is based on revision %d; look at it again, and base the change on revision %d", w.Base, touched),
	}
}

// onRule runs one operation on one rule.
func (s *Service) onRule(ctx context.Context, in intent, name string, op Operation) (Outcome, error) {
	return s.onRuleWith(ctx, in, name, func(context.Context, Tx, *Standing) (Operation, error) { return op, nil })
}

// onRuleWith runs an operation that depends on what stands.
func (s *Service) onRuleWith(ctx context.Context, in intent, name string,
	choose func(context.Context, Tx, *Standing) (Operation, error),
) (Outcome, error) {
	in.target = in.domain + "/" + name
	return s.commit(ctx, in, func(ctx context.Context, tx Tx) (*plan, error) {
		was, err := s.standing(ctx, tx, in.domain, name)
		if err != nil {
			return nil, err
		}
		if err := in.why.based(in.target, was.Rule.State(), was.Rule.Revision); err != nil {
			return nil, err
		}
		op, err := choose(ctx, tx, &was)
		if err != nil {
			return nil, err
		}
		will, note, err := Transition(was, op)
		if err != nil || note != "" {
			return &plan{note: note}, err
		}
		p := &plan{}
		p.touch(&was, will)
		return p, nil
	})
}

// standing reads a rule with its history; of a name that never was there is none.
func (s *Service) standing(ctx context.Context, tx Tx, domain, name string) (Standing, error) {
	is := Standing{Rule: rules.Rule{Domain: domain, Name: name}, Revision: tx.Revision(), Now: s.now()}
	r, err := tx.Rule(ctx, name)
	if errors.Is(err, rules.ErrNotFound) {
		return is, nil
	}
	if err != nil {
		return is, err
	}
	histories, err := tx.Histories(ctx, r.UID)
	is.Rule, is.History = r, histories[r.UID]
	for _, v := range versions(is.History) {
		is.Versions = max(is.Versions, v.Number)
	}
	return is, err
}

// maxRefusal bounds what a record keeps of a refusal's text.
const maxRefusal = 4096

// Refused records an attempt that was refused, and returns why. A dry run is no attempt. What failed for another reason (the database is away, the
// caller gave up) is no refusal, and is returned as it is.
func (s *Service) Refused(ctx context.Context, domain string, action Action, target string, why Why, refusal error) error {
	if why.Dry || !errors.Is(refusal, rules.ErrInvalid) && !errors.Is(refusal, rules.ErrConflict) && !errors.Is(refusal, rules.ErrGuarded) &&
		!errors.Is(refusal, rules.ErrNotFound) && !errors.Is(refusal, rules.ErrForbidden) {
		return refusal
	}
	text := refusal.Error()
	r := s.note(action, target, why)
	r.Domain, r.Refused = domain, text[:min(len(text), maxRefusal)]
	if err := s.store.Note(ctx, r, ""); err != nil {
		return errors.Join(refusal, fmt.Errorf("record the refusal: %w", err))
	}
	return refusal
}
