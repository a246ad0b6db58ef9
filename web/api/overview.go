package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// Overview returns the requests of each domain that the caller may see. The counts of all are read in one go: those of a
// few domains would hardly be cheaper.
func (s *Server) Overview(ctx context.Context, req *adminpb.OverviewRequest) (*adminpb.OverviewResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := s.overview(ctx, req, time.Now())
	if err != nil {
		return nil, fmt.Errorf("overview: %w", err)
	}
	return resp, nil
}

func (s *Server) overview(ctx context.Context, req *adminpb.OverviewRequest, now time.Time) (*adminpb.OverviewResponse, error) {
	domains, err := gather(ctx, "", s.service.Domains)
	if err != nil {
		return nil, err
	}
	if err := s.counting(); err != nil {
		return nil, err
	}
	since := defaultStats
	if req.GetSince() != nil {
		since = req.GetSince().AsDuration()
	}
	sp, err := newSpan(now.Add(-since), now, now, req.GetStep().AsDuration(), maxStepsOfAll)
	if err != nil {
		return nil, err
	}
	points, err := s.options.Tallies.DomainSeries(ctx, sp.query("", nil))
	if err != nil {
		return nil, err
	}
	of := map[string][]tally.DomainPoint{}
	for i := range points {
		of[points[i].Domain] = append(of[points[i].Domain], points[i])
	}
	slices.SortFunc(domains, func(a, b rules.Domain) int { return cmp.Compare(a.Name, b.Name) })
	resp := &adminpb.OverviewResponse{From: timestamp(sp.from), To: timestamp(sp.to), Step: durationpb.New(sp.step)}
	for i := range domains {
		name := domains[i].Name
		resp.Domains = append(resp.Domains, &adminpb.DomainOverview{Domain: name, Requests: domainStats(of[name], sp.step)})
	}
	return resp, nil
}
