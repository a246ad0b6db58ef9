package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Status is where a rule's promotion stands, with its evidence.
type Status struct {
	Rule   rules.Rule
	Frozen *rules.Freeze
	Now    time.Time
	// Since is since when the rule stands where it does, and Revision the one that made that.
	Since    time.Time
	Revision int64
	from     time.Time    // of the evidence
	Nodes    []NodeStatus // with respect to Revision
	Evidence Evidence     // since then; zero without a candidate
	// Versions are the counts since then, by number.
	Versions []VersionCounts
	// Bound and BoundBoth are the requests since then, of the last minutes, that the candidate decided, and that any version
	// did, or, where there is no stable, the candidate judged.
	Bound, BoundBoth int64
	Plan             *Judgement // nil: no plan runs, and none has come to its end here
	// Elapsed is how long the plan has been in its step.
	Elapsed time.Duration
}

// VersionCounts is what was counted of one version.
type VersionCounts struct {
	Version int64
	Counts  tally.Counts
}

const (
	// actualSpan is how far back the actual percentage looks at most.
	actualSpan = 5 * time.Minute
	// evidenceSpan is how far back evidence without a plan goes at most. Minutes are kept longer.
	evidenceSpan = 7 * 24 * time.Hour
)

// Actual is the share of requests that the candidate decided in the last minutes; ok is false when there were none.
func (st *Status) Actual() (share float64, ok bool) {
	if st.BoundBoth == 0 {
		return 0, false
	}
	return float64(st.Bound) / float64(st.BoundBoth), true
}

// Standing says in a word how the promotion goes: the state of its plan ("running", "holding", "paused", "tripped",
// "finishing", "done"), else "paused", "shadow", "partial", "stable" or "deleted".
func (st *Status) Standing() string {
	switch c := st.Rule.Course; {
	case st.Plan == nil && st.Rule.Paused:
		return "paused"
	case st.Plan == nil:
		return string(st.Rule.Stage())
	case st.Plan.Do == PlanIsDone:
		return "done"
	case c.Last():
		return "finishing"
	case c.Tripped != "":
		return "tripped"
	case st.Rule.Paused:
		return "paused"
	case st.Plan.Soaking && st.Frozen == nil, st.Plan.Do != PlanWaits:
		return "running"
	}
	return "holding"
}

// WithTallies returns the service as it judges by what was counted. Without, there is evidence of nothing.
func (s *Service) WithTallies(t Tallies) *Service {
	with := *s
	with.tallies = t
	return &with
}

// noTallies is where nothing is counted.
type noTallies struct{}

func (noTallies) Series(context.Context, tally.Query) ([]tally.Point, error) { return nil, nil }

func (noTallies) Sources(context.Context) ([]tally.Progress, error) { return nil, nil }

func (noTallies) Missing(_ context.Context, _, _ time.Time) ([]tally.Missing, error) { return nil, nil }

// RolloutStatus returns where the promotion of a rule stands, or [rules.ErrNotFound].
func (s *Service) RolloutStatus(ctx context.Context, domain, name string) (Status, error) {
	st, err := s.place(ctx, domain, name)
	if err != nil {
		return Status{}, err
	}
	return st, s.fill(ctx, &st)
}

// place is a status without what is counted.
func (s *Service) place(ctx context.Context, domain, name string) (Status, error) {
	history, err := s.store.History(ctx, domain, name)
	if err != nil {
		return Status{}, err
	}
	st := Status{Rule: history[len(history)-1].Rule, Now: s.now()}
	st.Since, st.Revision = stands(history)
	if c := st.Rule.Course; c != nil {
		st.Since, st.Revision, st.Elapsed = c.Since, c.Revision, max(st.Now.Sub(c.Since), 0)
	}
	if oldest := st.Now.Add(-evidenceSpan); st.Since.Before(oldest) {
		st.Since = oldest
	}
	st.from = st.Since
	if born(history, st.Since) {
		// Nothing was judged by it before: what was in the window in which it began belongs to it as well.
		st.from = st.Since.Truncate(time.Duration(tally.StepWindow))
	}
	return st, nil
}

// born reports whether the candidate began at the time.
func born(history []Entry, since time.Time) bool {
	is := number(history[len(history)-1].Rule.Candidate)
	first := slices.IndexFunc(history, func(e Entry) bool { return number(e.Rule.Candidate) == is })
	return is > 0 && stamp(history[first].Time).Equal(stamp(since))
}

// stands says since when a rule has had the versions it has, at the percentage it has.
func stands(history []Entry) (since time.Time, revision int64) {
	is := &history[len(history)-1].Rule
	for i := len(history) - 1; i >= 0; i-- {
		r := &history[i].Rule
		if number(r.Stable) != number(is.Stable) || number(r.Candidate) != number(is.Candidate) || r.Percent != is.Percent || r.Epoch != is.Epoch {
			break
		}
		since, revision = history[i].Time, r.Revision
	}
	return since, revision
}

func number(v *rules.Version) int64 {
	if v == nil {
		return 0
	}
	return v.Number
}

// fill reads what the status is judged by, and judges it.
func (s *Service) fill(ctx context.Context, st *Status) (err error) {
	r := &st.Rule
	if err := s.fillFreeze(ctx, st); err != nil {
		return err
	}
	if st.Nodes, err = s.nodesAt(ctx, r.Domain, st.Revision, st.Now); err != nil {
		return err
	}
	points, step, err := s.counts(ctx, r, st.from, st.Now)
	if err != nil {
		return err
	}
	st.add(points, step)
	lately := st.from // what was decided before tells of another percentage
	if oldest := st.Now.Add(-actualSpan); lately.Before(oldest) {
		lately = oldest
	}
	recent, _, err := s.counts(ctx, r, lately, st.Now)
	if err != nil {
		return err
	}
	for i := range recent {
		bound := recent[i].Counts.Bound()
		st.BoundBoth += bound
		if r.Candidate != nil && recent[i].Version == r.Candidate.Number {
			st.Bound += bound
			if r.Stable == nil { // what it does not decide is decided by none
				st.BoundBoth += recent[i].Counts.Judged()
			}
		}
	}
	if r.Course == nil {
		return nil
	}
	situation := Situation{Now: st.Now, Rule: *r, Elapsed: st.Elapsed, Frozen: st.Frozen, Nodes: st.Nodes, Evidence: st.Evidence}
	if situation.Sources, err = s.tallies.Sources(ctx); err != nil {
		return fmt.Errorf("how far sidecars have reported: %w", err)
	}
	if situation.Missing, err = s.tallies.Missing(ctx, st.Since, st.Now); err != nil {
		return fmt.Errorf("what sidecars have lost: %w", err)
	}
	j := Judge(&situation)
	st.Plan = &j
	return nil
}

// fillFreeze reads the freeze of the rule. One that has ended held up the step: it is as long as it has been since.
func (s *Service) fillFreeze(ctx context.Context, st *Status) error {
	domains, err := s.store.Domains(ctx, st.Rule.Domain)
	if err != nil || len(domains) == 0 {
		return err
	}
	d := &domains[0]
	st.Frozen = freezeOf(d, &st.Rule, st.Now)
	for _, f := range d.Freezes {
		if over := st.Now.Sub(f.Until); over >= 0 && freezeOf(d, &st.Rule, f.Until.Add(-1)) != nil {
			st.Elapsed = min(st.Elapsed, over)
		}
	}
	return nil
}

func freezeOf(d *rules.Domain, r *rules.Rule, now time.Time) *rules.Freeze {
	for _, v := range held(r) {
		if f := d.Frozen(r.Name, &v.Spec, now); f != nil {
			return f
		}
	}
	return nil
}

// nodesAt returns the nodes of a domain as they stand for somebody who waits for the revision.
func (s *Service) nodesAt(ctx context.Context, domain string, revision int64, now time.Time) ([]NodeStatus, error) {
	// The nodes first, see Fleet.
	nodes, err := s.store.Nodes(ctx, domain)
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	head, err := s.store.Head(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]NodeStatus, len(nodes))
	for i, n := range nodes {
		list[i] = NodeStatus{Node: n, State: n.StateAt(now, revision, head), Wanted: revision}
	}
	return list, nil
}

// counts reads what was counted of a rule's versions in whole steps from a time on.
func (s *Service) counts(ctx context.Context, r *rules.Rule, from, now time.Time) ([]tally.Point, tally.Step, error) {
	step := tally.StepWindow
	if now.Sub(from) > tally.StepWindow.Keep()-time.Hour {
		step = tally.StepMinute
	}
	q := tally.Query{Domain: r.Domain, UIDs: []string{r.UID}, From: ceil(from, step), To: now.Add(time.Duration(step)), Step: step}
	points, err := s.tallies.Series(ctx, q)
	if err != nil {
		return nil, step, fmt.Errorf("what was counted of %s: %w", r.ID(), err)
	}
	return points, step, nil
}

// ceil is the first step that began at the time or after it: one before also holds what came earlier.
func ceil(t time.Time, step tally.Step) time.Time {
	floor := t.Truncate(time.Duration(step))
	if floor.Before(t) {
		return floor.Add(time.Duration(step))
	}
	return floor
}

// add puts the counts of the steps together.
func (st *Status) add(points []tally.Point, step tally.Step) {
	for i := range points {
		p := &points[i]
		at := slices.IndexFunc(st.Versions, func(v VersionCounts) bool { return v.Version == p.Version })
		if at < 0 {
			at = len(st.Versions)
			st.Versions = append(st.Versions, VersionCounts{Version: p.Version})
		}
		st.Versions[at].Counts.Add(&p.Counts)
	}
	if st.Rule.Candidate == nil {
		return
	}
	of := func(v *rules.Version) *tally.Counts {
		if v == nil {
			return nil
		}
		at := slices.IndexFunc(st.Versions, func(c VersionCounts) bool { return c.Version == v.Number })
		if at < 0 {
			return &tally.Counts{}
		}
		return &st.Versions[at].Counts
	}
	from := ceil(st.from, step)
	if from.After(st.Now) {
		from = st.Now // the first step has not begun
	}
	st.Evidence = newEvidence(from, st.Now, of(st.Rule.Candidate), of(st.Rule.Stable))
}
