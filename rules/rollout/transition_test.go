package rollout_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

func spec(amount int64) rules.Spec {
	return rules.Spec{Limits: []rules.Limit{{
		Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: amount, Window: time.Minute, Burst: amount},
	}}}
}

// described is the spec with another text.
func described(s rules.Spec, text string) rules.Spec {
	s.Description = text
	return s
}

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// life walks a rule through its life, keeping its history as a ledger would.
type life struct {
	t  *testing.T
	is rollout.Standing
}

func begin(t *testing.T) *life {
	t.Helper()
	return &life{t: t, is: rollout.Standing{Rule: rules.Rule{Domain: "d", Name: "r"}, Revision: 1, Now: noon}}
}

func actionOf(op rollout.Operation) rollout.Action {
	switch op.(type) {
	case rollout.Rollback:
		return rollout.ActionRollback
	case rollout.RollbackTo:
		return rollout.ActionRollbackTo
	case rollout.Restore:
		return rollout.ActionRollbackDomain
	case rollout.Delete:
		return rollout.ActionDelete
	case rollout.SetOverride:
		return rollout.ActionOverride
	}
	return rollout.ActionApply // no law tells the others apart
}

// try runs an operation, and keeps what it makes of the rule.
func (l *life) try(op rollout.Operation) (note string, err error) {
	after, note, err := rollout.Transition(l.is, op)
	if err == nil && note == "" {
		l.is.Rule = after
		l.is.History = append(l.is.History, rollout.Entry{Action: actionOf(op), Rule: after})
		for _, v := range []*rules.Version{after.Stable, after.Candidate} {
			if v != nil {
				l.is.Versions = max(l.is.Versions, v.Number)
			}
		}
	}
	l.is.Revision++
	return note, err
}

// do runs operations that change the rule, one after the other.
func (l *life) do(ops ...rollout.Operation) *life {
	l.t.Helper()
	for _, op := range ops {
		if note, err := l.try(op); err != nil || note != "" {
			l.t.Fatalf("%T of a rule that is %s: %q, %v", op, l.is.Rule.State(), note, err)
		}
	}
	return l
}

func (l *life) wants(state string) {
	l.t.Helper()
	if got := l.is.Rule.State(); got != state {
		l.t.Errorf("the rule is %s, want %s", got, state)
	}
}

func apply(amount int64) rollout.Apply { return rollout.Apply{Spec: spec(amount)} }

func promote(percent rules.Percent) rollout.Promote { return rollout.Promote{To: percent * 100} }

// The states of the table, each by a way that leads to it.
func states() map[string][]rollout.Operation {
	return map[string][]rollout.Operation{
		"nothing": nil,
		"shadow":  {apply(100)},
		"partial": {apply(100), promote(25)},
		"stable":  {apply(100), promote(100)},
		// v1 in force first, so that there is a way back.
		"stable v2":     {apply(100), promote(100), apply(50), promote(100)},
		"stable+shadow": {apply(100), promote(100), apply(50)},
		"stable+partial": {
			apply(100), promote(100), apply(50), promote(25),
		},
		"deleted":         {apply(100), promote(100), rollout.Delete{}},
		"deleted trial":   {apply(100), promote(25), rollout.Delete{}},
		"deleted partial": {apply(100), promote(100), apply(50), promote(25), rollout.Delete{}},
	}
}

// TestStateTable is the table of a rule's life, whole: each operation in each state.
func TestStateTable(t *testing.T) {
	t.Parallel()
	const (
		conflict = "conflict"
		missing  = "not found"
	)
	ops := map[string]rollout.Operation{
		"apply": apply(70), "replace": rollout.Apply{Spec: spec(70), Replace: true}, "enforce": rollout.Apply{Spec: spec(70), Enforce: true, Replace: true},
		"promote": promote(50), "promote all": promote(100), "abort": promote(0), "rollback": rollout.Rollback{}, "delete": rollout.Delete{},
		"pause": rollout.Pause{}, "resume": rollout.Resume{}, "back to v1": rollout.RollbackTo{Version: 1},
	}
	// What each leads to; a note begins with "=".
	for state, row := range map[string]map[string]string{
		"nothing": {
			"apply": "v1 in shadow with no stable version", "replace": "v1 in shadow with no stable version", "enforce": "v1 stable",
			"promote": missing, "promote all": missing, "abort": missing, "rollback": missing, "delete": missing, "pause": missing, "resume": missing,
			"back to v1": missing,
		},
		"shadow": {
			"apply": "v2 in shadow with no stable version", "replace": "v2 in shadow with no stable version", "enforce": "v2 stable",
			"promote": "v1 at 50% with no stable version", "promote all": "v1 stable", "abort": "=it is v1 in shadow", "rollback": "=v1 is in shadow and refuses nobody",
			"delete": "deleted", "pause": "v1 in shadow, paused, with no stable version", "resume": "=it is not paused", "back to v1": conflict,
		},
		"partial": {
			"apply": conflict, "replace": "v2 in shadow with no stable version", "enforce": "v2 stable",
			"promote": "v1 at 50% with no stable version", "promote all": "v1 stable", "abort": "v1 in shadow with no stable version",
			"rollback": "v1 in shadow with no stable version", "delete": "deleted", "pause": "v1 at 25%, paused, with no stable version",
			"resume": "=it is not paused", "back to v1": conflict,
		},
		"stable": {
			"apply": "v2 in shadow beside stable v1", "replace": "v2 in shadow beside stable v1", "enforce": "v2 stable",
			"promote": conflict, "promote all": conflict, "abort": conflict, "rollback": "v1 in shadow with no stable version", "delete": "deleted",
			"pause": conflict, "resume": conflict, "back to v1": "=it is v1 stable",
		},
		"stable v2": {
			"apply": "v3 in shadow beside stable v2", "replace": "v3 in shadow beside stable v2", "enforce": "v3 stable",
			"promote": conflict, "promote all": conflict, "abort": conflict, "rollback": "v1 stable", "delete": "deleted",
			"pause": conflict, "resume": conflict, "back to v1": "v1 stable",
		},
		"stable+shadow": {
			"apply": "v3 in shadow beside stable v1", "replace": "v3 in shadow beside stable v1", "enforce": "v3 stable",
			"promote": "v2 at 50% beside stable v1", "promote all": "v2 stable", "abort": "=it is v2 in shadow", "rollback": "v1 stable", "delete": "deleted",
			"pause": "v2 in shadow, paused, beside stable v1", "resume": "=it is not paused", "back to v1": "v1 stable",
		},
		"stable+partial": {
			"apply": conflict, "replace": "v3 in shadow beside stable v1", "enforce": "v3 stable",
			"promote": "v2 at 50% beside stable v1", "promote all": "v2 stable", "abort": "v2 in shadow beside stable v1", "rollback": "v1 stable", "delete": "deleted",
			"pause": "v2 at 25%, paused, beside stable v1", "resume": "=it is not paused", "back to v1": "v1 stable",
		},
		"deleted": {
			"apply": "v2 in shadow with no stable version", "replace": "v2 in shadow with no stable version", "enforce": "v2 stable",
			"promote": conflict, "promote all": conflict, "abort": conflict, "rollback": "v1 stable", "delete": "=it is deleted already",
			"pause": conflict, "resume": conflict, "back to v1": "v1 stable",
		},
		"deleted trial": {
			"apply": "v2 in shadow with no stable version", "replace": "v2 in shadow with no stable version", "enforce": "v2 stable",
			"promote": conflict, "promote all": conflict, "abort": conflict, "rollback": "v1 in shadow with no stable version", "delete": "=it is deleted already",
			"pause": conflict, "resume": conflict, "back to v1": conflict,
		},
		"deleted partial": {
			"apply": "v3 in shadow with no stable version", "replace": "v3 in shadow with no stable version", "enforce": "v3 stable",
			"promote": conflict, "promote all": conflict, "abort": conflict, "rollback": "v1 stable", "delete": "=it is deleted already",
			"pause": conflict, "resume": conflict, "back to v1": "v1 stable",
		},
	} {
		if len(row) != len(ops) {
			t.Errorf("%s: %d operations of %d", state, len(row), len(ops))
		}
		for name, want := range row {
			l := begin(t).do(states()[state]...)
			before := l.is.Rule
			note, err := l.try(ops[name])
			var refused *rules.ConflictError
			switch {
			case want == missing:
				if !errors.Is(err, rules.ErrNotFound) {
					t.Errorf("%s of %s: %v, want not found", name, state, err)
				}
			case want == conflict:
				if !errors.As(err, &refused) || refused.State != before.State() || refused.Hint == "" {
					t.Errorf("%s of %s: %v, want a conflict that says that it is %s, and what can be done", name, state, err, before.State())
				}
			case err != nil:
				t.Errorf("%s of %s: %v", name, state, err)
			case strings.HasPrefix(want, "="):
				if !strings.HasPrefix(note, want[1:]) {
					t.Errorf("%s of %s: the note is %q, want %q; it is %s", name, state, note, want[1:], l.is.Rule.State())
				}
			case note != "" || l.is.Rule.State() != want:
				t.Errorf("%s of %s: it is %s (%s), want %s", name, state, l.is.Rule.State(), note, want)
			}
		}
	}
}

func TestApplyOfWhatIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string
		spec  rules.Spec
		want  string
	}{
		"equal to the candidate":             {"shadow", spec(100), "v1 in shadow with no stable version"},
		"text of a candidate":                {"shadow", described(spec(100), "new"), "v2 in shadow with no stable version"},
		"text of a partial candidate":        {"partial", described(spec(100), "new"), "v2 at 25% with no stable version"},
		"text of the stable":                 {"stable", described(spec(100), "new"), "v2 stable"},
		"equal to the stable":                {"stable", spec(100), "v1 stable"},
		"text of the stable beside a shadow": {"stable+shadow", described(spec(100), "new"), "v3 stable"},
		"revert of a commit":                 {"stable+shadow", spec(100), "v1 stable"},
		"equal to a binding candidate":       {"stable+partial", spec(50), "v2 at 25% beside stable v1"},
	} {
		l := begin(t).do(states()[c.state]...)
		if _, err := l.try(rollout.Apply{Spec: c.spec}); err != nil || l.is.Rule.State() != c.want {
			t.Errorf("%s: it is %s, %v; want %s", name, l.is.Rule.State(), err, c.want)
		}
	}
}

func TestTextEditAndAbortKeepTheCohort(t *testing.T) {
	t.Parallel()
	l := begin(t).do(apply(100), promote(100), apply(50), promote(25))
	was := l.is.Rule
	l.do(rollout.Apply{Spec: described(spec(50), "new")})
	if r := l.is.Rule; r.Salt != was.Salt || r.Epoch != was.Epoch || r.Percent != was.Percent {
		t.Errorf("a text edit changed salt, epoch or percentage: %+v, was %+v", r, was)
	}
	l.do(promote(0))
	if r := l.is.Rule; r.Salt != was.Salt || r.Epoch == was.Epoch {
		t.Errorf("after an abort the salt is kept and the what-if counters start again: %+v, was %+v", r, was)
	}
	l.do(apply(70))
	if l.is.Rule.Salt == was.Salt {
		t.Error("another candidate has the cohort of the one before")
	}
}

func TestWhatIfCountersStartAgainWhenThePercentageIsLowered(t *testing.T) {
	t.Parallel()
	l := begin(t).do(apply(100))
	first := l.is.Rule.Epoch
	if l.do(promote(25)); l.is.Rule.Epoch != first {
		t.Error("raising started the what-if counters again")
	}
	if l.do(promote(10)); l.is.Rule.Epoch == first {
		t.Error("lowering kept the what-if counters")
	}
}

func TestPausedCandidateOnlyGoesBack(t *testing.T) {
	t.Parallel()
	l := begin(t).do(apply(100), promote(25), rollout.Pause{})
	if _, err := l.try(promote(50)); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("promoted while paused: %v", err)
	}
	l.do(promote(10))
	l.wants("v1 at 10%, paused, with no stable version")
	l.do(rollout.Resume{}, promote(50), rollout.Pause{}, promote(0))
	l.wants("v1 in shadow with no stable version")
}

// A pipeline that applies its files once more must not undo the rollback of the night.
func TestSpecThatWasRolledBackFromIsTakenOnlyWithAgain(t *testing.T) {
	t.Parallel()
	for name, ops := range map[string][]rollout.Operation{
		"stable":            {apply(100), promote(100), apply(50), promote(100), rollout.Rollback{}},
		"partial candidate": {apply(100), promote(100), apply(50), promote(25), rollout.Rollback{}},
		"named version":     {apply(100), promote(100), apply(50), promote(100), rollout.RollbackTo{Version: 1}},
		"long ago":          {apply(100), promote(100), apply(50), promote(100), rollout.Rollback{}, apply(70), promote(100)},
		"then deleted":      {apply(100), promote(100), apply(50), promote(100), rollout.Rollback{}, rollout.Delete{}},
	} {
		l := begin(t).do(ops...)
		_, err := l.try(rollout.Apply{Spec: described(spec(50), "text does not count")})
		var guard *rules.GuardError
		if !errors.As(err, &guard) || !strings.Contains(guard.Way, "--again") {
			t.Errorf("%s: %v, want a guard that names --again", name, err)
		}
		if _, err := l.try(rollout.Apply{Spec: spec(50), Again: true}); err != nil || l.is.Rule.Candidate == nil {
			t.Errorf("%s: with --again: %v, it is %s", name, err, l.is.Rule.State())
		}
	}
}

func TestSpecThatWasBroughtBackIsNotGuarded(t *testing.T) {
	t.Parallel()
	l := begin(t).do(apply(100), promote(100), apply(50), promote(100), rollout.Rollback{}, rollout.RollbackTo{Version: 2}, apply(70), promote(100), apply(50))
	l.wants("v4 in shadow beside stable v3")
}

func TestTenfoldChangeIsQuestioned(t *testing.T) {
	t.Parallel()
	for amount, guarded := range map[int64]bool{10: true, 11: false, 999: false, 1000: true} {
		l := begin(t).do(apply(100), promote(100))
		_, err := l.try(apply(amount))
		if got := errors.Is(err, rules.ErrGuarded); got != guarded {
			t.Errorf("from 100 to %d: %v, want guarded %v", amount, err, guarded)
		}
		if _, err := l.try(rollout.Apply{Spec: spec(amount), Confirmed: true}); err != nil {
			t.Errorf("from 100 to %d, confirmed: %v", amount, err)
		}
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	stable := func(amount int64) []rollout.Operation { return []rollout.Operation{apply(amount), promote(100)} }
	for name, c := range map[string]struct {
		ops  []rollout.Operation
		want string
		note string
	}{
		"twice": {
			slices.Concat(stable(100), stable(50), []rollout.Operation{rollout.Rollback{}}), "v1 stable",
			"the last change was a rollback; to go back further name the version with --to",
		},
		"an override between is no step": {
			slices.Concat(stable(100), stable(50), []rollout.Operation{rollout.Rollback{}, rollout.SetOverride{Override: override(1, 200, noon.Add(time.Hour))}}),
			"v1 stable", "the last change was a rollback; to go back further name the version with --to",
		},
		"right after a named version": {
			slices.Concat(stable(100), stable(50), []rollout.Operation{rollout.RollbackTo{Version: 1}}), "v1 stable",
			"the last change was a rollback; to go back further name the version with --to",
		},
		"passes over a withdrawn version": {
			slices.Concat(stable(100), stable(50), []rollout.Operation{rollout.Rollback{}}, stable(70)), "v1 stable", "",
		},
		"passes over the like of a withdrawn version": {
			slices.Concat(stable(100), stable(50), []rollout.Operation{
				rollout.Apply{Spec: described(spec(50), "new")}, rollout.Rollback{}, rollout.Apply{Spec: described(spec(100), "new")},
			}), "v4 in shadow with no stable version", "",
		},
		"a version that was brought back counts again": {
			slices.Concat(stable(100), stable(50), []rollout.Operation{rollout.Rollback{}, rollout.RollbackTo{Version: 2}}, stable(70)), "v2 stable", "",
		},
		"passes over text": {
			slices.Concat(stable(100), stable(50), []rollout.Operation{rollout.Apply{Spec: described(spec(50), "new")}}), "v1 stable", "",
		},
		"enforced at once": {[]rollout.Operation{apply(100), promote(100), rollout.Apply{Spec: spec(50), Enforce: true}}, "v1 stable", ""},
	} {
		l := begin(t).do(c.ops...)
		note, err := l.try(rollout.Rollback{})
		if err != nil || note != c.note || l.is.Rule.State() != c.want {
			t.Errorf("%s: it is %s (%q, %v), want %s (%q)", name, l.is.Rule.State(), note, err, c.want, c.note)
		}
	}
}

func TestRollbackToNeverLetsAVersionLoose(t *testing.T) {
	t.Parallel()
	l := begin(t).do(apply(100), promote(100), apply(50), apply(70))
	if _, err := l.try(rollout.RollbackTo{Version: 2}); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("back to a version that never was in force: %v", err)
	}
	if _, err := l.try(rollout.RollbackTo{Version: 9}); !errors.Is(err, rules.ErrNotFound) || !strings.Contains(err.Error(), "v1 to v3") {
		t.Errorf("back to a version that never was: %v", err)
	}
}

// A deleted rule that comes back, one way or the other, is the same rule: its counters and its numbers go on.
func TestRuleKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	l := begin(t).do(apply(100), promote(100))
	uid := l.is.Rule.UID
	l.do(rollout.Delete{}, rollout.Rollback{})
	l.wants("v1 stable")
	l.do(rollout.Delete{}, apply(50))
	l.wants("v2 in shadow with no stable version")
	if uid == "" || l.is.Rule.UID != uid {
		t.Errorf("the uid is %q, was %q", l.is.Rule.UID, uid)
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	// Revisions: 1 v1 in shadow, 2 v1 stable, 3 v2 in shadow, 4 v2 stable, 5 deleted, 6 v2 stable again, 7 v3 in shadow, 8 v3 at 25 %.
	ops := []rollout.Operation{
		apply(100), promote(100), apply(50), promote(100), rollout.Delete{}, rollout.Rollback{}, apply(70), promote(25),
	}
	for at, want := range map[int64]string{
		0: "v3 in shadow with no stable version", 1: "v3 in shadow with no stable version", 2: "v1 stable", 3: "v1 stable", 4: "v2 stable",
		5: "v3 in shadow with no stable version", 6: "v2 stable", 8: "v2 stable",
	} {
		l := begin(t).do(ops...)
		var was rules.Rule
		if at > 0 {
			was = l.is.History[at-1].Rule
		}
		if note, err := l.try(rollout.Restore{Was: was}); err != nil || l.is.Rule.State() != want {
			t.Errorf("at %d: it is %s (%q, %v), want %s", at, l.is.Rule.State(), note, err, want)
		}
		if note, err := l.try(rollout.Restore{Was: was}); err != nil || note == "" {
			t.Errorf("at %d, twice: %v, it is %s", at, err, l.is.Rule.State())
		}
	}
}

func override(key byte, amount int64, until time.Time) rules.Override {
	return rules.Override{Key: rules.OverrideKey{key}, Rate: rules.Rate{Amount: amount, Window: time.Minute, Burst: amount}, Until: until}
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	l := begin(t).do(apply(100), promote(100))
	hour := noon.Add(time.Hour)
	l.do(rollout.SetOverride{Override: override(1, 200, hour)}, rollout.SetOverride{Override: override(2, 300, hour.Add(time.Hour))})
	l.do(rollout.SetOverride{Override: override(1, 250, hour)})
	if got := l.is.Rule.Overrides; len(got) != 2 || got[0].Rate.Amount != 250 || got[1].Rate.Amount != 300 {
		t.Errorf("overrides %+v", got)
	}
	if _, err := l.try(rollout.SetOverride{Override: override(3, 5000, hour)}); !errors.Is(err, rules.ErrGuarded) {
		t.Errorf("fifty times the limit: %v, want it questioned", err)
	}
	if _, err := l.try(rollout.SetOverride{Override: override(3, 200, noon)}); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("an override that is over: %v", err)
	}
	l.is.Now = hour
	if note, err := l.try(rollout.DeleteOverride{Key: rules.OverrideKey{1}}); err != nil || note == "" {
		t.Errorf("deleting one that has ended: %q, %v", note, err)
	}
	l.do(apply(50))
	if got := l.is.Rule.Overrides; len(got) != 1 || got[0].Key[0] != 2 {
		t.Errorf("after one has ended, the next change leaves %+v", got)
	}
	l.do(rollout.Delete{})
	if len(l.is.Rule.Overrides) != 0 {
		t.Error("a deleted rule has overrides")
	}
	l.do(rollout.Rollback{})
	if len(l.is.Rule.Overrides) != 1 {
		t.Error("a restored rule has lost its overrides")
	}
}

func TestOverridesAreBounded(t *testing.T) {
	t.Parallel()
	l := begin(t).do(apply(100))
	for i := range rules.MaxOverrides {
		l.do(rollout.SetOverride{Override: override(byte(i), 200, noon.Add(time.Hour))})
	}
	if _, err := l.try(rollout.SetOverride{Override: override(255, 200, noon.Add(time.Hour))}); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("one more: %v, want a conflict", err)
	}
}
