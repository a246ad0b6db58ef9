package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	someKeys   = 20 // by default
	defaultTop = 15 * time.Minute
)

// Top returns the keys that a rule went against most.
func (s *Server) Top(ctx context.Context, req *adminpb.TopRequest) (*adminpb.TopResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := s.top(ctx, req, time.Now())
	if err != nil {
		return nil, fmt.Errorf("top: %w", err)
	}
	return resp, nil
}

func (s *Server) top(ctx context.Context, req *adminpb.TopRequest, now time.Time) (*adminpb.TopResponse, error) {
	if err := s.mayLook(ctx, req.GetDomain(), req.GetRule()); err != nil {
		return nil, err
	}
	sp, err := keySpan(req.GetSince(), defaultTop, now)
	if err != nil {
		return nil, err
	}
	sub, err := s.subject(ctx, req.GetDomain(), req.GetRule())
	if err != nil {
		return nil, err
	}
	counted, _, err := s.counted(ctx, req.GetDomain(), []subject{sub}, &sp)
	if err != nil {
		return nil, err
	}
	keys, err := s.options.Tallies.Keys(ctx, sp.query(req.GetDomain(), []string{sub.rule.UID}))
	if err != nil {
		return nil, err
	}
	resp := &adminpb.TopResponse{From: timestamp(sp.from), To: timestamp(sp.to)}
	for _, v := range slices.Backward(counted) {
		if v.affected() == 0 {
			continue
		}
		would, alone := v.total.WouldRefuse()
		shared, _ := v.total.Shared()
		m := &adminpb.VersionKeys{
			Version: v.version, Role: roleOf(&sub.rule, v.version), Refused: v.total.Refusals(), WouldRefuse: would, WouldRefuseShared: would - alone,
			JudgedShared: shared,
		}
		at := slices.IndexFunc(keys, func(k tally.VersionKeys) bool { return k.Version == v.version })
		if at >= 0 {
			m.Keys, m.Distinct = topKeys(&keys[at], v.affected(), int(req.GetLimit()))
		}
		resp.Versions = append(resp.Versions, m)
	}
	resp.Missing, err = s.missing(ctx, req.GetDomain(), sp.from, sp.to)
	return resp, err
}

// topKeys are the first keys of a version, and about how many it has.
func topKeys(of *tally.VersionKeys, affected int64, limit int) (list []*adminpb.TopKey, distinct int64) {
	if limit <= 0 {
		limit = someKeys
	}
	keys := of.Keys.Keys()
	if distinct = int64(len(keys)); len(keys) == tally.MaxTopKeys {
		distinct = max(distinct, of.Distinct.Estimate())
	}
	for _, k := range keys[:min(limit, len(keys))] {
		seen := of.Seen[k.Key]
		list = append(list, &adminpb.TopKey{
			Label: k.Label, Id: k.Key.String(), Refused: k.Refused, WouldRefuse: k.Would, Over: k.Over,
			Share:     min(1, float64(k.Count())/float64(affected)),
			FirstSeen: timestamp(seen.First), LastSeen: timestamp(seen.Last),
		})
	}
	return list, distinct
}
