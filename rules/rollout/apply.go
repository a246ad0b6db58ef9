package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// Proposal is what files say about one domain, and how to take it.
type Proposal struct {
	Rules  []rules.NamedSpec
	Shard  *rules.Source
	Exempt []rules.Exemption

	Replace   bool // replace candidates that already bind
	Again     bool // take specs that were rolled back from
	Prune     bool // delete rules that are not named, and settings
	Enforce   bool // in force at once, without shadow
	Confirmed bool // ten times more or less is meant
	Dry       bool // only say what would be done, as part of an attempt: see [Why] for a question
}

// Apply makes the specs the newest of their rules in the domain: see [Apply] for what becomes of each. Rules and
// exemptions of the domain that are not named stay as they are, unless they are pruned. All of it happens, or nothing;
// every rule that stands in the way is named.
//
// An editor may apply to shadow. What takes effect at once (settings, pruning, enforcing) needs an operator.
func (s *Service) Apply(ctx context.Context, domain string, proposal Proposal, why Why) (Outcome, error) {
	in := intent{domain: domain, action: ActionApply, target: domain, why: why, needs: access.Editor, dry: proposal.Dry}
	return s.commit(ctx, in, func(ctx context.Context, tx Tx) (*plan, error) {
		p := &plan{note: "every rule already says this", warnings: map[string][]string{}}
		standing, err := s.planRules(ctx, tx, p, domain, &proposal, why)
		if err != nil {
			return nil, err
		}
		if err := refuseCopies(domain, standing, &proposal); err != nil {
			return nil, err
		}
		if err := s.planSettings(ctx, tx, p, &proposal, why); err != nil {
			return nil, err
		}
		if p.settings != nil || proposal.Enforce || p.loosens() {
			p.needs = access.Operator
		}
		return p, nil
	})
}

// loosens reports whether something that binds for somebody does so no more, or for fewer.
func (p *plan) loosens() bool {
	percent := make(map[string]rules.Percent, len(p.before))
	for i := range p.before {
		percent[p.before[i].UID] = p.before[i].Percent
	}
	return slices.ContainsFunc(p.after, func(r rules.Rule) bool { return r.Deleted() || r.Percent < percent[r.UID] })
}

// planRules runs the transitions, and returns the rules as they stand.
func (s *Service) planRules(ctx context.Context, tx Tx, p *plan, domain string, proposal *Proposal, why Why) ([]rules.Rule, error) {
	standing, err := tx.Rules(ctx)
	if err != nil {
		return nil, err
	}
	past, err := s.pastOf(ctx, tx, standing)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]rules.Rule, len(standing))
	for _, r := range standing {
		byName[r.Name] = r
	}
	now := s.now()
	var refusals []error
	run := func(name string, op Operation) {
		was := Standing{Rule: rules.Rule{Domain: domain, Name: name}, Revision: tx.Revision(), Now: now}
		r, exists := byName[name]
		if exists {
			was.Rule, was.Versions, was.History = r, past.sums[r.UID].Versions, past.histories[r.UID]
		}
		if err := why.based(was.Rule.ID(), was.Rule.State(), was.Rule.Revision); err != nil {
			refusals = append(refusals, err)
			return
		}
		will, note, err := Transition(was, op)
		switch {
		case err != nil:
			refusals = append(refusals, err)
		case note == "":
			p.touch(&was, will)
		}
	}
	named := map[string]bool{}
	for _, n := range proposal.Rules {
		named[n.Name] = true
		run(n.Name, Apply{
			Spec: n.Spec, Replace: proposal.Replace, Again: proposal.Again, Enforce: proposal.Enforce, Confirmed: proposal.Confirmed,
		})
	}
	if proposal.Prune {
		for _, r := range standing {
			if !named[r.Name] && !r.Deleted() {
				run(r.Name, Delete{})
				p.warnings[r.Name] = append(p.warnings[r.Name], "it is not in the files: it is taken out of force at once")
			}
		}
	}
	return standing, errors.Join(refusals...)
}

// pasts is what an apply may need of the histories of a domain.
type pasts struct {
	sums      map[string]Past
	histories map[string][]Entry // of the rules that were rolled back: the others have nothing to guard
}

// pastOf reads as little as it can: the revision lock is held, and a domain may have ten thousand rules with hundreds of
// states each.
func (s *Service) pastOf(ctx context.Context, tx Tx, standing []rules.Rule) (pasts, error) {
	sums, err := tx.Pasts(ctx)
	if err != nil {
		return pasts{}, err
	}
	var rolledBack []string
	for i := range standing {
		if uid := standing[i].UID; sums[uid].RolledBack {
			rolledBack = append(rolledBack, uid)
		}
	}
	p := pasts{sums: sums}
	if len(rolledBack) > 0 {
		p.histories, err = tx.Histories(ctx, rolledBack...)
	}
	return p, err
}

// planSettings says loudly what takes effect at once.
func (s *Service) planSettings(ctx context.Context, tx Tx, p *plan, proposal *Proposal, why Why) error {
	if proposal.Shard == nil && len(proposal.Exempt) == 0 && !proposal.Prune {
		return nil
	}
	d, err := tx.Domain(ctx)
	if err != nil {
		return err
	}
	was := d.Settings()
	will := settle(was, proposal.Shard, proposal.Exempt, proposal.Prune)
	if will.Equal(was) {
		return nil
	}
	if err := why.based(d.Name, "with other settings", d.SettingsRevision); err != nil {
		return err
	}
	p.settings = &settingsChange{before: was, after: will}
	if !(rules.Settings{Exempt: was.Exempt}).Equal(rules.Settings{Exempt: will.Exempt}) {
		p.warnings[d.Name] = append(p.warnings[d.Name], "exemptions take effect at once: requests that one names meet no rule at all")
	}
	if !(rules.Settings{Shard: was.Shard}).Equal(rules.Settings{Shard: will.Shard}) {
		p.warnings[d.Name] = append(p.warnings[d.Name], "another shard starts all counters keyed on it anew, at once: callers get a fresh budget")
	}
	return nil
}

// refuseCopies refuses a spec that says the same as another rule of the domain would then: two rules equal in all but
// name are one rule that counts twice.
func refuseCopies(domain string, standing []rules.Rule, proposal *Proposal) error {
	list := slices.Clone(proposal.Rules)
	for i := range standing {
		r := &standing[i]
		named := func(s rules.NamedSpec) bool { return s.Name == r.Name }
		if !r.Deleted() && !proposal.Prune && !slices.ContainsFunc(proposal.Rules, named) {
			list = append(list, rules.NamedSpec{Name: r.Name, Spec: newest(r).Spec})
		}
	}
	var problems []string
	for _, pair := range rules.SameRules(list) {
		if pair.First < len(proposal.Rules) { // of two that stand already, this change is not the cause
			problems = append(problems, fmt.Sprintf("%s/%s would say the same as %s/%s: leave one of them out, or make them differ in more than text",
				domain, list[pair.First].Name, domain, list[pair.Second].Name))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %s", rules.ErrInvalid, strings.Join(problems, "; "))
	}
	return nil
}
