package api_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

func TestOverviewHasTheRequestsOfEachDomain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		apply(t, s, file("f", "a", "x", "1/s"), file("g", "idle", "x", "1/s"), file("h", "other", "x", "1/s"))
		until("12:00:05")
		counts := func(domain string, allowed, refused int64) tally.DomainTally {
			return tally.DomainTally{Domain: domain, Counts: tally.DomainCounts{tally.RequestsAllowed: allowed, tally.RequestsRefused: refused}}
		}
		w := tally.Window{Domains: []tally.DomainTally{counts("a", 8, 2), counts("other", 100, 0), counts("gone", 5, 5)}}
		c.save(t, "n1", "11:30:40", w)
		c.save(t, "n1", "11:59:40", w)
		c.save(t, "n2", "11:59:50", w)
		resp, err := s.Overview(as(t, access.Viewer, "a", "idle"), &adminpb.OverviewRequest{Step: durationpb.New(5 * time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		figures := func(n int64) *adminpb.DomainFigures { return &adminpb.DomainFigures{Allowed: 8 * n, Refused: 2 * n} }
		point := func(clock string, n int64) *adminpb.DomainPoint {
			return &adminpb.DomainPoint{Start: timestamppb.New(at(clock)), Figures: figures(n)}
		}
		want := &adminpb.OverviewResponse{
			From: timestamppb.New(at("11:00:00")), To: timestamppb.New(at("12:00:05")), Step: durationpb.New(5 * time.Minute),
			Domains: []*adminpb.DomainOverview{
				{Domain: "a", Requests: &adminpb.DomainStats{Total: figures(3), Points: []*adminpb.DomainPoint{point("11:30:00", 1), point("11:55:00", 2)}}},
				{Domain: "idle", Requests: &adminpb.DomainStats{Total: &adminpb.DomainFigures{}}},
			},
		}
		if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		resp, err = s.Overview(anybody(t), &adminpb.OverviewRequest{Since: durationpb.New(10 * time.Minute)})
		if err != nil || len(resp.GetDomains()) != 3 || resp.GetDomains()[2].GetRequests().GetTotal().GetAllowed() != 200 || resp.GetStep().AsDuration() != 30*time.Second {
			t.Errorf("of ten minutes and everybody: %v, %v", resp, err)
		}
		if _, err := s.Overview(anybody(t), &adminpb.OverviewRequest{Since: durationpb.New(-time.Minute)}); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("of the future: %v, want ErrInvalid", err)
		}
	})
}
