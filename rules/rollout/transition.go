package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
)

// Standing is a rule before a transition, and what the transition may know.
type Standing struct {
	Rule     rules.Rule // of a rule that never was only its domain and name
	Versions int64      // how many it has had
	// History is what each revision made of it, oldest first. [Apply] needs it only of a rule that was rolled back.
	History  []Entry
	Revision int64 // the number the transition will have
	Now      time.Time
}

// Operation is what can be done to a rule: one of [Apply], [Promote], [StartPlan], [Advance], [Trip], [Pause], [Resume],
// [Delete], [Rollback], [RollbackTo], [Restore], [SetOverride] and [DeleteOverride].
type Operation interface {
	// on returns the rule as it will stand. Where nothing changes it returns the rule as it is, and why.
	on(s *Standing) (after rules.Rule, note string, err error)
}

// Transition is the table of a rule's life: what becomes of a rule when something is done to it. It is pure. A note says
// that nothing changes, and why. Each refusal says where the rule stands and what can be done: it is a
// [rules.ConflictError], a [rules.GuardError], a [rules.ErrInvalid] or a [rules.ErrNotFound].
func Transition(s Standing, op Operation) (after rules.Rule, note string, err error) {
	after, note, err = op.on(&s)
	if err != nil || note != "" {
		return s.Rule, note, err
	}
	after.Revision, after.Overrides = s.Revision, unexpired(after.Overrides, s.Now)
	return after, "", nil
}

// unexpired returns the overrides that still hold. Nothing is done when one expires; the next change of the rule leaves
// it out.
func unexpired(list []rules.Override, now time.Time) []rules.Override {
	return slices.DeleteFunc(slices.Clone(list), func(o rules.Override) bool { return !now.Before(o.Until) })
}

func (s *Standing) conflict(hint string) error {
	return &rules.ConflictError{Rule: s.Rule.ID(), State: s.Rule.State(), Hint: hint}
}

// exists refuses what cannot be done to a rule that is deleted, or never was.
func (s *Standing) exists() error {
	switch {
	case s.Rule.UID == "":
		return fmt.Errorf("rule %s: %w", s.Rule.ID(), rules.ErrNotFound)
	case s.Rule.Deleted():
		return s.conflict("rollback restores it; apply tries a new version of it")
	}
	return nil
}

// next is the number of the rule's next version: numbers are never used again.
func (s *Standing) next() int64 { return s.Versions + 1 }

// versions returns all that states of the history hold, each once, in the order in which they came.
func versions(history []Entry) []*rules.Version {
	var list []*rules.Version
	for i := range history {
		for _, v := range held(&history[i].Rule) {
			if !slices.ContainsFunc(list, func(o *rules.Version) bool { return o.Number == v.Number }) {
				list = append(list, v)
			}
		}
	}
	return list
}

// held are the versions that a rule has now.
func held(r *rules.Rule) []*rules.Version {
	return slices.DeleteFunc([]*rules.Version{r.Stable, r.Candidate}, func(v *rules.Version) bool { return v == nil })
}

// startTrial makes v the candidate, in shadow, with a cohort and counters of its own.
func startTrial(r rules.Rule, v *rules.Version, revision int64) rules.Rule {
	r.Candidate, r.Percent, r.Salt, r.Epoch, r.Paused, r.Course = v, 0, rules.NewSalt(), revision, false, nil
	return r
}

func endTrial(r rules.Rule) rules.Rule {
	r.Candidate, r.Percent, r.Salt, r.Epoch, r.Paused, r.Course = nil, 0, 0, 0, false, nil
	return r
}

// Apply gives the rule a spec.
//
//   - The same as the candidate: nothing, or with another text a new version in its place, at once.
//   - The same as the stable: a candidate in shadow is dropped (the revert of a commit); another text is a new version in
//     the stable's place, at once.
//   - Anything else: the candidate in shadow, in place of one that was in shadow. A candidate that already binds for
//     some keys is replaced only with Replace.
//
// Texts aside, a spec that was rolled back from is taken only with Again: a pipeline that applies its files once more
// must not undo what somebody did at night.
type Apply struct {
	Spec      rules.Spec
	Replace   bool // also a candidate that already binds
	Again     bool // also a spec that was rolled back from
	Enforce   bool // make it the stable at once, without shadow
	Confirmed bool // also a limit that becomes ten times larger or smaller, or more
}

func (op Apply) on(s *Standing) (rules.Rule, string, error) {
	r := s.Rule
	if r.UID == "" {
		r.UID = rules.NewUID()
	}
	is := func(v *rules.Version) bool { return v != nil && op.Spec.SameVerdicts(v.Spec) }
	switch {
	case is(r.Candidate):
		return op.onCandidate(s, r)
	case s.Rule.Stage() == rules.StagePartial && !op.Replace:
		return r, "", s.conflict("a candidate that already binds is not replaced; promote it to 100%, roll it back, or apply with --replace")
	case is(r.Stable):
		return op.onStable(s, r)
	}
	if err := op.guard(s); err != nil {
		return r, "", err
	}
	fresh := &rules.Version{Number: s.next(), Spec: op.Spec}
	if op.Enforce {
		r.Stable = fresh
		return endTrial(r), "", nil
	}
	return startTrial(r, fresh, s.Revision), "", nil
}

func (op Apply) onCandidate(s *Standing, r rules.Rule) (rules.Rule, string, error) {
	sameText := op.Spec.Equal(r.Candidate.Spec)
	if sameText && !op.Enforce {
		return r, "the candidate already says this", nil
	}
	if op.Enforce {
		if err := op.guard(s); err != nil {
			return r, "", err
		}
	}
	if !sameText {
		r.Candidate = &rules.Version{Number: s.next(), Spec: op.Spec}
	}
	if op.Enforce {
		r.Stable = r.Candidate
		return endTrial(r), "", nil
	}
	r.Course = s.again(r.Course) // evidence is of a version
	return r, "", nil
}

func (op Apply) onStable(s *Standing, r rules.Rule) (rules.Rule, string, error) {
	sameText := op.Spec.Equal(r.Stable.Spec)
	if sameText && r.Candidate == nil {
		return r, "the stable already says this", nil
	}
	if !sameText {
		r.Stable = &rules.Version{Number: s.next(), Spec: op.Spec}
	}
	return endTrial(r), "", nil
}

// guard holds what was rolled back from, and a limit that changes tenfold.
func (op Apply) guard(s *Standing) error {
	withdrawn, _ := withdrawals(s.History)
	if v := withdrawn[op.Spec.Verdicts()]; v != nil && !op.Again {
		return &rules.GuardError{
			Rule:   s.Rule.ID(),
			Danger: fmt.Sprintf("this is v%d again, which was rolled back from", v.Number),
			Way:    "change the file, or apply with --again when it is meant",
		}
	}
	from := cmp.Or(s.Rule.Stable, s.Rule.Candidate)
	if from == nil || op.Confirmed {
		return nil
	}
	return tenfold(s.Rule.ID(), &from.Spec, &op.Spec)
}

// tenfold holds a limit that becomes ten times larger or smaller, or more: mostly a digit too many, or one that is lost.
func tenfold(rule string, from, to *rules.Spec) error {
	problems := rules.CompareLimits(from, to)
	if len(problems) == 0 {
		return nil
	}
	return &rules.GuardError{
		Rule: rule, Danger: problems[0].Path + ": " + problems[0].Message, Way: "mend the number, or say --yes when it is meant",
	}
}

// withdrawals returns the versions that were rolled back from and not brought back since, by what their verdicts depend
// on: a version that differs only in text is withdrawn, and brought back, with its like. Verdicts holds those of all
// versions, by number.
//
// A rollback withdraws what binds for fewer keys after it, also where it stays as a candidate in shadow. What binds for
// more keys, or is tried anew, was brought back by somebody who meant it.
func withdrawals(history []Entry) (withdrawn map[string]*rules.Version, verdicts map[int64]string) {
	withdrawn, verdicts = map[string]*rules.Version{}, map[int64]string{}
	for _, v := range versions(history) {
		verdicts[v.Number] = v.Spec.Verdicts()
	}
	var before rules.Rule
	for i := range history {
		now := history[i].Rule
		was, is := reach(&before, verdicts), reach(&now, verdicts)
		if history[i].Action.isRollback() {
			for _, v := range held(&before) {
				if says := verdicts[v.Number]; is[says] < was[says] {
					withdrawn[says] = v
				}
			}
		}
		for says, share := range is {
			if share > was[says] && (share > inShadow || !history[i].Action.isRollback()) {
				delete(withdrawn, says)
			}
		}
		before = now
	}
	return withdrawn, verdicts
}

// reach is how far what a rule's versions say goes: nowhere (0) when none of them says it, into shadow, to a percentage,
// or to all keys.
func reach(r *rules.Rule, verdicts map[int64]string) map[string]int {
	m := map[string]int{}
	if r.Candidate != nil {
		m[verdicts[r.Candidate.Number]] = inShadow + int(r.Percent)
	}
	if r.Stable != nil {
		m[verdicts[r.Stable.Number]] = inShadow + int(rules.AllKeys)
	}
	return m
}

const inShadow = 1

func (a Action) isRollback() bool { return slices.Contains(Rollbacks(), string(a)) }

// Rollbacks are the actions that roll a rule back.
func Rollbacks() []string {
	return []string{string(ActionRollback), string(ActionRollbackTo), string(ActionRollbackDomain)}
}
