package rollout_test

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// The model says what becomes of a rule, from the words of the design alone. It is told what was done and which revision
// that was; it never looks at the rule. What no words decide it leaves free.

// saying is a spec, as far as the laws care: verdicts and text.
type saying struct{ verdicts, text int }

type modelVersion struct {
	number int64
	saying
}

func (v *modelVersion) says(s saying) bool { return v != nil && v.verdicts == s.verdicts }

func (v *modelVersion) no() int64 {
	if v == nil {
		return 0
	}
	return v.number
}

// modelState is what a rule is at one revision.
type modelState struct {
	stable, candidate *modelVersion
	percent           rules.Percent
	paused            bool
	overrides         map[string]modelOverride // by the value of the key

	// What the design leaves open. orCandidate may stand in place of candidate.
	freeOverrides bool
	orCandidate   *modelVersion
}

type modelOverride struct {
	amount int64
	until  time.Time
}

func (s *modelState) deleted() bool { return s.stable == nil && s.candidate == nil }

func (s *modelState) partial() bool { return s.candidate != nil && s.percent > 0 }

// inForce decides for most keys.
func (s *modelState) inForce() *modelVersion {
	if s.stable != nil {
		return s.stable
	}
	return s.candidate
}

// binds are the verdicts that refuse somebody.
func (s *modelState) binds() map[int]bool {
	m := map[int]bool{}
	if s.stable != nil {
		m[s.stable.verdicts] = true
	}
	if s.partial() {
		m[s.candidate.verdicts] = true
	}
	return m
}

func (s *modelState) drop() { s.candidate, s.percent, s.paused = nil, 0, false }

func (s *modelState) toShadow(v *modelVersion) {
	s.stable, s.candidate, s.percent, s.paused = nil, v, 0, false
}

func (s *modelState) differs(o *modelState, now time.Time) bool {
	return s.stable.no() != o.stable.no() || s.candidate.no() != o.candidate.no() || s.percent != o.percent ||
		s.paused != o.paused || !maps.Equal(unexpired(s.overrides, now), unexpired(o.overrides, now))
}

func unexpired(all map[string]modelOverride, now time.Time) map[string]modelOverride {
	left := maps.Clone(all)
	maps.DeleteFunc(left, func(_ string, o modelOverride) bool { return !now.Before(o.until) })
	return left
}

// modelRule is a rule with its life so far; the zero value is one that never was.
type modelRule struct {
	modelState

	versions  []*modelVersion // v1, v2, …
	reigns    []*modelVersion // the stables, in the order in which they came into force
	withdrawn map[int]bool    // verdicts that were rolled back from, and not put in force since, nor applied with --again
	last      rollout.Action
	touched   int64
	past      map[int64]modelState // by revision
}

// A move is what the model expects of an operation on a rule: a new state, or a refusal of one of some kinds. A state
// that does not differ means that nothing changes.
type move struct {
	to       modelState
	versions []*modelVersion
	again    int // verdicts that --again lets in, plus one
	refused  []error
}

func (r *modelRule) stay() move { return move{to: r.modelState, versions: r.versions} }

func (r *modelRule) refuse(kinds ...error) move {
	m := r.stay()
	m.refused = kinds
	return m
}

// gone refuses what needs a rule that is there.
func (r *modelRule) gone() (move, bool) {
	switch {
	case r.versions == nil:
		return r.refuse(rules.ErrNotFound), true
	case r.deleted():
		return r.refuse(rules.ErrConflict), true
	}
	return move{}, false
}

func (m *move) version(s saying) *modelVersion {
	v := &modelVersion{number: int64(len(m.versions)) + 1, saying: s}
	m.versions = append(slices.Clip(m.versions), v)
	return v
}

func (r *modelRule) apply(s saying, p *rollout.Proposal) move {
	m := r.stay()
	fresh := !r.candidate.says(s) || p.Enforce // and so something new that binds, or is tried
	guarded := func() bool {
		return fresh && (r.withdrawn[s.verdicts] && !p.Again ||
			r.inForce() != nil && !p.Confirmed && tenfold(amounts[r.inForce().verdicts], amounts[s.verdicts]))
	}
	if p.Again && fresh {
		m.again = s.verdicts + 1
	}
	switch {
	case r.candidate.says(s):
		if guarded() {
			return r.refuse(rules.ErrGuarded)
		}
		if r.candidate.text != s.text {
			m.to.candidate = m.version(s)
		}
		if p.Enforce {
			m.to.stable = m.to.candidate
			m.to.drop()
		}
		return m
	case r.partial() && !p.Replace:
		return r.refuse(rules.ErrConflict)
	case r.stable.says(s):
		if r.stable.text != s.text {
			m.to.stable = m.version(s)
		}
		m.to.drop()
		return m
	case guarded():
		return r.refuse(rules.ErrGuarded)
	}
	v := m.version(s)
	m.to.drop()
	if p.Enforce {
		m.to.stable = v
	} else {
		m.to.candidate = v
	}
	return m
}

func tenfold(a, b int64) bool { return a >= 10*b || b >= 10*a }

func (r *modelRule) promote(to rules.Percent) move {
	if m, gone := r.gone(); gone {
		return m
	}
	m := r.stay()
	switch {
	case r.candidate == nil, r.paused && to > r.percent:
		return r.refuse(rules.ErrConflict)
	case to == rules.AllKeys:
		m.to.stable = r.candidate
		m.to.drop()
	case to != r.percent:
		m.to.percent, m.to.paused = to, r.paused && to > 0
	}
	return m
}

func (r *modelRule) pause(paused bool) move {
	if m, gone := r.gone(); gone {
		return m
	}
	if r.candidate == nil {
		return r.refuse(rules.ErrConflict)
	}
	m := r.stay()
	m.to.paused = paused
	return m
}

func (r *modelRule) remove() move {
	if r.versions == nil {
		return r.refuse(rules.ErrNotFound)
	}
	m := r.stay()
	m.to.stable, m.to.overrides = nil, nil
	m.to.drop()
	return m
}

func (r *modelRule) rolledBackLast() bool {
	return slices.Contains([]rollout.Action{rollout.ActionRollback, rollout.ActionRollbackTo, rollout.ActionRollbackDomain}, r.last)
}

func (r *modelRule) rollback() move {
	m := r.stay()
	switch {
	case r.versions == nil:
		return r.refuse(rules.ErrNotFound)
	case r.rolledBackLast():
	case r.deleted():
		m.to = r.restored(r.at(r.touched - 1))
		m.to.freeOverrides = true
	case r.candidate != nil && r.stable != nil:
		m.to.drop()
	case r.candidate != nil && r.percent > 0:
		m.to.toShadow(r.candidate)
	case r.candidate != nil:
	default:
		if m.to.stable = r.before(r.stable); m.to.stable == nil {
			m.to.toShadow(r.stable)
		}
	}
	return m
}

// restored is a deleted rule as it was: its stable, or else its candidate in shadow.
func (r *modelRule) restored(was modelState) modelState {
	if was.candidate == nil || was.stable != nil {
		was.drop()
		return was
	}
	was.toShadow(was.candidate)
	return was
}

// before is what was in force before v first was: never what was rolled back from, nor the same in other words.
func (r *modelRule) before(v *modelVersion) *modelVersion {
	first := slices.Index(r.reigns, v)
	for _, b := range slices.Backward(r.reigns[:first]) {
		if b.verdicts != v.verdicts && !r.withdrawn[b.verdicts] {
			return b
		}
	}
	return nil
}

func (r *modelRule) rollbackTo(number int64) move {
	m := r.stay()
	switch {
	case number < 1 || number > int64(len(r.versions)):
		return r.refuse(rules.ErrNotFound)
	case !slices.Contains(r.reigns, r.versions[number-1]):
		return r.refuse(rules.ErrConflict)
	}
	m.to.stable = r.versions[number-1]
	m.to.drop()
	return m
}

// restore is the rule's part in the rollback of its domain to a revision.
func (r *modelRule) restore(revision int64) move {
	m, was := r.stay(), r.at(revision)
	switch {
	case r.deleted() && was.deleted():
		return m
	case r.deleted():
		m.to = r.restored(was)
	case was.stable != nil:
		m.to.stable = was.stable
		m.to.drop()
	case r.stable == nil:
		m.to.toShadow(r.candidate)
	default:
		m.to.toShadow(r.stable)
		m.to.orCandidate = r.candidate
	}
	m.to.overrides = was.overrides
	return m
}

// at is what the rule was at a revision; the zero value before it was born.
func (r *modelRule) at(revision int64) modelState {
	last := int64(0)
	for at := range r.past {
		if at <= revision {
			last = max(last, at)
		}
	}
	return r.past[last]
}

func (r *modelRule) override(value string, o modelOverride, confirmed bool, now time.Time) move {
	m, gone := r.gone()
	switch {
	case gone:
		return m
	case !now.Before(o.until):
		return r.refuse(rules.ErrInvalid)
	case !confirmed && tenfold(amounts[r.inForce().verdicts], o.amount):
		return r.refuse(rules.ErrGuarded)
	}
	m = r.stay()
	m.to.overrides = maps.Clone(r.overrides)
	if m.to.overrides == nil {
		m.to.overrides = map[string]modelOverride{}
	}
	m.to.overrides[value] = o
	return m
}

func (r *modelRule) deleteOverride(value string) move {
	if m, gone := r.gone(); gone {
		return m
	}
	m := r.stay()
	m.to.overrides = maps.Clone(r.overrides)
	delete(m.to.overrides, value)
	return m
}

// make moves the rule, as the revision did.
func (r *modelRule) make(m *move, action rollout.Action, revision int64) {
	was := r.modelState
	r.modelState, r.versions, r.touched = m.to, m.versions, revision
	switch action {
	case rollout.ActionOverride, rollout.ActionDeleteOverride, rollout.ActionPause, rollout.ActionResume:
		// No step to undo.
	default:
		r.last = action
	}
	if r.withdrawn == nil {
		r.withdrawn, r.past = map[int]bool{}, map[int64]modelState{}
	}
	if r.rolledBackLast() && r.last == action {
		if was.stable != nil && !r.stable.says(was.stable.saying) {
			r.withdrawn[was.stable.verdicts] = true
		}
		if was.candidate != nil && (r.candidate != was.candidate || r.percent < was.percent) {
			r.withdrawn[was.candidate.verdicts] = true
		}
	}
	for verdicts := range r.binds() {
		delete(r.withdrawn, verdicts)
	}
	delete(r.withdrawn, m.again-1)
	if r.stable != nil && (len(r.reigns) == 0 || r.reigns[len(r.reigns)-1] != r.stable) {
		r.reigns = append(r.reigns, r.stable)
	}
	r.past[revision] = r.modelState
}
