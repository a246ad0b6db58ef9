package rollout

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/rules"
)

// The transitions are pure: they take a rule as it stands and return it as it will stand. Each refusal says where the
// rule stands and what can be done.

// Create returns a new rule with the spec as its candidate in shadow.
func Create(domain, name string, spec rules.Spec, revision int64) rules.Rule {
	return startTrial(rules.Rule{Domain: domain, Name: name, UID: rules.NewUID()}, rules.Version{Number: 1, Spec: spec}, revision)
}

// startTrial makes v the candidate, in shadow, with a cohort and counters of its own.
func startTrial(r rules.Rule, v rules.Version, revision int64) rules.Rule {
	r.Candidate, r.Percent, r.Salt, r.Epoch = &v, 0, rules.NewSalt(), revision
	return r
}

// Apply gives the rule a new spec; next is the number a new version gets. It reports false when nothing changes.
//
//   - The same as the candidate: nothing, or with another text a new version in its place, at once.
//   - The same as the stable: a candidate in shadow is dropped (the revert of a commit); another text is a new version in
//     the stable's place, at once.
//   - Anything else: the candidate in shadow, in place of one that was in shadow. A candidate that already binds for
//     some keys is not replaced.
func Apply(r rules.Rule, spec rules.Spec, next, revision int64) (rules.Rule, bool, error) {
	version := &rules.Version{Number: next, Spec: spec}
	switch {
	case r.Candidate != nil && spec.SameVerdicts(r.Candidate.Spec):
		if spec.Equal(r.Candidate.Spec) {
			return r, false, nil
		}
		r.Candidate = version
		return r, true, nil
	case r.Stage() == rules.StagePartial:
		return r, false, &rules.ConflictError{
			Rule: r.ID(), State: r.State(),
			Hint: "a candidate that already binds is not replaced; promote it to 100%, or roll it back, and apply again",
		}
	case r.Stable != nil && spec.SameVerdicts(r.Stable.Spec):
		sameText := spec.Equal(r.Stable.Spec)
		if sameText && r.Candidate == nil {
			return r, false, nil
		}
		if !sameText {
			r.Stable = version
		}
		return endTrial(r), true, nil
	}
	return startTrial(r, *version, revision), true, nil
}

func endTrial(r rules.Rule) rules.Rule {
	r.Candidate, r.Percent, r.Salt, r.Epoch = nil, 0, 0, 0
	return r
}

// Promote moves the candidate's percentage up or down; at 100 % the candidate becomes the stable. It reports false when
// the percentage is already there. A lowered percentage starts the what-if counters again.
func Promote(r rules.Rule, to rules.Percent, revision int64) (rules.Rule, bool, error) {
	if r.Candidate == nil {
		return r, false, &rules.ConflictError{
			Rule: r.ID(), State: r.State(), Hint: "there is no candidate to promote; apply a changed spec first",
		}
	}
	if to == r.Percent {
		return r, false, nil
	}
	if to == rules.AllKeys {
		r.Stable = r.Candidate
		return endTrial(r), true, nil
	}
	if to < r.Percent {
		r.Epoch = revision
	}
	r.Percent = to
	return r, true, nil
}

// Rollback undoes the last step that put a version in force, and needs no file:
//
//   - beside a stable, the candidate is dropped;
//   - a candidate without a stable goes back to shadow;
//   - a stable gives way to the version that was in force before it first was, passing over versions that were
//     themselves rolled back from; where there is none, it goes back to shadow.
//
// It reports false, with the reason, when there is nothing to undo. History is oldest first and ends with r.
func Rollback(r rules.Rule, history []Entry, revision int64) (after rules.Rule, changed bool, reason string) {
	if len(history) > 0 && history[len(history)-1].Action == ActionRollback {
		return r, false, "the last change was a rollback; to go back further name the version with --to"
	}
	switch {
	case r.Candidate != nil && r.Stable != nil:
		return endTrial(r), true, ""
	case r.Candidate != nil && r.Percent == 0:
		return r, false, fmt.Sprintf("v%d is in shadow and refuses nobody", r.Candidate.Number)
	case r.Candidate != nil:
		r.Percent, r.Epoch = 0, revision
		return r, true, ""
	}
	if before := inForceBefore(*r.Stable, history); before != nil {
		r.Stable = before
		return r, true, ""
	}
	back := *r.Stable
	r.Stable = nil
	return startTrial(r, back, revision), true, ""
}

// RollbackTo makes a version the stable from any state, and drops the candidate. It reports false when it is the stable
// already and nothing is being tried.
func RollbackTo(r rules.Rule, v rules.Version) (rules.Rule, bool) {
	if r.Candidate == nil && r.Stable != nil && r.Stable.Number == v.Number {
		return r, false
	}
	r.Stable = &v
	return endTrial(r), true
}

// stableOf finds a version that was in force before. Known are all the versions the rule has had. A version that never
// was in force is promoted, not rolled back to: a rollback must not be the first to let it loose.
func stableOf(number int64, history []Entry) (found *rules.Version, known []int64) {
	for _, e := range history {
		for _, v := range []*rules.Version{e.Rule.Stable, e.Rule.Candidate} {
			if v != nil && !slices.Contains(known, v.Number) {
				known = append(known, v.Number)
			}
		}
		if v := e.Rule.Stable; v != nil && v.Number == number {
			found = v
		}
	}
	slices.Sort(known)
	return found, known
}

// inForceBefore returns the stable version that v first replaced, passing over versions that were rolled back from.
func inForceBefore(v rules.Version, history []Entry) *rules.Version {
	withdrawn := map[int64]bool{}
	var stables []*rules.Version // in the order they came into force
	var previous *rules.Version
	for _, e := range history {
		stable := e.Rule.Stable
		back := e.Action == ActionRollback || e.Action == ActionRollbackTo
		if back && previous != nil && (stable == nil || stable.Number != previous.Number) {
			withdrawn[previous.Number] = true
		}
		if stable != nil && (previous == nil || stable.Number != previous.Number) {
			stables = append(stables, stable)
			delete(withdrawn, stable.Number) // somebody brought it back
		}
		previous = stable
	}
	first := len(stables)
	for i, s := range stables {
		if s.Number == v.Number {
			first = i
			break
		}
	}
	for i := first - 1; i >= 0; i-- {
		if s := stables[i]; !withdrawn[s.Number] && !s.Spec.SameVerdicts(v.Spec) {
			return s
		}
	}
	return nil
}
