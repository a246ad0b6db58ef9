package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/web/api/adminpb"
)

// originRecords is in how many records of a domain it is looked for who made an override. Each holds all overrides of its
// rule, twice.
const originRecords = 200

// ListOverrides returns the overrides that have not ended: of all rules, of one, or of one key of it.
func (s *Server) ListOverrides(ctx context.Context, req *adminpb.ListOverridesRequest) (*adminpb.ListOverridesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := s.listOverrides(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("list overrides: %w", err)
	}
	return resp, nil
}

func (s *Server) listOverrides(ctx context.Context, req *adminpb.ListOverridesRequest) (*adminpb.ListOverridesResponse, error) {
	domain, rule := req.GetDomain(), req.GetRule()
	if rule != "" || len(req.GetKey()) > 0 {
		if err := checkRule(domain, rule); err != nil {
			return nil, err
		}
	}
	list, err := gather(ctx, domain, s.service.Rules)
	if err != nil {
		return nil, err
	}
	of := func(rules.OverrideKey) bool { return true }
	if rule != "" {
		list = slices.DeleteFunc(list, func(r rules.Rule) bool { return r.Name != rule })
		if len(list) == 0 {
			return nil, fmt.Errorf("rule %s/%s: %w", domain, rule, rules.ErrNotFound)
		}
	}
	if len(req.GetKey()) > 0 {
		key, err := s.service.OverrideKey(ctx, domain, rule, req.GetKey())
		if err != nil {
			return nil, err
		}
		of = func(k rules.OverrideKey) bool { return k == key }
	}
	resp := &adminpb.ListOverridesResponse{}
	now, origins := time.Now(), map[string][]origin{}
	for i := range list {
		r := &list[i]
		for _, o := range r.Overrides {
			if !of(o.Key) || !now.Before(o.Until) {
				continue
			}
			if _, read := origins[r.Domain]; !read {
				if origins[r.Domain], err = s.origins(ctx, r.Domain); err != nil {
					return nil, err
				}
			}
			m := &adminpb.Override{Rule: r.ID(), Key: o.Key.String(), Limit: o.Limit, Rate: o.Rate.String(), Until: timestamp(o.Until)}
			if at := slices.IndexFunc(origins[r.Domain], func(by origin) bool { return by.made(r.Name, &o) }); at >= 0 {
				by := origins[r.Domain][at].Record
				m.Made, m.Actor, m.Verified, m.Message = timestamp(by.Time), by.Actor.Name, by.Actor.Verified, by.Message
			}
			resp.Overrides = append(resp.Overrides, m)
		}
	}
	return resp, nil
}

// origin is a record of an override, with what it made of the rule.
type origin struct {
	*rollout.Record
	before, after map[string]overridden
}

type overridden struct {
	Overrides []rules.Override `json:"overrides"`
}

// origins are the last records of a domain that made overrides, the newest first.
func (s *Server) origins(ctx context.Context, domain string) ([]origin, error) {
	records, err := s.service.Audit(ctx, rollout.AuditQuery{Domain: domain, Action: rollout.ActionOverride, Limit: originRecords})
	if err != nil {
		return nil, err
	}
	list := make([]origin, 0, len(records))
	for i := range records {
		o := origin{Record: &records[i]}
		if o.Revision == 0 {
			continue // refused
		}
		if err := json.Unmarshal(o.Before, &o.before); err != nil {
			return nil, fmt.Errorf("record %d, before: %w", o.Number, err)
		}
		if err := json.Unmarshal(o.After, &o.after); err != nil {
			return nil, fmt.Errorf("record %d, after: %w", o.Number, err)
		}
		list = append(list, o)
	}
	return list, nil
}

// made reports whether the override came with this record.
func (o *origin) made(rule string, override *rules.Override) bool {
	same := func(other rules.Override) bool {
		return other.Key == override.Key && other.Limit == override.Limit && other.Rate == override.Rate && other.Until.Equal(override.Until)
	}
	return slices.ContainsFunc(o.after[rule].Overrides, same) && !slices.ContainsFunc(o.before[rule].Overrides, same)
}
