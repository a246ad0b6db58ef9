package api_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally/spike"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/notify"
)

func TestListAlertsShowsWhatTheCallerIsFor(t *testing.T) {
	t.Parallel()
	s, m := setup(t)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	one := func(id, domain string, after time.Duration) alert.Alert {
		return alert.Alert{
			ID: id, Domain: domain, Rule: "x", Version: 2, Kind: alert.WouldRefuse, Severity: alert.Info, State: "v2 in shadow",
			Evidence: spike.Evidence{Count: spike.Count{Refused: 15, Of: 15}, Bound: 0.61, Baseline: 0.005, Limit: 0.025},
			Hits:     alert.OneClient, Distinct: 1, Keys: []alert.Key{{Label: "10.0.0.*", Count: 15}},
			Offers: []alert.Offer{{Command: "c", Effect: "e"}}, Since: at.Add(after),
		}
	}
	over := one("over", "a", 3*time.Minute)
	over.Resolved, over.Ending = at.Add(time.Hour), "calm"
	if err := m.SaveRound(t.Context(), time.Time{}, alert.Round{At: at, Alerts: []alert.Alert{
		one("a", "a", 0), one("b", "b", time.Minute), one("c", "c", 2*time.Minute), over,
	}}); err != nil {
		t.Fatal(err)
	}
	ids := func(ctx context.Context, req *adminpb.ListAlertsRequest) (list []string) {
		resp, err := s.ListAlerts(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range resp.GetAlerts() {
			list = append(list, a.GetId())
		}
		return list
	}
	for _, c := range []struct {
		got, want []string
	}{
		{ids(as(t, access.Viewer), &adminpb.ListAlertsRequest{}), []string{"c", "b", "a"}},
		{ids(as(t, access.Viewer, "a", "c"), &adminpb.ListAlertsRequest{All: true}), []string{"over", "c", "a"}},
		{ids(as(t, access.Viewer, "a", "c"), &adminpb.ListAlertsRequest{Domain: "c"}), []string{"c"}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	if _, err := s.ListAlerts(as(t, access.Viewer, "a"), &adminpb.ListAlertsRequest{Domain: "b"}); !errors.Is(err, rules.ErrForbidden) {
		t.Errorf("another's domain: %v, want that it is forbidden", err)
	}
	resp, err := s.ListAlerts(anybody(t), &adminpb.ListAlertsRequest{Domain: "a", All: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &adminpb.Alert{
		Id: "over", Domain: "a", Rule: "x", Version: 2, Kind: "would_refuse", Severity: "info", State: "v2 in shadow", Refused: 15, Requests: 15,
		Bound: 0.61, Baseline: 0.005, Limit: 0.025, Hits: "one_client", Distinct: 1, Keys: []*adminpb.AlertKey{{Label: "10.0.0.*", Count: 15}},
		Offers: []*adminpb.Offer{{Command: "c", Effect: "e"}}, Since: timestamppb.New(over.Since), Resolved: timestamppb.New(over.Resolved),
		Ending: "calm", Summary: over.Summary(), Description: over.Description(),
	}
	if diff := cmp.Diff(want, resp.GetAlerts()[0], protocmp.Transform()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// targets answer tests.
type targets []notify.Answer

func (list targets) Targets() (names []string) {
	for _, a := range list {
		names = append(names, a.Target)
	}
	return names
}

func (list targets) Test(_ context.Context, by string) []notify.Answer {
	return append([]notify.Answer{{Target: "slack for " + by}}, list...)
}

func TestATestOfAlertsIsRecordedWithWhatCameOfIt(t *testing.T) {
	t.Parallel()
	m := rollouttest.New()
	s := api.NewServer(rollout.NewService(m, time.Now), api.Options{Alerts: m, Notifier: targets{{Target: "webhook h", Err: errors.New("away")}}})
	if known, err := s.ListTargets(as(t, access.Viewer, "a"), &adminpb.ListTargetsRequest{}); err != nil || !slices.Equal(known.GetTargets(), []string{"webhook h"}) {
		t.Errorf("the targets are %v, %v", known, err)
	}
	resp, err := s.TestAlerts(as(t, access.Operator), &adminpb.TestAlertsRequest{Message: "drill"})
	if err != nil {
		t.Fatal(err)
	}
	want := &adminpb.TestAlertsResponse{Answers: []*adminpb.TargetAnswer{{Target: "slack for somebody"}, {Target: "webhook h", Error: "away"}}}
	if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if r := trail(t, m)[0]; r.Action != rollout.ActionTestAlert || r.Message != "drill" || r.Detail != "slack for somebody took it\nwebhook h: away" {
		t.Errorf("the trail ends with %+v", r)
	}
	for _, who := range []context.Context{as(t, access.Operator, "a"), as(t, access.Editor)} {
		if _, err := s.TestAlerts(who, &adminpb.TestAlertsRequest{}); !errors.Is(err, rules.ErrForbidden) {
			t.Errorf("%v, want that it is forbidden", err)
		}
		if r := trail(t, m)[0]; r.Action != rollout.ActionTestAlert || r.Refused == "" {
			t.Errorf("the trail ends with %+v, want the attempt", r)
		}
	}
}
