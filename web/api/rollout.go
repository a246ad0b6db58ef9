package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// watchPoll is how often a watched rollout is looked at: open windows come every second.
const watchPoll = time.Second

// GetRollout returns where the promotion of a rule stands.
func (s *Server) GetRollout(ctx context.Context, req *adminpb.GetRolloutRequest) (*adminpb.GetRolloutResponse, error) {
	m, err := s.rollout(ctx, req.GetDomain(), req.GetRule())
	return &adminpb.GetRolloutResponse{Rollout: m}, err
}

// WatchRollout streams where the promotion of a rule stands, about once a second.
func (s *Server) WatchRollout(req *adminpb.WatchRolloutRequest, stream grpc.ServerStreamingServer[adminpb.WatchRolloutResponse]) error {
	ctx, cancel := context.WithTimeout(stream.Context(), awaitTime)
	defer cancel()
	tick := time.NewTicker(watchPoll)
	defer tick.Stop()
	for {
		m, err := s.rollout(ctx, req.GetDomain(), req.GetRule())
		if err != nil {
			return err
		}
		if err := stream.Send(&adminpb.WatchRolloutResponse{Rollout: m}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *Server) rollout(ctx context.Context, domain, rule string) (*adminpb.Rollout, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := checkRule(domain, rule); err != nil {
		return nil, fmt.Errorf("rollout: %w", err)
	}
	if err := identity(ctx).May(access.Viewer, domain); err != nil {
		return nil, fmt.Errorf("rollout: %w", err)
	}
	st, err := s.service.RolloutStatus(ctx, domain, rule)
	if err != nil {
		return nil, fmt.Errorf("rollout of %s/%s: %w", domain, rule, err)
	}
	return rolloutMessage(&st)
}

func rolloutMessage(st *rollout.Status) (*adminpb.Rollout, error) {
	rule, err := ruleMessage(&st.Rule, nil)
	if err != nil {
		return nil, err
	}
	if st.Frozen != nil {
		rule.FrozenUntil = timestamp(st.Frozen.Until)
	}
	m := &adminpb.Rollout{
		Rule: rule, Standing: st.Standing(), Since: timestamp(st.Since), Revision: st.Revision, Bound: st.Bound, BoundBoth: st.BoundBoth,
		Plan: planMessage(st),
	}
	for i := range st.Nodes {
		switch n := &st.Nodes[i]; n.State {
		case rollout.NodeGone:
		case rollout.NodeSynced:
			m.Acked, m.Nodes = m.Acked+1, m.Nodes+1
		default:
			m.Nodes++
			m.Unacked = append(m.Unacked, n.ID)
		}
	}
	if st.Rule.Candidate != nil {
		m.Evidence = evidenceMessage(&st.Evidence)
	}
	for i := range st.Versions {
		m.Versions = append(m.Versions, countsMessage(&st.Rule, &st.Versions[i]))
	}
	slices.SortFunc(m.Versions, func(a, b *adminpb.VersionCounts) int { return int(a.GetVersion() - b.GetVersion()) })
	return m, nil
}

func evidenceMessage(e *rollout.Evidence) *adminpb.Evidence {
	return &adminpb.Evidence{
		From: timestamp(e.From), To: timestamp(e.To), Judged: e.Judged, Refusing: e.Refusing, Shared: e.Shared,
		Compared: e.Compared, NewlyRefused: e.NewlyRefused, NoLongerRefused: e.NoLongerRefused,
		WouldRefuse: intervalMessage(e.WouldRefuse()), Delta: intervalMessage(e.Delta()),
	}
}

func intervalMessage(i tally.Interval) *adminpb.Interval {
	return &adminpb.Interval{Estimate: i.Estimate, Low: i.Low, High: i.High}
}

// What a version is to the rule now.
const (
	roleStable    = "stable"
	roleCandidate = "candidate"
	roleEarlier   = "earlier"
)

func roleOf(r *rules.Rule, version int64) string {
	switch {
	case r.Candidate != nil && r.Candidate.Number == version:
		return roleCandidate
	case r.Stable != nil && r.Stable.Number == version:
		return roleStable
	}
	return roleEarlier
}

func countsMessage(r *rules.Rule, v *rollout.VersionCounts) *adminpb.VersionCounts {
	would, _ := v.Counts.WouldRefuse()
	return &adminpb.VersionCounts{
		Version: v.Version, Role: roleOf(r, v.Version), Bound: v.Counts.Bound(), Refused: v.Counts.Refusals(), Judged: v.Counts.Judged(), WouldRefuse: would,
	}
}

// planMessage is nil where no plan is.
func planMessage(st *rollout.Status) *adminpb.PlanState {
	c := st.Rule.Course
	if c == nil {
		return nil
	}
	m := &adminpb.PlanState{
		Step: int32(c.Step), Elapsed: durationpb.New(st.Elapsed.Truncate(time.Second)), //nolint:gosec // at most a hundred steps
		MinRequests: c.Plan.Gates.Minimum(), OnTrip: string(c.Plan.OnTrip), By: c.By, Verified: c.Verified, Begun: c.Begun, Waits: st.Plan.Waits,
	}
	for _, step := range c.Plan.Steps {
		s := &adminpb.PlanStep{Percent: uint32(step.Percent)}
		if step.Hold > 0 {
			s.Hold = durationpb.New(step.Hold)
		}
		m.Steps = append(m.Steps, s)
	}
	for i := range st.Plan.Gates {
		g := &st.Plan.Gates[i]
		m.Gates = append(m.Gates, &adminpb.GateState{Name: g.Name, Limit: uint32(g.Limit), Verdict: string(g.Verdict), Is: intervalMessage(g.Is), Of: g.Of})
	}
	return m
}
