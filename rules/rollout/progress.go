package rollout

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/rules"
)

// Promote moves the candidate's percentage up or down; at 100 % the candidate becomes the stable, at 0 it is back in
// shadow. A lowered percentage starts the what-if counters again. A plan ends: whoever sets a percentage takes over.
type Promote struct {
	To rules.Percent
}

func (op Promote) on(s *Standing) (rules.Rule, string, error) {
	if err := s.exists(); err != nil {
		return s.Rule, "", err
	}
	r := s.Rule
	switch {
	case r.Candidate == nil && op.To == 0:
		return r, "", s.conflict("there is no candidate to abort; rollback goes back to the version before")
	case r.Candidate == nil:
		return r, "", s.conflict("there is no candidate to promote; apply a changed spec first")
	case op.To == r.Percent && !r.Course.Running():
		return r, "it is " + r.State(), nil
	}
	return s.promoted(op.To)
}

// promoted is the rule with its candidate at another percentage, and without a plan.
func (s *Standing) promoted(to rules.Percent) (rules.Rule, string, error) {
	r := s.Rule
	r.Course = nil
	switch {
	case to > r.Percent && r.Paused:
		return r, "", s.conflict("it is not promoted until it is resumed; abort and rollback are possible")
	case to == rules.AllKeys:
		r.Stable = r.Candidate
		return endTrial(r), "", nil
	case to == 0:
		r.Paused = false
	}
	if to < r.Percent {
		r.Epoch = s.Revision
	}
	r.Percent = to
	return r, "", nil
}

// StartPlan lets a plan promote the candidate from here on, in place of one that does. It begins with its first step, which
// must not be below where the candidate is.
type StartPlan struct {
	Plan rules.Plan
	By   Actor
}

func (op StartPlan) on(s *Standing) (rules.Rule, string, error) {
	if err := s.exists(); err != nil {
		return s.Rule, "", err
	}
	first := op.Plan.Steps[0]
	switch {
	case s.Rule.Candidate == nil:
		return s.Rule, "", s.conflict("there is no candidate to promote; apply a changed spec first")
	case first.Percent < s.Rule.Percent:
		return s.Rule, "", s.conflict(fmt.Sprintf("a plan only goes up, and this one begins with %q; begin with %s or more, or abort first", first, s.Rule.Percent))
	case s.Rule.Paused:
		return s.Rule, "", s.conflict("it is not promoted until it is resumed; abort and rollback are possible")
	}
	r, note, err := s.promoted(first.Percent)
	if err != nil || note != "" {
		return r, note, err
	}
	r.Course = &rules.Course{Plan: op.Plan, By: op.By.Name, Verified: op.By.Verified, Begun: s.Revision}
	r.Course = s.again(r.Course)
	if first.Percent == 0 {
		r.Course.Since = s.shadowSince()
	}
	return r, "", nil
}

// Advance takes a plan from a step to the next. One that is elsewhere by now is a conflict: no step is skipped or repeated,
// whoever else advances it.
type Advance struct {
	Begun int64 // of the course that is meant
	From  int
	Force bool // also where a gate tripped, and paused the rule
}

func (op Advance) on(s *Standing) (rules.Rule, string, error) {
	c, err := s.under(op.Begun)
	switch {
	case err != nil:
		return s.Rule, "", err
	case c.Step != op.From:
		return s.Rule, "", s.conflict(fmt.Sprintf("it has left step %d of its plan", op.From+1))
	case c.Last():
		return s.Rule, "", s.conflict("it is in the last step of its plan: there is no next one")
	}
	if op.Force && c.Tripped != "" {
		s.Rule.Paused = false
	}
	r, note, err := s.promoted(c.Plan.Steps[c.Step+1].Percent)
	if err != nil || note != "" {
		return r, note, err
	}
	next := *c
	next.Step++
	r.Course = s.again(&next)
	return r, "", nil
}

// Trip pauses a rule because a gate of its plan tripped.
type Trip struct {
	Begun int64
	From  int
	Why   string
}

func (op Trip) on(s *Standing) (rules.Rule, string, error) {
	c, err := s.under(op.Begun)
	switch {
	case err != nil:
		return s.Rule, "", err
	case c.Step != op.From || s.Rule.Paused || c.Last():
		return s.Rule, "", s.conflict("its plan has moved on")
	}
	r, tripped := s.Rule, *c
	tripped.Tripped = op.Why
	r.Paused, r.Course = true, &tripped
	return r, "", nil
}

// under returns the plan of the rule; begun is the revision that started the one that is meant.
func (s *Standing) under(begun int64) (*rules.Course, error) {
	if err := s.exists(); err != nil {
		return nil, err
	}
	if c := s.Rule.Course; c != nil && c.Begun == begun {
		return c, nil
	}
	return nil, s.conflict("its plan has ended, or another one runs")
}

// again is a course that begins its step now, with evidence from now on.
func (s *Standing) again(c *rules.Course) *rules.Course {
	if c == nil {
		return nil
	}
	anew := *c
	anew.Since, anew.Revision, anew.Tripped = stamp(s.Now), s.Revision, ""
	return &anew
}

// shadowSince is since when the candidate has been in shadow, as the version it is.
func (s *Standing) shadowSince() (since time.Time) {
	since = stamp(s.Now)
	for i := len(s.History) - 1; i >= 0; i-- {
		e := &s.History[i]
		if c := e.Rule.Candidate; c == nil || c.Number != s.Rule.Candidate.Number || e.Rule.Percent > 0 {
			break
		}
		since = stamp(e.Time)
	}
	return since
}

// stamp is a time as it is stored.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Pause holds a candidate where it is, and the plan that promotes it.
type Pause struct{}

func (Pause) on(s *Standing) (rules.Rule, string, error) {
	r, err := s.trial("pause")
	if err != nil || r.Paused {
		return r, "it is " + r.State(), err
	}
	r.Paused = true
	return r, "", nil
}

// Resume lets a candidate that was paused be promoted again. A plan begins its step anew, and what was counted before
// counts no more: so it also ends a hold for what can no longer be known.
type Resume struct{}

func (Resume) on(s *Standing) (rules.Rule, string, error) {
	r, err := s.trial("resume")
	if err != nil || !r.Paused && !r.Course.Running() {
		return r, "it is not paused: it is " + r.State(), err
	}
	r.Paused, r.Course = false, s.again(r.Course)
	return r, "", nil
}

func (s *Standing) trial(verb string) (rules.Rule, error) {
	if err := s.exists(); err != nil {
		return s.Rule, err
	}
	if s.Rule.Candidate == nil {
		return s.Rule, s.conflict("there is no candidate to " + verb)
	}
	return s.Rule, nil
}

// Delete takes the rule out of force, at once. A rollback restores it.
type Delete struct{}

func (Delete) on(s *Standing) (rules.Rule, string, error) {
	r := s.Rule
	if r.UID != "" && r.Deleted() {
		return r, "it is deleted already", nil
	}
	if err := s.exists(); err != nil {
		return r, "", err
	}
	r.Stable, r.Overrides = nil, nil
	return endTrial(r), "", nil
}
