package api

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/web/api/adminpb"
)

// ruleRequest is what the requests about one rule have in common.
type ruleRequest interface {
	GetDomain() string
	GetRule() string
	GetWhy() *adminpb.Why
}

// onRule checks a request about one rule and runs the change.
func onRule(ctx context.Context, verb string, req ruleRequest, do func(context.Context, rollout.Why) (rollout.Outcome, error)) (*adminpb.Outcome, error) {
	if err := checkRule(req.GetDomain(), req.GetRule()); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	return onDomain(ctx, verb, req, do)
}

// domainRequest is what the requests about one domain have in common.
type domainRequest interface {
	GetDomain() string
	GetWhy() *adminpb.Why
}

func onDomain(ctx context.Context, verb string, req domainRequest, do func(context.Context, rollout.Why) (rollout.Outcome, error)) (*adminpb.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := checkDomain(req.GetDomain()); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	reason, err := why(ctx, req.GetWhy())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	out, err := do(ctx, reason)
	if err != nil {
		return nil, err
	}
	return outcomeMessage(req.GetDomain(), out), nil
}

// Promote moves a candidate to a percentage of keys.
func (s *Server) Promote(ctx context.Context, req *adminpb.PromoteRequest) (*adminpb.PromoteResponse, error) {
	out, err := onRule(ctx, "promote", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		how, err := promotion(req)
		if err != nil {
			return rollout.Outcome{}, fmt.Errorf("promote %s/%s: %w", req.GetDomain(), req.GetRule(), err)
		}
		if how.To == 0 && !how.Next && how.Plan == nil {
			return s.service.Promote(ctx, req.GetDomain(), req.GetRule(), 0, why)
		}
		return s.service.PromoteBy(ctx, req.GetDomain(), req.GetRule(), how, why)
	})
	return &adminpb.PromoteResponse{Outcome: out}, err
}

// promotion reads how a candidate is to be promoted.
func promotion(req *adminpb.PromoteRequest) (p rollout.Promotion, err error) {
	p = rollout.Promotion{To: rules.Percent(req.GetTo()), Next: req.GetNext(), Force: req.GetForceGate()}
	switch {
	case p.To > rules.AllKeys:
		return p, fmt.Errorf("%w: to is %s; at most 100%%", rules.ErrInvalid, p.To)
	case req.GetPlan() != "" && (p.To > 0 || p.Next), p.Next && p.To > 0:
		return p, fmt.Errorf("%w: to, next and plan exclude each other", rules.ErrInvalid)
	case len(req.GetPlan()) > maxMessage || len(req.GetGates()) > maxGates:
		return p, fmt.Errorf("%w: the plan is too long", rules.ErrInvalid)
	case req.GetPlan() == "" && req.GetOnTrip() != "":
		return p, fmt.Errorf("%w: on_trip is for a plan", rules.ErrInvalid)
	case req.GetPlan() == "":
		p.Gates, err = rules.ParseGates(req.GetGates()...)
		return p, err
	}
	plan, err := rules.NewPlan(req.GetPlan(), req.GetGates(), req.GetOnTrip())
	p.Plan = &plan
	return p, err
}

// Pause holds a candidate where it is, or lets it go on.
func (s *Server) Pause(ctx context.Context, req *adminpb.PauseRequest) (*adminpb.PauseResponse, error) {
	out, err := onRule(ctx, "pause", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		if req.GetResume() {
			return s.service.Resume(ctx, req.GetDomain(), req.GetRule(), why)
		}
		return s.service.Pause(ctx, req.GetDomain(), req.GetRule(), why)
	})
	return &adminpb.PauseResponse{Outcome: out}, err
}

// Rollback undoes the last step of a rule, or makes an earlier version the stable.
func (s *Server) Rollback(ctx context.Context, req *adminpb.RollbackRequest) (*adminpb.RollbackResponse, error) {
	out, err := onRule(ctx, "rollback", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		if req.GetTo() < 0 {
			return rollout.Outcome{}, fmt.Errorf("rollback %s/%s: %w: v%d is no version", req.GetDomain(), req.GetRule(), rules.ErrInvalid, req.GetTo())
		}
		return s.service.Rollback(ctx, req.GetDomain(), req.GetRule(), req.GetTo(), why)
	})
	return &adminpb.RollbackResponse{Outcome: out}, err
}

// RollbackDomain restores a domain as it was at a revision.
func (s *Server) RollbackDomain(ctx context.Context, req *adminpb.RollbackDomainRequest) (*adminpb.RollbackDomainResponse, error) {
	out, err := onDomain(ctx, "rollback", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		if req.GetToRevision() < 1 {
			return rollout.Outcome{}, fmt.Errorf("rollback %s: %w: to_revision is %d; revisions begin with 1", req.GetDomain(), rules.ErrInvalid, req.GetToRevision())
		}
		return s.service.RollbackDomain(ctx, req.GetDomain(), req.GetToRevision(), why)
	})
	return &adminpb.RollbackDomainResponse{Outcome: out}, err
}

// Delete takes a rule out of force.
func (s *Server) Delete(ctx context.Context, req *adminpb.DeleteRequest) (*adminpb.DeleteResponse, error) {
	out, err := onRule(ctx, "delete", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		return s.service.Delete(ctx, req.GetDomain(), req.GetRule(), why)
	})
	return &adminpb.DeleteResponse{Outcome: out}, err
}

// Freeze makes a rule or a domain refuse nothing for a time.
func (s *Server) Freeze(ctx context.Context, req *adminpb.FreezeRequest) (*adminpb.FreezeResponse, error) {
	out, err := onDomain(ctx, "freeze", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		return s.service.Freeze(ctx, req.GetDomain(), rollout.Freeze{
			Rule: req.GetRule(), For: req.GetFor().AsDuration(), IncludingClosed: req.GetIncludingClosed(),
		}, why)
	})
	return &adminpb.FreezeResponse{Outcome: out}, err
}

// Unfreeze ends a freeze.
func (s *Server) Unfreeze(ctx context.Context, req *adminpb.UnfreezeRequest) (*adminpb.UnfreezeResponse, error) {
	out, err := onDomain(ctx, "unfreeze", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		return s.service.Unfreeze(ctx, req.GetDomain(), req.GetRule(), why)
	})
	return &adminpb.UnfreezeResponse{Outcome: out}, err
}

// SetOverride gives one key of a rule another rate until a time.
func (s *Server) SetOverride(ctx context.Context, req *adminpb.SetOverrideRequest) (*adminpb.SetOverrideResponse, error) {
	out, err := onRule(ctx, "override", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		rate, err := rules.ParseRate(req.GetRate())
		if err != nil {
			return rollout.Outcome{}, fmt.Errorf("override %s/%s: %w: %w", req.GetDomain(), req.GetRule(), rules.ErrInvalid, err)
		}
		if !req.GetUntil().IsValid() {
			return rollout.Outcome{}, fmt.Errorf("override %s/%s: %w: until is missing: an override ends by itself", req.GetDomain(), req.GetRule(), rules.ErrInvalid)
		}
		return s.service.SetOverride(ctx, req.GetDomain(), req.GetRule(), rollout.OverrideFor{
			Values: req.GetKey(), Limit: req.GetLimit(), Rate: rate, Until: req.GetUntil().AsTime(), Confirmed: req.GetConfirmed(),
		}, why)
	})
	return &adminpb.SetOverrideResponse{Outcome: out}, err
}

// DeleteOverride ends the overrides of one key of a rule.
func (s *Server) DeleteOverride(ctx context.Context, req *adminpb.DeleteOverrideRequest) (*adminpb.DeleteOverrideResponse, error) {
	out, err := onRule(ctx, "override", req, func(ctx context.Context, why rollout.Why) (rollout.Outcome, error) {
		if req.GetId() == "" {
			return s.service.DeleteOverride(ctx, req.GetDomain(), req.GetRule(), req.GetKey(), req.GetLimit(), why)
		}
		var key rules.OverrideKey
		if err := key.UnmarshalText([]byte(req.GetId())); err != nil || len(req.GetKey()) > 0 {
			return rollout.Outcome{}, fmt.Errorf("override %s/%s: %w: id is the hash of a key as overrides show it, and stands in place of the key", req.GetDomain(), req.GetRule(), rules.ErrInvalid)
		}
		return s.service.DeleteOverrideOf(ctx, req.GetDomain(), req.GetRule(), key, req.GetLimit(), why)
	})
	return &adminpb.DeleteOverrideResponse{Outcome: out}, err
}

func outcomeMessage(domain string, out rollout.Outcome) *adminpb.Outcome {
	m := &adminpb.Outcome{Domain: domain, Revision: out.Revision, Note: out.Note, Steps: make([]*adminpb.Step, len(out.Steps))}
	for i, step := range out.Steps {
		m.Steps[i] = &adminpb.Step{Rule: step.Rule, Before: step.Before, After: step.After, Warnings: step.Warnings, Stable: step.Stable, Candidate: step.Candidate}
	}
	return m
}
