package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// ListRules returns rules as they stand.
func (s *Server) ListRules(ctx context.Context, req *adminpb.ListRulesRequest) (*adminpb.ListRulesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	list, err := gather(ctx, req.GetDomain(), s.service.Rules)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	domains, err := gather(ctx, req.GetDomain(), s.service.Domains)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	byName := make(map[string]*rules.Domain, len(domains))
	for i := range domains {
		byName[domains[i].Name] = &domains[i]
	}
	resp := &adminpb.ListRulesResponse{Rules: make([]*adminpb.Rule, len(list))}
	for i := range list {
		if resp.Rules[i], err = ruleMessage(&list[i], byName[list[i].Domain]); err != nil {
			return nil, fmt.Errorf("list rules: %s: %w", list[i].ID(), err)
		}
	}
	return resp, nil
}

func ruleMessage(r *rules.Rule, d *rules.Domain) (*adminpb.Rule, error) {
	m := &adminpb.Rule{
		Domain: r.Domain, Name: r.Name, Uid: r.UID, Revision: r.Revision, Stage: string(r.Stage()), Percent: uint32(r.Percent),
		Paused: r.Paused, State: r.State(),
	}
	if r.Course.Running() {
		m.Plan = r.Course.Plan.String()
	}
	now := time.Now()
	for _, o := range r.Overrides {
		if now.Before(o.Until) {
			m.Overrides++
		}
	}
	for _, v := range []*rules.Version{r.Stable, r.Candidate} {
		if d == nil || v == nil {
			continue
		}
		if f := d.Frozen(r.Name, &v.Spec, now); f != nil {
			m.FrozenUntil = timestamp(f.Until)
		}
	}
	var err error
	if m.Stable, err = versionMessage(r.Stable); err != nil {
		return nil, err
	}
	m.Candidate, err = versionMessage(r.Candidate)
	return m, err
}

func versionMessage(v *rules.Version) (*adminpb.Version, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // no version is no message
	}
	spec, err := v.Spec.Encode()
	if err != nil {
		return nil, err
	}
	return &adminpb.Version{Number: v.Number, Spec: string(spec)}, nil
}

// timestamp is nil for the zero time.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// ListDomains returns domains with their settings.
func (s *Server) ListDomains(ctx context.Context, req *adminpb.ListDomainsRequest) (*adminpb.ListDomainsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	list, err := gather(ctx, req.GetDomain(), s.service.Domains)
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	resp := &adminpb.ListDomainsResponse{Domains: make([]*adminpb.Domain, len(list))}
	for i := range list {
		d := &list[i]
		m := &adminpb.Domain{Name: d.Name, Revision: d.Revision, SettingsRevision: d.SettingsRevision}
		if d.Shard != nil {
			m.Shard = d.Shard.String()
		}
		for _, e := range d.Exempt {
			match, err := json.Marshal(e.Match)
			if err != nil {
				return nil, fmt.Errorf("list domains: exemption %s of %s: %w", e.Name, d.Name, err)
			}
			m.Exempt = append(m.Exempt, &adminpb.Exemption{Name: e.Name, Match: string(match)})
		}
		for _, f := range d.Freezes {
			m.Freezes = append(m.Freezes, &adminpb.FreezeState{Rule: f.Rule, Until: timestamp(f.Until), IncludingClosed: f.IncludingClosed})
		}
		resp.Domains[i] = m
	}
	return resp, nil
}

// History returns what each revision made of a rule, newest first.
func (s *Server) History(ctx context.Context, req *adminpb.HistoryRequest) (*adminpb.HistoryResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := checkRule(req.GetDomain(), req.GetRule()); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	if err := identity(ctx).May(access.Viewer, req.GetDomain()); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	history, err := s.service.History(ctx, req.GetDomain(), req.GetRule())
	if err != nil {
		return nil, fmt.Errorf("history of %s/%s: %w", req.GetDomain(), req.GetRule(), err)
	}
	if history, err = s.withFreezes(ctx, history); err != nil {
		return nil, fmt.Errorf("history of %s/%s: %w", req.GetDomain(), req.GetRule(), err)
	}
	resp := &adminpb.HistoryResponse{Entries: make([]*adminpb.HistoryEntry, 0, len(history))}
	for _, e := range slices.Backward(history) {
		m := &adminpb.HistoryEntry{
			Revision: e.Rule.Revision, Action: string(e.Action), State: e.Rule.State(), Percent: uint32(e.Rule.Percent),
			Time: timestamp(e.Time), Actor: e.Actor.Name, Verified: e.Actor.Verified, Message: e.Message,
		}
		if m.Stable, err = versionMessage(e.Rule.Stable); err != nil {
			return nil, err
		}
		if m.Candidate, err = versionMessage(e.Rule.Candidate); err != nil {
			return nil, err
		}
		resp.Entries = append(resp.Entries, m)
	}
	return resp, nil
}

// withFreezes adds the freezes of exactly this rule, which belong to the settings of its domain, to its history.
func (s *Server) withFreezes(ctx context.Context, history []rollout.Entry) ([]rollout.Entry, error) {
	of := &history[len(history)-1].Rule
	records, err := s.service.Audit(ctx, rollout.AuditQuery{Domain: of.Domain, Target: of.ID(), Limit: maxRecords})
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Revision == 0 || r.Action != rollout.ActionFreeze && r.Action != rollout.ActionUnfreeze {
			continue
		}
		at := slices.IndexFunc(history, func(e rollout.Entry) bool { return e.Rule.Revision > r.Revision })
		if at < 0 {
			at = len(history)
		}
		if at == 0 {
			continue // before the rule, which only then got its name
		}
		e := rollout.Entry{Action: r.Action, Rule: history[at-1].Rule, Time: r.Time, Actor: r.Actor, Message: r.Message}
		e.Rule.Revision = r.Revision
		history = slices.Insert(history, at, e)
	}
	return history, nil
}

// The most records of one reply, and how many are returned by default. A reply has fewer where they are large: whoever
// wants the rest asks for those before the last one.
const (
	maxRecords  = 1000
	someRecords = 100
	maxReply    = 8 << 20 // bytes
)

// ListAudit returns records of the audit trail, newest first.
func (s *Server) ListAudit(ctx context.Context, req *adminpb.ListAuditRequest) (*adminpb.ListAuditResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := identity(ctx).May(access.Viewer, req.GetDomain()); err != nil {
		return nil, fmt.Errorf("list the audit trail: %w", err)
	}
	for name, t := range map[string]*timestamppb.Timestamp{"from": req.GetFrom(), "to": req.GetTo()} {
		if t != nil && !t.IsValid() {
			return nil, fmt.Errorf("list the audit trail: %w: %s is no time", rules.ErrInvalid, name)
		}
	}
	limit := int(req.GetLimit())
	if limit <= 0 {
		limit = someRecords
	}
	// The head first: every record up to it is then there.
	head, err := s.service.Head(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the audit trail: %w", err)
	}
	list, err := s.service.Audit(ctx, rollout.AuditQuery{
		Domain: req.GetDomain(), Target: req.GetTarget(), Actor: req.GetActor(), Action: rollout.Action(req.GetAction()),
		From: orZero(req.GetFrom()), To: orZero(req.GetTo()), Before: req.GetBefore(), Limit: min(limit, maxRecords),
	})
	if err != nil {
		return nil, fmt.Errorf("list the audit trail: %w", err)
	}
	resp := &adminpb.ListAuditResponse{HeadNumber: head.Records, HeadSeal: head.Seal}
	size := 0
	for _, r := range list {
		record := recordMessage(&r)
		if size += proto.Size(record); size > maxReply && len(resp.Records) > 0 {
			break
		}
		resp.Records = append(resp.Records, record)
	}
	return resp, nil
}

func recordMessage(r *rollout.Record) *adminpb.Record {
	return &adminpb.Record{
		Number: r.Number, Revision: r.Revision, Refused: r.Refused, Domain: r.Domain, Time: timestamp(r.Time),
		Actor: r.Actor.Name, Verified: r.Actor.Verified, Action: string(r.Action), Target: r.Target, Message: r.Message,
		Detail: r.Detail, Before: string(r.Before), After: string(r.After), Seal: r.Seal,
	}
}
