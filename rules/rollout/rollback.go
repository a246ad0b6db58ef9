package rollout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headgate/headgate/rules"
)

// Rollback undoes the last step that put a version in force, and needs no file:
//
//   - beside a stable, the candidate is dropped;
//   - a candidate without a stable goes back to shadow;
//   - a stable gives way to the version that was in force before it first was, passing over versions that were
//     themselves rolled back from; where there is none, it goes back to shadow;
//   - a deleted rule is restored: its stable as it was, or its candidate in shadow.
//
// Right after a rollback it changes nothing: who repeats it in a hurry must not go back twice.
type Rollback struct{}

func (Rollback) on(s *Standing) (rules.Rule, string, error) {
	r := s.Rule
	if r.UID == "" {
		return r, "", s.exists()
	}
	if lastStep(s.History).isRollback() {
		return r, "the last change was a rollback; to go back further name the version with --to", nil
	}
	switch {
	case r.Deleted():
		return restored(lastAlive(s.History), s.Revision), "", nil
	case r.Candidate != nil && r.Stable != nil:
		return endTrial(r), "", nil
	case r.Candidate != nil && r.Percent == 0 && !r.Course.Running():
		return r, fmt.Sprintf("v%d is in shadow and refuses nobody", r.Candidate.Number), nil
	case r.Candidate != nil:
		return toShadow(r, s.Revision), "", nil
	}
	if before := inForceBefore(*r.Stable, s.History); before != nil {
		r.Stable, r.Course = before, nil
		return r, "", nil
	}
	return toShadow(r, s.Revision), "", nil
}

// lastStep is the last action that was about versions: an override or a pause between two rollbacks is no step to undo.
func lastStep(history []Entry) Action {
	for i := len(history) - 1; i >= 0; i-- {
		switch a := history[i].Action; a {
		case ActionOverride, ActionDeleteOverride, ActionPause, ActionResume:
		default:
			return a
		}
	}
	return ""
}

// toShadow leaves the rule without a stable; its newest version is a candidate in shadow.
func toShadow(r rules.Rule, revision int64) rules.Rule {
	newest := cmp.Or(r.Candidate, r.Stable)
	trial := r.Candidate != nil
	r.Stable = nil
	if !trial {
		return startTrial(r, newest, revision)
	}
	if r.Percent > 0 {
		r.Percent, r.Epoch = 0, revision
	}
	r.Paused, r.Course = false, nil
	return r
}

// restored is a rule that was deleted, from its last state before that.
func restored(was rules.Rule, revision int64) rules.Rule {
	if was.Stable != nil {
		return endTrial(was)
	}
	return startTrial(was, was.Candidate, revision)
}

func lastAlive(history []Entry) rules.Rule {
	for i := len(history) - 1; i >= 0; i-- {
		if r := history[i].Rule; !r.Deleted() {
			return r
		}
	}
	return rules.Rule{} // not reached: a rule is born with a version
}

// RollbackTo makes a version the stable from any state, and drops the candidate. The version must have been in force: a
// rollback must not be the first to let one loose.
type RollbackTo struct {
	Version int64
}

func (op RollbackTo) on(s *Standing) (rules.Rule, string, error) {
	r := s.Rule
	if r.UID == "" {
		return r, "", s.exists()
	}
	if r.Candidate == nil && r.Stable != nil && r.Stable.Number == op.Version {
		return r, "it is " + r.State(), nil
	}
	for i := len(s.History) - 1; i >= 0; i-- {
		if v := s.History[i].Rule.Stable; v != nil && v.Number == op.Version {
			r.Stable = v
			return endTrial(r), "", nil
		}
	}
	known := versions(s.History)
	if slices.ContainsFunc(known, func(v *rules.Version) bool { return v.Number == op.Version }) {
		return r, "", s.conflict(fmt.Sprintf("v%d has never been in force, so there is no way back to it; promote a candidate instead", op.Version))
	}
	return r, "", fmt.Errorf("%w: %s has no version v%d; it has had v1 to v%d", rules.ErrNotFound, r.ID(), op.Version, s.next()-1)
}

// Restore makes the rule what it was at a revision, as part of the rollback of its domain: it has the stable and the
// overrides it had then, and no candidate. A rule that had no stable then, or was not there, goes to shadow.
type Restore struct {
	Was rules.Rule // zero: it was not there
}

func (op Restore) on(s *Standing) (rules.Rule, string, error) {
	r := s.Rule
	r.Overrides = unexpired(r.Overrides, s.Now)
	standing, was := r, op.Was
	switch {
	case r.Deleted() && was.Deleted():
		return r, "it was not there", nil
	case r.Deleted():
		r = restored(was, s.Revision)
	case was.Stable != nil:
		r = endTrial(r)
		r.Stable, r.Overrides = was.Stable, unexpired(was.Overrides, s.Now)
	default:
		r = toShadow(r, s.Revision)
		r.Overrides = unexpired(was.Overrides, s.Now)
	}
	if same(&r, &standing) {
		return r, "it is as it was", nil
	}
	return r, "", nil
}

// same reports whether two states of a rule hold the same.
func same(a, b *rules.Rule) bool {
	return number(a.Stable) == number(b.Stable) && number(a.Candidate) == number(b.Candidate) &&
		a.Percent == b.Percent && a.Paused == b.Paused && a.Epoch == b.Epoch && a.Course.Running() == b.Course.Running() &&
		slices.EqualFunc(a.Overrides, b.Overrides, sameOverride)
}

// inForceBefore returns the stable version that v first replaced, passing over versions that were rolled back from and
// those that differ from v only in text.
func inForceBefore(v rules.Version, history []Entry) *rules.Version {
	withdrawn, verdicts := withdrawals(history)
	var stables []*rules.Version // in the order they came into force
	for i := range history {
		s := history[i].Rule.Stable
		if s != nil && (len(stables) == 0 || stables[len(stables)-1].Number != s.Number) {
			stables = append(stables, s)
		}
	}
	first := slices.IndexFunc(stables, func(s *rules.Version) bool { return s.Number == v.Number })
	for i := first - 1; i >= 0; i-- {
		is := verdicts[stables[i].Number]
		if withdrawn[is] == nil && is != verdicts[v.Number] {
			return stables[i]
		}
	}
	return nil
}
