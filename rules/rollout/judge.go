package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Situation is all that is looked at to say what becomes of a plan.
type Situation struct {
	Now  time.Time
	Rule rules.Rule
	// Elapsed is how long the rule has been in its step.
	Elapsed  time.Duration
	Frozen   *rules.Freeze
	Nodes    []NodeStatus // with respect to the revision of the step
	Sources  []tally.Progress
	Missing  []tally.Missing
	Evidence Evidence
}

// Doing is what comes next of a plan.
type Doing string

// What comes next.
const (
	PlanWaits    Doing = "wait"
	PlanAdvances Doing = "advance"
	PlanTrips    Doing = "trip"
	PlanIsDone   Doing = "done"
)

// Judgement is what becomes of a plan, and why.
type Judgement struct {
	Do    Doing
	Gates []GateVerdict
	// Waits are what is missing to go on, in words; the first alone is not over with time.
	Waits []string
	// Soaking: the step has not been held for as long as the plan wants. When it has, and something is missing still, the
	// plan holds.
	Soaking bool
}

// Judge says what becomes of a plan. It is pure. A plan goes on only when everything speaks for it: the time of the step is
// over, every sidecar has the step and has reported all it counted in it, enough was judged, and every gate passes.
// Anything else holds it where it is; it never goes on for want of an answer.
func Judge(s *Situation) Judgement {
	c := s.Rule.Course
	if c.Last() {
		j := Judgement{Do: PlanIsDone, Waits: s.unacked()}
		if len(j.Waits) > 0 {
			j.Do = PlanWaits
		}
		return j
	}
	j := Judgement{Do: PlanWaits, Gates: judgeGates(&c.Plan.Gates, &s.Evidence), Soaking: s.Elapsed < c.At().Hold}
	j.Waits = s.stopped()
	if gate := tripped(j.Gates); gate != nil && len(j.Waits) == 0 {
		j.Do, j.Waits = PlanTrips, []string{gate.Words()}
		return j
	}
	j.Waits = slices.Concat(j.Waits, s.unacked(), s.unreported(), s.undecided(j.Gates))
	if len(j.Waits) == 0 && !j.Soaking {
		j.Do = PlanAdvances
	}
	return j
}

// stopped is what somebody did to hold the rule.
func (s *Situation) stopped() []string {
	switch c := s.Rule.Course; {
	case c.Tripped != "":
		return []string{"a gate tripped: " + c.Tripped}
	case s.Rule.Paused:
		return []string{"it is paused"}
	case s.Frozen != nil:
		return []string{"it is frozen until " + s.Frozen.Until.UTC().Format(timeText)}
	}
	return nil
}

// unacked are the sidecars that do not have the step.
func (s *Situation) unacked() (list []string) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		switch n.State {
		case NodeSynced, NodeGone:
		case NodeNacked:
			list = append(list, fmt.Sprintf("sidecar %s refuses revision %d: %s", n.ID, n.Nacked, n.NackReason))
		case NodeForeign, NodeAhead:
			list = append(list, fmt.Sprintf("sidecar %s is %s: what it has is of another history", n.ID, n.State))
		default:
			list = append(list, fmt.Sprintf("sidecar %s is %s: it has not acknowledged revision %d", n.ID, n.State, s.Rule.Course.Revision))
		}
	}
	if len(s.Nodes) == 0 && s.Rule.Course.Running() {
		list = append(list, "there is no sidecar")
	}
	return short(list)
}

// reportLate is how old the last window of a sidecar that reports may be: it closes one every ten seconds.
const reportLate = time.Minute

// Watcher begins the program of a node that only looks on (`rulectl watch`): it decides nothing, so it reports nothing.
const Watcher = "rulectl-watch"

// unreported are the sidecars of which not everything is known that they counted in the step.
func (s *Situation) unreported() (list []string) {
	c := s.Rule.Course
	need := s.Now.Add(-reportLate)
	if end := c.Since.Add(c.At().Hold); s.Elapsed >= c.At().Hold && end.After(need) {
		need = end
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		at := slices.IndexFunc(s.Sources, func(src tally.Progress) bool { return src.Node == n.ID })
		switch {
		case at < 0 && strings.HasPrefix(n.Program, Watcher):
		case n.State == NodeGone && (at < 0 || s.Sources[at].Stopped || !n.Seen.After(c.Since)):
		case at < 0:
			list = append(list, fmt.Sprintf("sidecar %s has reported nothing", n.ID))
		case n.State == NodeGone:
			list = append(list, fmt.Sprintf("sidecar %s went silent: what it counted after %s will not come", n.ID, s.Sources[at].Until.UTC().Format(timeText)))
		case s.Sources[at].Until.Before(need):
			list = append(list, fmt.Sprintf("sidecar %s has reported only what it counted until %s", n.ID, s.Sources[at].Until.UTC().Format(timeText)))
		}
	}
	for i := range s.Missing {
		m := &s.Missing[i]
		if m.To.After(c.Since) && slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool { return n.ID == m.Node }) {
			list = append(list, fmt.Sprintf("what sidecar %s counted from %s to %s is lost", m.Node, m.From.UTC().Format(timeText), m.To.UTC().Format(timeText)))
		}
	}
	return short(list)
}

// undecided is what the evidence does not say.
func (s *Situation) undecided(gates []GateVerdict) (list []string) {
	e, least := &s.Evidence, s.Rule.Course.Plan.Gates.Minimum()
	switch {
	case e.Judged == 0:
		return []string{fmt.Sprintf("no traffic: v%d has judged no request since %s", s.Rule.Candidate.Number, e.From.UTC().Format(timeText))}
	case e.Judged < least:
		return []string{fmt.Sprintf("too little traffic: v%d has judged %d requests since %s, of %d that it takes", s.Rule.Candidate.Number, e.Judged, e.From.UTC().Format(timeText), least)}
	}
	for i := range gates {
		if gates[i].Verdict != GatePasses {
			list = append(list, gates[i].Words())
		}
	}
	return list
}

// short bounds a list: a fleet may have thousands of sidecars.
func short(list []string) []string {
	const most = 5
	if more := len(list) - most; more > 0 {
		return append(list[:most:most], fmt.Sprintf("and %d more", more))
	}
	return list
}

// Words say what becomes of the plan and why, for the log and the audit trail.
func (j *Judgement) Words() string {
	list := slices.Clone(j.Waits)
	if j.Do != PlanTrips {
		for i := range j.Gates {
			if w := j.Gates[i].Words(); !slices.Contains(list, w) {
				list = append(list, w)
			}
		}
	}
	return strings.Join(list, "; ")
}
