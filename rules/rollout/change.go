package rollout

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// Promote moves a rule's candidate to a percentage of keys.
func (s *Service) Promote(ctx context.Context, domain, name string, to rules.Percent, why Why) (Outcome, error) {
	action := ActionPromote
	if to == 0 {
		action = ActionAbort
	}
	return s.onRule(ctx, intent{domain: domain, action: action, why: why, needs: access.Operator}, name, Promote{To: to})
}

// Pause holds a rule's candidate where it is.
func (s *Service) Pause(ctx context.Context, domain, name string, why Why) (Outcome, error) {
	return s.onRule(ctx, intent{domain: domain, action: ActionPause, why: why, needs: access.Operator}, name, Pause{})
}

// Resume lets a paused candidate be promoted again.
func (s *Service) Resume(ctx context.Context, domain, name string, why Why) (Outcome, error) {
	return s.onRule(ctx, intent{domain: domain, action: ActionResume, why: why, needs: access.Operator}, name, Resume{})
}

// Delete takes a rule out of force.
func (s *Service) Delete(ctx context.Context, domain, name string, why Why) (Outcome, error) {
	return s.onRule(ctx, intent{domain: domain, action: ActionDelete, why: why, needs: access.Operator}, name, Delete{})
}

// Rollback undoes a rule's last step: see [Rollback]. With a version above 0 it makes that one the stable, from any
// state: see [RollbackTo].
func (s *Service) Rollback(ctx context.Context, domain, name string, version int64, why Why) (Outcome, error) {
	in := intent{domain: domain, action: ActionRollback, why: why, needs: access.Operator}
	if version == 0 {
		return s.onRule(ctx, in, name, Rollback{})
	}
	in.action = ActionRollbackTo
	return s.onRule(ctx, in, name, RollbackTo{Version: version})
}

// RollbackDomain restores the stables, exemptions and overrides of a domain as they were at a revision: see [Restore].
// Its shard and its freezes stay: another shard would hand out fresh budgets, and a freeze is nobody's mistake.
func (s *Service) RollbackDomain(ctx context.Context, domain string, to int64, why Why) (Outcome, error) {
	in := intent{domain: domain, action: ActionRollbackDomain, target: domain, why: why, needs: access.Operator}
	return s.commit(ctx, in, func(ctx context.Context, tx Tx) (*plan, error) {
		d, err := tx.Domain(ctx)
		if err != nil {
			return nil, err
		}
		if err := in.why.based(domain, "changed", d.Revision); err != nil {
			return nil, err
		}
		standing, err := tx.Rules(ctx)
		if err != nil {
			return nil, err
		}
		then, err := tx.RulesAt(ctx, to)
		if err != nil {
			return nil, err
		}
		was, err := tx.SettingsAt(ctx, to)
		if err != nil {
			return nil, err
		}
		if err := checkRevision(&d, to, tx.Revision()-1, len(then) > 0 || d.SettingsRevision > 0 && d.SettingsRevision <= to || !was.Equal(rules.Settings{})); err != nil {
			return nil, err
		}
		byUID := make(map[string]rules.Rule, len(then))
		for _, r := range then {
			byUID[r.UID] = r
		}
		p := &plan{note: fmt.Sprintf("stable versions, exemptions and overrides are already those of revision %d", to)}
		for _, r := range standing {
			// It brings no version, however many there are.
			is := Standing{Rule: r, Versions: math.MaxInt64, Revision: tx.Revision(), Now: s.now()}
			will, note, err := Transition(is, Restore{Was: byUID[r.UID]})
			if err != nil {
				return nil, err
			}
			if note == "" {
				p.touch(&is, will)
			}
		}
		is := d.Settings()
		will := is
		will.Exempt = was.Exempt
		if !will.Equal(is) {
			p.settings = &settingsChange{before: is, after: will}
		}
		return p, nil
	})
}

// checkRevision refuses a revision that was not, or at which there was nothing of the domain.
func checkRevision(d *rules.Domain, to, head int64, something bool) error {
	switch {
	case d.Revision == 0:
		return fmt.Errorf("domain %s: %w", d.Name, rules.ErrNotFound)
	case to > head:
		return fmt.Errorf("%w: revision %d has not been made yet; the last one is %d", rules.ErrInvalid, to, head)
	case !something:
		return fmt.Errorf("%w: there was nothing of domain %s at revision %d", rules.ErrInvalid, d.Name, to)
	}
	return nil
}

// Freeze makes a rule, or the whole domain, refuse nothing for a time. It gets through whatever state a rule is in.
func (s *Service) Freeze(ctx context.Context, domain string, op Freeze, why Why) (Outcome, error) {
	return s.onFreezes(ctx, intent{domain: domain, action: ActionFreeze, why: why}, op.Rule, func(is rules.Settings, rule *rules.Rule) (rules.Settings, string, error) {
		will, err := freeze(is, rule, domain, op, s.now())
		return will, "", err
	})
}

// Unfreeze ends a freeze of exactly this rule ("": of the whole domain).
func (s *Service) Unfreeze(ctx context.Context, domain, name string, why Why) (Outcome, error) {
	return s.onFreezes(ctx, intent{domain: domain, action: ActionUnfreeze, why: why}, name, func(is rules.Settings, _ *rules.Rule) (rules.Settings, string, error) {
		if frozen(is.Freezes, name, s.now()) == nil {
			return is, "it is not frozen", nil
		}
		is.Freezes = otherFreezes(is.Freezes, name, s.now())
		return is, "", nil
	})
}

func (s *Service) onFreezes(ctx context.Context, in intent, name string,
	change func(rules.Settings, *rules.Rule) (rules.Settings, string, error),
) (Outcome, error) {
	in.target, in.needs = in.domain, access.Operator
	if name != "" {
		in.target += "/" + name
	}
	return s.commit(ctx, in, func(ctx context.Context, tx Tx) (*plan, error) {
		d, err := tx.Domain(ctx)
		if err != nil {
			return nil, err
		}
		if d.Revision == 0 {
			return nil, fmt.Errorf("domain %s: %w", in.domain, rules.ErrNotFound)
		}
		if err := in.why.based(in.domain, "with other settings", d.SettingsRevision); err != nil {
			return nil, err
		}
		var rule *rules.Rule
		if name != "" {
			r, err := tx.Rule(ctx, name)
			if err != nil {
				return nil, err
			}
			rule = &r
		}
		is := d.Settings()
		will, note, err := change(is, rule)
		if err != nil || note != "" {
			return &plan{note: note}, err
		}
		p := &plan{settings: &settingsChange{before: is, after: will}}
		if f := frozen(will.Freezes, name, s.now()); f != nil && name == "" && !f.IncludingClosed {
			p.warnings, err = goOnRefusing(ctx, tx, in.domain)
		}
		return p, err
	})
}

// goOnRefusing warns of the rules that a freeze of the domain leaves in force.
func goOnRefusing(ctx context.Context, tx Tx, domain string) (map[string][]string, error) {
	standing, err := tx.Rules(ctx)
	if err != nil {
		return nil, err
	}
	var closed []string
	for i := range standing {
		guards := func(v *rules.Version) bool { return v.Spec.Failure.Mode == rules.FailClosed }
		if slices.ContainsFunc(held(&standing[i]), guards) {
			closed = append(closed, standing[i].Name)
		}
	}
	if len(closed) == 0 {
		return nil, nil
	}
	const shown = 20
	names := strings.Join(closed[:min(len(closed), shown)], ", ")
	if more := len(closed) - shown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return map[string][]string{domain: {"rules with failure: closed go on refusing: " + names + ", unless they are included (--including-closed)"}}, nil
}

// OverrideFor names one key of a rule, and what it is to have.
type OverrideFor struct {
	Values []string // of the key, in its order; never stored
	Limit  string   // name of the limit; "" where there is one
	Rate   rules.Rate
	Until  time.Time
	// Confirmed: ten times more or less than the limit is meant.
	Confirmed bool
}

// SetOverride gives one key of a rule another rate until a time.
func (s *Service) SetOverride(ctx context.Context, domain, name string, o OverrideFor, why Why) (Outcome, error) {
	in := intent{domain: domain, action: ActionOverride, why: why}
	return s.onKey(ctx, in, name, o.Values, func(key rules.OverrideKey) Operation {
		return SetOverride{Confirmed: o.Confirmed, Override: rules.Override{
			Key: key, Limit: o.Limit, Rate: o.Rate, Until: o.Until.UTC().Truncate(time.Second),
		}}
	})
}

// DeleteOverride ends the overrides of one key of a rule, of all its limits when limit is "".
func (s *Service) DeleteOverride(ctx context.Context, domain, name string, values []string, limit string, why Why) (Outcome, error) {
	in := intent{domain: domain, action: ActionDeleteOverride, why: why}
	return s.onKey(ctx, in, name, values, func(key rules.OverrideKey) Operation { return DeleteOverride{Key: key, Limit: limit} })
}

// DeleteOverrideOf is DeleteOverride for who knows the hash of the key, and not its values.
func (s *Service) DeleteOverrideOf(ctx context.Context, domain, name string, key rules.OverrideKey, limit string, why Why) (Outcome, error) {
	in := intent{domain: domain, action: ActionDeleteOverride, why: why, needs: access.Operator}
	return s.onRule(ctx, in, name, DeleteOverride{Key: key, Limit: limit})
}

func (s *Service) onKey(ctx context.Context, in intent, name string, values []string, op func(rules.OverrideKey) Operation) (Outcome, error) {
	in.needs = access.Operator
	return s.onRuleWith(ctx, in, name, func(ctx context.Context, tx Tx, was *Standing) (Operation, error) {
		if err := was.exists(); err != nil {
			return nil, err
		}
		d, err := tx.Domain(ctx)
		if err != nil {
			return nil, err
		}
		key, err := overrideKey(&was.Rule, d.Secret, values)
		return op(key), err
	})
}

// OverrideKey returns the hash that stands for a key of a rule, so that its overrides can be found.
func (s *Service) OverrideKey(ctx context.Context, domain, name string, values []string) (rules.OverrideKey, error) {
	list, err := s.store.Rules(ctx, domain)
	if err != nil {
		return rules.OverrideKey{}, err
	}
	at := slices.IndexFunc(list, func(r rules.Rule) bool { return r.Name == name })
	domains, err := s.store.Domains(ctx, domain)
	if err != nil {
		return rules.OverrideKey{}, err
	}
	if at < 0 || len(domains) == 0 {
		return rules.OverrideKey{}, fmt.Errorf("rule %s/%s: %w", domain, name, rules.ErrNotFound)
	}
	return overrideKey(&list[at], domains[0].Secret, values)
}

func overrideKey(r *rules.Rule, secret [16]byte, values []string) (rules.OverrideKey, error) {
	spec := &inForce(r).Spec
	key, err := rules.KeyOfValues(spec, values)
	if err != nil {
		return rules.OverrideKey{}, fmt.Errorf("key of %s: %w", r.ID(), err)
	}
	return rules.NewOverrideKey(secret, r.UID, spec, key), nil
}
