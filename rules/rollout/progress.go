package rollout

import (
	"github.com/headgate/headgate/rules"
)

// Promote moves the candidate's percentage up or down; at 100 % the candidate becomes the stable, at 0 it is back in
// shadow. A lowered percentage starts the what-if counters again.
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
	case op.To == r.Percent:
		return r, "it is " + r.State(), nil
	case op.To > r.Percent && r.Paused:
		return r, "", s.conflict("it is not promoted until it is resumed; abort and rollback are possible")
	case op.To == rules.AllKeys:
		r.Stable = r.Candidate
		return endTrial(r), "", nil
	case op.To == 0:
		r.Paused = false
	}
	if op.To < r.Percent {
		r.Epoch = s.Revision
	}
	r.Percent = op.To
	return r, "", nil
}

// Pause holds a candidate where it is.
type Pause struct{}

func (Pause) on(s *Standing) (rules.Rule, string, error) {
	r, err := s.trial("pause")
	if err != nil || r.Paused {
		return r, "it is " + r.State(), err
	}
	r.Paused = true
	return r, "", nil
}

// Resume lets a candidate that was paused be promoted again.
type Resume struct{}

func (Resume) on(s *Standing) (rules.Rule, string, error) {
	r, err := s.trial("resume")
	if err != nil || !r.Paused {
		return r, "it is not paused: it is " + r.State(), err
	}
	r.Paused = false
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
