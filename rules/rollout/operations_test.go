package rollout_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
)

// The operations that the laws are tried with. Each tells the model what it does, and the service.

var ann = rollout.Why{Who: access.Local("ann"), Message: "because"}

func (w *world) anyRule(t *rapid.T) ruleID {
	return ruleID{rapid.SampledFrom(domains).Draw(t, "domain"), rapid.SampledFrom(names).Draw(t, "name")}
}

// onRule runs an operation on a rule, now and then based on a revision.
func (w *world) onRule(t *rapid.T, what string, action rollout.Action, id ruleID, m move, do func(rollout.Why) (rollout.Outcome, error)) {
	why := ann
	switch touched := w.rules[id].touched; rapid.IntRange(0, 9).Draw(t, "base") {
	case 0:
		why.Base = touched
	case 1:
		if why.Base = touched - 1; why.Base > 0 {
			m = w.rules[id].refuse(rules.ErrConflict)
		}
		why.Base = max(why.Base, 0)
	}
	what = fmt.Sprintf("%s of %s based on %d", what, id, why.Base)
	w.run(t, onRule(what, action, id, m), func() (rollout.Outcome, error) { return do(why) })
}

func (w *world) apply(t *rapid.T) {
	domain := rapid.SampledFrom(domains).Draw(t, "domain")
	rarely := func(what string) bool { return rapid.IntRange(0, 4).Draw(t, what) == 0 }
	p := rollout.Proposal{
		Replace: rarely("replace"), Again: rarely("again"), Prune: rarely("prune"), Enforce: rarely("enforce"),
		Confirmed: rapid.Bool().Draw(t, "confirmed"), Dry: rarely("dry"),
	}
	x := &expected{action: rollout.ActionApply, domain: domain, moves: map[ruleID]move{}, dry: p.Dry}
	say := map[string]saying{}
	for _, name := range names {
		id := ruleID{domain, name}
		r := w.rules[id]
		if !rapid.Bool().Draw(t, "with "+name) {
			if p.Prune && !r.deleted() {
				x.move(id, r.remove())
			}
			continue
		}
		s := saying{rapid.IntRange(0, len(amounts)-1).Draw(t, "verdicts"), rapid.IntRange(0, 2).Draw(t, "text")}
		say[name] = s
		p.Rules = append(p.Rules, rules.NamedSpec{Name: name, Spec: specOf(id, s)})
		x.move(id, r.apply(s, &p))
	}
	is := w.domains[domain].exemptAt(w.head)
	exempt := rapid.SampledFrom([][]string{nil, {"health"}, {"health", "probe"}}).Draw(t, "exempt")
	for _, name := range exempt {
		p.Exempt = append(p.Exempt, rules.Exemption{Name: name, Match: rules.Match{Path: []string{"/" + name}}})
	}
	will := exempt
	if !p.Prune {
		will = slices.Compact(slices.Sorted(slices.Values(slices.Concat(is, exempt))))
	}
	if !slices.Equal(is, will) {
		x.exempt = append([]string{}, will...)
	}
	x.what = fmt.Sprintf("apply %v exempt %v to %s (Replace:%t Again:%t Prune:%t Enforce:%t Confirmed:%t Dry:%t)",
		say, exempt, domain, p.Replace, p.Again, p.Prune, p.Enforce, p.Confirmed, p.Dry)
	w.run(t, x, func() (rollout.Outcome, error) { return w.service.Apply(t.Context(), domain, p, ann) })
}

func (w *world) promote(t *rapid.T) {
	w.promoteTo(t, w.anyRule(t), rapid.SampledFrom([]rules.Percent{0, 1, 2_500, 5_000}).Draw(t, "percent"))
}

func (w *world) promoteTo(t *rapid.T, id ruleID, to rules.Percent) {
	action := rollout.ActionPromote
	if to == 0 {
		action = rollout.ActionAbort
	}
	w.onRule(t, "promote to "+to.String(), action, id, w.rules[id].promote(to), func(why rollout.Why) (rollout.Outcome, error) {
		return w.service.Promote(t.Context(), id.domain, id.name, to, why)
	})
}

func (w *world) pause(t *rapid.T) {
	id := w.anyRule(t)
	if rapid.Bool().Draw(t, "resume") {
		w.onRule(t, "resume", rollout.ActionResume, id, w.rules[id].pause(false), func(why rollout.Why) (rollout.Outcome, error) {
			return w.service.Resume(t.Context(), id.domain, id.name, why)
		})
		return
	}
	w.onRule(t, "pause", rollout.ActionPause, id, w.rules[id].pause(true), func(why rollout.Why) (rollout.Outcome, error) {
		return w.service.Pause(t.Context(), id.domain, id.name, why)
	})
}

func (w *world) delete(t *rapid.T) {
	id := w.anyRule(t)
	w.onRule(t, "delete", rollout.ActionDelete, id, w.rules[id].remove(), func(why rollout.Why) (rollout.Outcome, error) {
		return w.service.Delete(t.Context(), id.domain, id.name, why)
	})
}

func (w *world) rollback(t *rapid.T) {
	id := w.anyRule(t)
	w.onRule(t, "rollback", rollout.ActionRollback, id, w.rules[id].rollback(), func(why rollout.Why) (rollout.Outcome, error) {
		return w.service.Rollback(t.Context(), id.domain, id.name, 0, why)
	})
}

func (w *world) rollbackTo(t *rapid.T) {
	id := w.anyRule(t)
	version := rapid.Int64Range(1, int64(len(w.rules[id].versions))+1).Draw(t, "version")
	what := fmt.Sprintf("rollback to v%d", version)
	w.onRule(t, what, rollout.ActionRollbackTo, id, w.rules[id].rollbackTo(version), func(why rollout.Why) (rollout.Outcome, error) {
		return w.service.Rollback(t.Context(), id.domain, id.name, version, why)
	})
}

func (w *world) rollbackDomain(t *rapid.T) {
	domain := rapid.SampledFrom(domains).Draw(t, "domain")
	to := rapid.Int64Range(1, w.head+1).Draw(t, "revision")
	d := w.domains[domain]
	there := len(d.exemptAt(to)) > 0
	for _, name := range names {
		at := w.rules[ruleID{domain, name}].at(to)
		there = there || !at.deleted()
	}
	if to >= d.born && !there {
		to = w.head // whether there was anything else of the domain, the model does not know
	}
	x := &expected{
		what: fmt.Sprintf("rollback of %s to revision %d", domain, to), action: rollout.ActionRollbackDomain, domain: domain,
		moves: map[ruleID]move{},
	}
	switch {
	case d.born == 0:
		x.refused = []error{rules.ErrNotFound}
	case to < d.born, to > w.head:
		x.refused = []error{rules.ErrInvalid}
	default:
		for _, name := range names {
			x.move(ruleID{domain, name}, w.rules[ruleID{domain, name}].restore(to))
		}
		if was := d.exemptAt(to); !slices.Equal(was, d.exemptAt(w.head)) {
			x.exempt = append([]string{}, was...)
		}
	}
	w.run(t, x, func() (rollout.Outcome, error) { return w.service.RollbackDomain(t.Context(), domain, to, ann) })
}

// frozenRule draws what a freeze is of, and what refuses any.
func (w *world) frozenRule(t *rapid.T) (ruleID, []error) {
	id := w.anyRule(t)
	if rapid.Bool().Draw(t, "whole domain") {
		id.name = ""
	}
	if w.domains[id.domain].born == 0 || id.name != "" && w.rules[id].versions == nil {
		return id, []error{rules.ErrNotFound}
	}
	return id, nil
}

func (w *world) freeze(t *rapid.T) {
	id, refused := w.frozenRule(t)
	op := rollout.Freeze{
		Rule: id.name, IncludingClosed: rapid.Bool().Draw(t, "including closed"),
		For: rapid.SampledFrom([]time.Duration{0, 15 * time.Minute, rules.MaxFreeze, rules.MaxFreeze + 1}).Draw(t, "for"),
	}
	x := &expected{what: fmt.Sprintf("freeze %s %+v", id, op), action: rollout.ActionFreeze, domain: id.domain, refused: refused}
	if op.For == 0 || op.For > rules.MaxFreeze {
		x.refused = append(x.refused, rules.ErrInvalid)
	}
	if r := w.rules[id]; r != nil && !op.IncludingClosed && (r.stable.says(saying{verdicts: closed}) || r.candidate.says(saying{verdicts: closed})) {
		x.refused = append(x.refused, rules.ErrGuarded)
	}
	x.freezes = maps.Clone(w.domains[id.domain].freezes)
	x.freezes[id.name] = w.now.Add(op.For)
	w.run(t, x, func() (rollout.Outcome, error) { return w.service.Freeze(t.Context(), id.domain, op, ann) })
}

func (w *world) unfreeze(t *rapid.T) {
	id, refused := w.frozenRule(t)
	x := &expected{what: "unfreeze " + id.String(), action: rollout.ActionUnfreeze, domain: id.domain, refused: refused}
	left := running(w.domains[id.domain].freezes, w.now)
	if _, is := left[id.name]; is {
		delete(left, id.name)
		x.freezes = left
	}
	w.run(t, x, func() (rollout.Outcome, error) { return w.service.Unfreeze(t.Context(), id.domain, id.name, ann) })
}

func (w *world) override(t *rapid.T) {
	id, tenant := w.anyRule(t), rapid.SampledFrom(tenants).Draw(t, "tenant")
	o := modelOverride{
		amount: rapid.SampledFrom([]int64{30, 120, 7_000}).Draw(t, "amount"),
		until:  w.now.Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * time.Hour}).Draw(t, "for")),
	}
	confirmed := rapid.Bool().Draw(t, "confirmed")
	what := fmt.Sprintf("override %s %+v, confirmed %t", tenant, o, confirmed)
	m := w.rules[id].override(tenant, o, confirmed, w.now)
	w.onRule(t, what, rollout.ActionOverride, id, m, func(why rollout.Why) (rollout.Outcome, error) {
		return w.service.SetOverride(t.Context(), id.domain, id.name, rollout.OverrideFor{
			Values: []string{tenant}, Rate: perMinute(o.amount), Until: o.until, Confirmed: confirmed,
		}, why)
	})
}

func (w *world) deleteOverride(t *rapid.T) {
	id, tenant := w.anyRule(t), rapid.SampledFrom(tenants).Draw(t, "tenant")
	m := w.rules[id].deleteOverride(tenant)
	w.onRule(t, "delete override "+tenant, rollout.ActionDeleteOverride, id, m, func(why rollout.Why) (rollout.Outcome, error) {
		return w.service.DeleteOverride(t.Context(), id.domain, id.name, []string{tenant}, "", why)
	})
}

func (w *world) wait(t *rapid.T) {
	pass := rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 30 * time.Hour}).Draw(t, "for")
	t.Logf("wait for %s", pass)
	w.now = w.now.Add(pass)
}
