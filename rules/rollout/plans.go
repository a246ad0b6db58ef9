package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// Promotion is how somebody wants a candidate promoted: to a percentage, to the next step of its plan, or by a plan from here
// on.
type Promotion struct {
	To   rules.Percent
	Next bool
	Plan *rules.Plan
	// Gates that must not have tripped; those of the plan where none are named.
	Gates rules.Gates
	// Force: go on also where a gate tripped. It wants a message.
	Force bool
}

// PromoteBy promotes a candidate as it is wanted, unless the evidence trips a gate: that is a [rules.GuardError]. Evidence that
// decides nothing stops nobody who promotes by hand.
func (s *Service) PromoteBy(ctx context.Context, domain, name string, p Promotion, why Why) (Outcome, error) {
	in := intent{domain: domain, action: ActionPromote, target: domain + "/" + name, why: why, needs: access.Operator}
	if err := in.why.Who.May(in.needs, domain); err != nil {
		return Outcome{}, s.Refused(ctx, domain, in.action, in.target, why, err)
	}
	forced, err := s.pastGates(ctx, domain, name, &p, &in.why)
	if err != nil {
		return Outcome{}, s.Refused(ctx, domain, in.action, in.target, why, fmt.Errorf("promote %s: %w", in.target, err))
	}
	in.why.Message += forced
	return s.onRuleWith(ctx, in, name, func(_ context.Context, _ Tx, was *Standing) (Operation, error) {
		switch c := was.Rule.Course; {
		case p.Plan != nil:
			return StartPlan{Plan: *p.Plan, By: why.actor()}, nil
		case !p.Next:
			return Promote{To: p.To}, nil
		case !c.Running():
			return nil, was.conflict("no plan runs, so there is no next step: name the percentage")
		default:
			return Advance{Begun: c.Begun, From: c.Step, Force: p.Force}, nil
		}
	})
}

// pastGates refuses a promotion that a gate stops. It returns what a message says of gates that were passed by force.
func (s *Service) pastGates(ctx context.Context, domain, name string, p *Promotion, why *Why) (forced string, err error) {
	if p.Force && why.Message == "" {
		return "", fmt.Errorf("%w: to pass a gate by force wants a message that says why", rules.ErrInvalid)
	}
	st, err := s.place(ctx, domain, name)
	if errors.Is(err, rules.ErrNotFound) {
		return "", nil // which the change itself says
	}
	if err != nil {
		return "", err
	}
	gates := p.Gates
	switch c := st.Rule.Course; {
	case p.Plan != nil:
		gates = p.Plan.Gates
	case len(gates.Texts()) == 0 && c.Running():
		gates = c.Plan.Gates
	}
	lowers := !p.Next && p.Plan == nil && p.To <= st.Rule.Percent
	if st.Rule.Candidate == nil || lowers || gates.MaxWouldRefuse == nil && gates.MaxDelta == nil {
		return "", nil
	}
	if err := s.fill(ctx, &st); err != nil {
		return "", err
	}
	// What the gates let pass is what was looked at.
	why.Base = cmp.Or(why.Base, st.Rule.Revision)
	gate := tripped(judgeGates(&gates, &st.Evidence))
	switch {
	case gate == nil:
		return "", nil
	case !p.Force:
		return "", &rules.GuardError{
			Rule: st.Rule.ID(), Danger: gate.Words(),
			Way: "change the rule, or promote with --force-gate and a message when it is meant",
		}
	}
	return fmt.Sprintf(" (by force past %s)", gate.Words()), nil
}

// planner is who a plan acts as: itself, for whoever started it.
func planner(domain string, c *rules.Course) access.Identity {
	return access.Identity{Name: "plan of " + c.By, Role: access.Operator, Domains: []string{domain}, Verified: c.Verified}
}

// follow does what a judgement says, for the plan. What was judged is the base of the change: when anything touched the rule
// since, be it another leader, the change is a conflict.
func (s *Service) follow(ctx context.Context, st *Status) (Outcome, error) {
	r, c, j := &st.Rule, st.Rule.Course, st.Plan
	why := Why{Who: planner(r.Domain, c), Base: r.Revision}
	in := intent{domain: r.Domain, needs: access.Operator}
	var op Operation
	switch {
	case j.Do == PlanAdvances:
		to := c.Plan.Steps[c.Step+1]
		in.action, op = ActionPromote, Advance{Begun: c.Begun, From: c.Step}
		why.Message = fmt.Sprintf("%s passed, on to %s: %s; %s", c, to.Percent, j.Words(), st.Evidence.Words())
	case j.Do == PlanTrips && c.Plan.OnTrip == rules.TripRollsBack:
		in.action, op = ActionRollback, Rollback{}
		why.Message = fmt.Sprintf("%s tripped: %s; %s", c, j.Words(), st.Evidence.Words())
	case j.Do == PlanTrips:
		in.action, op = ActionPause, Trip{Begun: c.Begun, From: c.Step, Why: j.Words()}
		why.Message = fmt.Sprintf("%s tripped: %s; %s", c, j.Words(), st.Evidence.Words())
	default:
		return Outcome{}, nil
	}
	in.why = why
	return s.onRuleWith(ctx, in, r.Name, func(ctx context.Context, tx Tx, was *Standing) (Operation, error) {
		d, err := tx.Domain(ctx)
		if err != nil {
			return nil, err
		}
		if freezeOf(&d, &was.Rule, was.Now) != nil { // since it was judged
			return nil, was.conflict("it is frozen")
		}
		return op, nil
	})
}

// noteDone records, once, that the whole fleet has the last step of a plan.
func (s *Service) noteDone(ctx context.Context, st *Status) error {
	r, c := &st.Rule, st.Rule.Course
	record := s.note(ActionPlanDone, r.ID(), Why{Who: planner(r.Domain, c)})
	acked := len(st.Nodes) - countGone(st.Nodes)
	record.Domain = r.Domain
	record.Detail = fmt.Sprintf("%s: %s, acknowledged by %d sidecars; %s", r.ID(), r.State(), acked, c.Plan.StepsText())
	return s.store.Note(ctx, record, fmt.Sprintf("plan-done %s %d", r.UID, c.Begun))
}

func countGone(nodes []NodeStatus) (n int) {
	for i := range nodes {
		if nodes[i].State == NodeGone {
			n++
		}
	}
	return n
}
