package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
)

// good is a situation in which a plan goes on.
func good(t *testing.T) *rollout.Situation {
	t.Helper()
	plan, err := rules.NewPlan("1% 15m, 100%", []string{"maxWouldRefuse 2%", "maxDelta 1%"}, "")
	if err != nil {
		t.Fatal(err)
	}
	over := noon.Add(15 * time.Minute)
	node := rollout.NodeStatus{Node: rollout.Node{ID: "n1", Seen: over}, State: rollout.NodeSynced}
	return &rollout.Situation{
		Now: over, Elapsed: 15 * time.Minute, Nodes: []rollout.NodeStatus{node},
		Rule: rules.Rule{
			Domain: "d", Name: "r", Percent: 100, Stable: &rules.Version{Number: 1}, Candidate: &rules.Version{Number: 2},
			Course: &rules.Course{Plan: plan, Since: noon, Revision: 7},
		},
		Sources:  []tally.Progress{{Source: tally.Source{Node: "n1", Epoch: "e"}, Until: over}},
		Evidence: rollout.Evidence{From: noon, To: over, Judged: 5000, Refusing: 50, Compared: 5000, NewlyRefused: 40, NoLongerRefused: 30},
	}
}

func TestJudgeGoesOnOnlyWhenEverythingSpeaksForIt(t *testing.T) {
	t.Parallel()
	node := func(s *rollout.Situation) *rollout.NodeStatus { return &s.Nodes[0] }
	for name, c := range map[string]struct {
		change func(*rollout.Situation)
		do     rollout.Doing
		wait   string
	}{
		"everything": {func(*rollout.Situation) {}, rollout.PlanAdvances, ""},
		"too soon":   {func(s *rollout.Situation) { s.Elapsed-- }, rollout.PlanWaits, ""},
		"paused":     {func(s *rollout.Situation) { s.Rule.Paused = true }, rollout.PlanWaits, "it is paused"},
		"paused, and a gate would trip": {func(s *rollout.Situation) {
			s.Rule.Paused, s.Evidence.Refusing = true, 500
		}, rollout.PlanWaits, "it is paused"},
		"frozen":      {func(s *rollout.Situation) { s.Frozen = &rules.Freeze{Until: noon} }, rollout.PlanWaits, "it is frozen"},
		"no sidecars": {func(s *rollout.Situation) { s.Nodes = nil }, rollout.PlanWaits, "there is no sidecar"},
		"pending":     {func(s *rollout.Situation) { node(s).State = rollout.NodePending }, rollout.PlanWaits, "n1 is pending: it has not acknowledged revision 7"},
		"gone, with everything reported": {func(s *rollout.Situation) {
			s.Nodes = append(s.Nodes, rollout.NodeStatus{Node: rollout.Node{ID: "n2", Seen: s.Now}, State: rollout.NodeGone})
			s.Sources = append(s.Sources, tally.Progress{Source: tally.Source{Node: "n2"}, Until: noon.Add(time.Minute), Stopped: true})
		}, rollout.PlanAdvances, ""},
		"gone without a word": {func(s *rollout.Situation) {
			s.Nodes = append(s.Nodes, rollout.NodeStatus{Node: rollout.Node{ID: "n2", Seen: noon.Add(time.Minute)}, State: rollout.NodeGone})
			s.Sources = append(s.Sources, tally.Progress{Source: tally.Source{Node: "n2"}, Until: noon.Add(time.Minute)})
		}, rollout.PlanWaits, "sidecar n2 went silent"},
		"gone before the step": {func(s *rollout.Situation) {
			s.Nodes = append(s.Nodes, rollout.NodeStatus{Node: rollout.Node{ID: "n2", Seen: noon}, State: rollout.NodeGone})
			s.Sources = append(s.Sources, tally.Progress{Source: tally.Source{Node: "n2"}, Until: noon})
		}, rollout.PlanAdvances, ""},
		"one that only looks on": {func(s *rollout.Situation) {
			s.Nodes = append(s.Nodes, rollout.NodeStatus{Node: rollout.Node{ID: "w", Program: rollout.Watcher + " (devel)"}, State: rollout.NodeSynced})
		}, rollout.PlanAdvances, ""},
		"never reported":          {func(s *rollout.Situation) { s.Sources = nil }, rollout.PlanWaits, "n1 has reported nothing"},
		"one window is not there": {func(s *rollout.Situation) { s.Sources[0].Until = s.Now.Add(-tally.Span) }, rollout.PlanWaits, "n1 has reported only what it counted until"},
		"reports stopped after the step's time": {func(s *rollout.Situation) {
			s.Now, s.Elapsed = s.Now.Add(time.Hour), s.Elapsed+time.Hour
		}, rollout.PlanWaits, "n1 has reported only what it counted until"},
		"lost windows of another domain": {func(s *rollout.Situation) {
			s.Missing = []tally.Missing{{Source: tally.Source{Node: "elsewhere"}, To: s.Now}}
		}, rollout.PlanAdvances, ""},
		"lost windows":     {func(s *rollout.Situation) { s.Missing = []tally.Missing{{Source: tally.Source{Node: "n1"}, To: s.Now}} }, rollout.PlanWaits, "is lost"},
		"little traffic":   {func(s *rollout.Situation) { s.Evidence.Judged = 99 }, rollout.PlanWaits, "v2 has judged 99 requests since 2026-11-29 12:00:00Z, of 100"},
		"nearly too much":  {func(s *rollout.Situation) { s.Evidence.Refusing = 90 }, rollout.PlanWaits, "maxWouldRefuse 2%: undecided, it is 1.8%"},
		"barely too much":  {func(s *rollout.Situation) { s.Evidence.Refusing = 110 }, rollout.PlanWaits, "maxWouldRefuse 2%: undecided, it is 2.2%"},
		"too much":         {func(s *rollout.Situation) { s.Evidence.Refusing = 130 }, rollout.PlanTrips, "maxWouldRefuse 2%: tripped, it is 2.6%"},
		"too much, early":  {func(s *rollout.Situation) { s.Evidence.Refusing, s.Elapsed = 130, time.Minute }, rollout.PlanTrips, "maxWouldRefuse"},
		"too many more":    {func(s *rollout.Situation) { s.Evidence.NewlyRefused = 300 }, rollout.PlanTrips, "maxDelta 1%: tripped, it is 5.4%"},
		"too many, of few": {func(s *rollout.Situation) { s.Evidence.Judged, s.Evidence.Compared, s.Evidence.Refusing = 99, 99, 99 }, rollout.PlanWaits, "too little traffic"},
		"many, and as many no longer": {func(s *rollout.Situation) {
			s.Evidence.NewlyRefused, s.Evidence.NoLongerRefused = 60, 90
		}, rollout.PlanAdvances, ""},
		"last step": {func(s *rollout.Situation) { s.Rule.Course.Step = 1 }, rollout.PlanIsDone, ""},
		"last step, away": {func(s *rollout.Situation) {
			s.Rule.Course.Step, node(s).State = 1, rollout.NodeAway
		}, rollout.PlanWaits, "n1 is away"},
		"last step, refused": {func(s *rollout.Situation) {
			s.Rule.Course.Step, node(s).State, node(s).NackReason = 1, rollout.NodeNacked, "HG0107"
		}, rollout.PlanWaits, "n1 refuses revision 0: HG0107"},
	} {
		s := good(t)
		c.change(s)
		j := rollout.Judge(s)
		if j.Do != c.do || c.wait != "" && !slices.ContainsFunc(j.Waits, func(w string) bool { return strings.Contains(w, c.wait) }) {
			t.Errorf("%s: %s, because of %q and %+v; want %s with %q", name, j.Do, j.Waits, j.Gates, c.do, c.wait)
		}
	}
}

func TestFewOfManySidecarsAreNamed(t *testing.T) {
	t.Parallel()
	s := good(t)
	s.Nodes = slices.Repeat([]rollout.NodeStatus{{Node: rollout.Node{ID: "x"}, State: rollout.NodePending}}, 1000)
	if j := rollout.Judge(s); len(j.Waits) > 20 || !slices.Contains(j.Waits, "and 995 more") {
		t.Errorf("it waits for %d things: %q", len(j.Waits), j.Waits)
	}
}
