package rollout_test

import (
	"errors"
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

// life walks a rule through its life, keeping its history as a ledger would.
type life struct {
	t        *testing.T
	rule     rules.Rule
	history  []rollout.Entry
	versions int64
	revision int64
}

func begin(t *testing.T, amount int64) *life {
	t.Helper()
	l := &life{t: t, versions: 1, revision: 1}
	l.keep(rollout.ActionApply, rollout.Create("d", "r", spec(amount), 1))
	return l
}

func (l *life) keep(action rollout.Action, r rules.Rule) {
	r.Revision = l.revision
	l.rule = r
	l.history = append(l.history, rollout.Entry{Action: action, Rule: r})
}

func (l *life) apply(s rules.Spec) error {
	l.t.Helper()
	l.revision++
	next, changed, err := rollout.Apply(l.rule, s, l.versions+1, l.revision)
	if err != nil || !changed {
		return err
	}
	if newest(next) > l.versions {
		l.versions++
	}
	l.keep(rollout.ActionApply, next)
	return nil
}

func newest(r rules.Rule) (n int64) {
	for _, v := range []*rules.Version{r.Stable, r.Candidate} {
		if v != nil {
			n = max(n, v.Number)
		}
	}
	return n
}

func (l *life) promote(to rules.Percent) {
	l.t.Helper()
	l.revision++
	next, changed, err := rollout.Promote(l.rule, to, l.revision)
	if err != nil {
		l.t.Fatal(err)
	}
	if changed {
		l.keep(rollout.ActionPromote, next)
	}
}

func (l *life) rollback() string {
	l.t.Helper()
	l.revision++
	next, changed, reason := rollout.Rollback(l.rule, l.history, l.revision)
	if changed {
		l.keep(rollout.ActionRollback, next)
	}
	return reason
}

func (l *life) rollbackTo(number int64) {
	l.t.Helper()
	l.revision++
	for _, e := range l.history {
		if v := e.Rule.Stable; v != nil && v.Number == number {
			next, _ := rollout.RollbackTo(l.rule, *v)
			l.keep(rollout.ActionRollbackTo, next)
			return
		}
	}
	l.t.Fatalf("v%d was never in force", number)
}

func (l *life) is(want string) {
	l.t.Helper()
	if got := l.rule.State(); got != want {
		l.t.Errorf("the rule is %s, want %s", got, want)
	}
}

func TestLifeOfARule(t *testing.T) {
	t.Parallel()
	l := begin(t, 100)
	l.is("v1 in shadow with no stable version")
	l.promote(2500)
	l.is("v1 at 25% with no stable version")
	l.promote(rules.AllKeys)
	l.is("v1 stable")
	if err := l.apply(spec(50)); err != nil {
		t.Fatal(err)
	}
	l.is("v2 in shadow beside stable v1")
	l.promote(1000)
	l.is("v2 at 10% beside stable v1")
	l.promote(0)
	l.is("v2 in shadow beside stable v1")
	l.promote(rules.AllKeys)
	l.is("v2 stable")
}

func TestApply(t *testing.T) {
	t.Parallel()
	text := spec(100)
	text.Description = "now with a description"
	for name, c := range map[string]struct {
		prepare func(*life)
		spec    rules.Spec
		want    string
	}{
		"equal to the candidate":              {func(*life) {}, spec(100), "v1 in shadow with no stable version"},
		"candidate in shadow is replaced":     {func(*life) {}, spec(50), "v2 in shadow with no stable version"},
		"text of a candidate":                 {func(*life) {}, text, "v2 in shadow with no stable version"},
		"text of a partial candidate":         {func(l *life) { l.promote(100) }, text, "v2 at 1% with no stable version"},
		"text of the stable":                  {func(l *life) { l.promote(rules.AllKeys) }, text, "v2 stable"},
		"equal to the stable":                 {func(l *life) { l.promote(rules.AllKeys) }, spec(100), "v1 stable"},
		"text of the stable beside a shadow":  {func(l *life) { l.promote(rules.AllKeys); _ = l.apply(spec(50)) }, text, "v3 stable"},
		"equal to the stable drops the trial": {func(l *life) { l.promote(rules.AllKeys); _ = l.apply(spec(50)) }, spec(100), "v1 stable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := begin(t, 100)
			c.prepare(l)
			if err := l.apply(c.spec); err != nil {
				t.Fatal(err)
			}
			l.is(c.want)
		})
	}
}

func TestApplyRefusesToReplaceABindingCandidate(t *testing.T) {
	t.Parallel()
	l := begin(t, 100)
	l.promote(100)
	err := l.apply(spec(50))
	var conflict *rules.ConflictError
	if !errors.Is(err, rules.ErrConflict) || !errors.As(err, &conflict) || conflict.State != "v1 at 1% with no stable version" {
		t.Errorf("got %v, want a conflict that says where the rule is", err)
	}
}

func TestTextEditKeepsTheTrial(t *testing.T) {
	t.Parallel()
	l := begin(t, 100)
	l.promote(100)
	was := l.rule
	text := spec(100)
	text.Owner = "team-x"
	if err := l.apply(text); err != nil {
		t.Fatal(err)
	}
	if l.rule.Salt != was.Salt || l.rule.Epoch != was.Epoch || l.rule.Percent != was.Percent {
		t.Errorf("salt, epoch or percentage changed: %+v, was %+v", l.rule, was)
	}
}

func TestWhatIfCountersStartAgainWhenThePercentageIsLowered(t *testing.T) {
	t.Parallel()
	l := begin(t, 100)
	first := l.rule.Epoch
	l.promote(2500)
	if l.rule.Epoch != first {
		t.Error("raising started the what-if counters again")
	}
	l.promote(1000)
	if l.rule.Epoch == first {
		t.Error("lowering kept the what-if counters")
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	// stable brings a new spec into force.
	stable := func(l *life, amount int64) {
		if err := l.apply(spec(amount)); err != nil {
			l.t.Fatal(err)
		}
		l.promote(rules.AllKeys)
	}
	for name, c := range map[string]struct {
		prepare func(*life)
		want    string
		reason  string
	}{
		"shadow, no stable":  {func(*life) {}, "v1 in shadow with no stable version", "v1 is in shadow and refuses nobody"},
		"partial, no stable": {func(l *life) { l.promote(100) }, "v1 in shadow with no stable version", ""},
		"only one version":   {func(l *life) { l.promote(rules.AllKeys) }, "v1 in shadow with no stable version", ""},
		"two versions":       {func(l *life) { l.promote(rules.AllKeys); stable(l, 50) }, "v1 stable", ""},
		"shadow beside":      {func(l *life) { l.promote(rules.AllKeys); _ = l.apply(spec(50)) }, "v1 stable", ""},
		"partial beside":     {func(l *life) { l.promote(rules.AllKeys); _ = l.apply(spec(50)); l.promote(100) }, "v1 stable", ""},
		"twice":              {func(l *life) { l.promote(rules.AllKeys); stable(l, 50); l.rollback() }, "v1 stable", "the last change was a rollback; to go back further name the version with --to"},
		"passes over a withdrawn one": {func(l *life) {
			l.promote(rules.AllKeys)
			stable(l, 50)
			l.rollback() // from v2 to v1
			stable(l, 70)
		}, "v1 stable", ""},
		"a version that was brought back counts again": {func(l *life) {
			l.promote(rules.AllKeys)
			stable(l, 50)
			l.rollback()    // from v2 to v1
			l.rollbackTo(2) // that was wrong
			stable(l, 70)
		}, "v2 stable", ""},
		"after a named version": {func(l *life) { l.promote(rules.AllKeys); l.rollback(); l.rollbackTo(1) }, "v1 in shadow with no stable version", ""},
		"passes over text": {func(l *life) {
			l.promote(rules.AllKeys)
			stable(l, 50)
			text := spec(50)
			text.Description = "explained"
			_ = l.apply(text)
		}, "v1 stable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := begin(t, 100)
			c.prepare(l)
			if reason := l.rollback(); reason != c.reason {
				t.Errorf("reason %q, want %q", reason, c.reason)
			}
			l.is(c.want)
		})
	}
}

func TestRollbackToAVersionFromAnyState(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*life){
		"stable":         func(l *life) { l.promote(rules.AllKeys); _ = l.apply(spec(50)); l.promote(rules.AllKeys) },
		"partial beside": func(l *life) { l.promote(rules.AllKeys); _ = l.apply(spec(50)); l.promote(100) },
		"no stable":      func(l *life) { _ = l.apply(spec(50)); l.promote(100) },
		"rolled back":    func(l *life) { l.promote(rules.AllKeys); l.rollback() },
	} {
		l := begin(t, 100)
		prepare(l)
		next, changed := rollout.RollbackTo(l.rule, rules.Version{Number: 1, Spec: spec(100)})
		if !changed || next.State() != "v1 stable" {
			t.Errorf("%s: got %s (changed %v), want v1 stable", name, next.State(), changed)
		}
		if again, changed := rollout.RollbackTo(next, rules.Version{Number: 1, Spec: spec(100)}); changed {
			t.Errorf("%s: a second time changes it to %s", name, again.State())
		}
	}
}
