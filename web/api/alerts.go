package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/notify"
)

// maxAlerts is how many alerts a reply lists.
const maxAlerts = 1000

// Alerts is where alerts are read: part of an [alert.Store].
type Alerts interface {
	Alerts(ctx context.Context, q alert.Query) ([]alert.Alert, error)
}

// Targets are where alerts go, as of a [notify.Notifier].
type Targets interface {
	Targets() []string // kind and host of each
	Test(ctx context.Context, by string) []notify.Answer
}

type noAlerts struct{}

func (noAlerts) Alerts(context.Context, alert.Query) ([]alert.Alert, error) { return nil, nil }
func (noAlerts) Targets() []string                                          { return nil }
func (noAlerts) Test(context.Context, string) []notify.Answer               { return nil }

// ListAlerts returns the alerts, the newest first, and the silences.
func (s *Server) ListAlerts(ctx context.Context, req *adminpb.ListAlertsRequest) (*adminpb.ListAlertsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	alerts, err := gather(ctx, req.GetDomain(), func(ctx context.Context, domain string) ([]alert.Alert, error) {
		return s.options.Alerts.Alerts(ctx, alert.Query{Domain: domain, FiringOnly: !req.GetAll(), Limit: maxAlerts})
	})
	if err != nil {
		return nil, fmt.Errorf("list alerts: %w", err)
	}
	slices.SortStableFunc(alerts, func(a, b alert.Alert) int { return b.Since.Compare(a.Since) })
	silences, err := gather(ctx, req.GetDomain(), s.service.Silences)
	if err != nil {
		return nil, fmt.Errorf("list silences: %w", err)
	}
	resp := &adminpb.ListAlertsResponse{}
	for i := range alerts {
		resp.Alerts = append(resp.Alerts, alertMessage(&alerts[i]))
	}
	for i := range silences {
		resp.Silences = append(resp.Silences, silenceMessage(&silences[i]))
	}
	return resp, nil
}

func alertMessage(a *alert.Alert) *adminpb.Alert {
	m := &adminpb.Alert{
		Id: a.ID, Domain: a.Domain, Rule: a.Rule, Version: a.Version, Kind: string(a.Kind), Severity: string(a.Severity),
		Summary: a.Summary(), Description: a.Description(), Since: timestamp(a.Since), Resolved: timestamp(a.Resolved), Ending: a.Ending,
		Refused: a.Evidence.Count.Refused, Requests: a.Evidence.Count.Of, Bound: a.Evidence.Bound, Baseline: a.Evidence.Baseline,
		Limit: a.Evidence.Limit, Hits: string(a.Hits), Distinct: a.Distinct, State: a.State,
	}
	for _, k := range a.Keys {
		m.Keys = append(m.Keys, &adminpb.AlertKey{Label: k.Label, Count: k.Count})
	}
	for _, o := range a.Offers {
		m.Offers = append(m.Offers, &adminpb.Offer{Command: o.Command, Effect: o.Effect})
	}
	return m
}

func silenceMessage(one *rollout.Silence) *adminpb.SilenceState {
	return &adminpb.SilenceState{
		Domain: one.Domain, Rule: one.Rule, At: timestamppb.New(one.At), Until: timestamppb.New(one.Until), Actor: one.Actor.Name, Message: one.Message,
	}
}

// Silence has no alert of a rule sent for a time.
func (s *Server) Silence(ctx context.Context, req *adminpb.SilenceRequest) (*adminpb.SilenceResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reason, err := about(ctx, "silence", req)
	if err != nil {
		return nil, err
	}
	made, err := s.service.Silence(ctx, req.GetDomain(), req.GetRule(), req.GetFor().AsDuration().Truncate(time.Microsecond), reason)
	if err != nil {
		return nil, err
	}
	return &adminpb.SilenceResponse{Silence: silenceMessage(&made)}, nil
}

// Unsilence ends a silence.
func (s *Server) Unsilence(ctx context.Context, req *adminpb.UnsilenceRequest) (*adminpb.UnsilenceResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reason, err := about(ctx, "unsilence", req)
	if err != nil {
		return nil, err
	}
	return &adminpb.UnsilenceResponse{}, s.service.Unsilence(ctx, req.GetDomain(), req.GetRule(), reason)
}

// about checks a request about the alerts of one rule.
func about(ctx context.Context, verb string, req interface {
	GetDomain() string
	GetRule() string
	GetMessage() string
},
) (rollout.Why, error) {
	if err := checkRule(req.GetDomain(), req.GetRule()); err != nil {
		return rollout.Why{}, fmt.Errorf("%s: %w", verb, err)
	}
	reason, err := why(ctx, &adminpb.Why{Message: req.GetMessage()})
	if err != nil {
		return reason, fmt.Errorf("%s: %w", verb, err)
	}
	return reason, nil
}

// ListTargets returns where alerts are sent.
func (s *Server) ListTargets(ctx context.Context, _ *adminpb.ListTargetsRequest) (*adminpb.ListTargetsResponse, error) {
	if _, err := visible(ctx, ""); err != nil {
		return nil, fmt.Errorf("list targets: %w", err)
	}
	return &adminpb.ListTargetsResponse{Targets: s.options.Notifier.Targets()}, nil
}

// TestAlerts sends an alert that says that it is a test to every target.
func (s *Server) TestAlerts(ctx context.Context, req *adminpb.TestAlertsRequest) (*adminpb.TestAlertsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reason, err := why(ctx, &adminpb.Why{Message: req.GetMessage()})
	if err != nil {
		return nil, fmt.Errorf("test alerts: %w", err)
	}
	resp := &adminpb.TestAlertsResponse{}
	return resp, s.service.TestAlerts(ctx, reason, func(ctx context.Context) string {
		var said []string
		for _, a := range s.options.Notifier.Test(ctx, reason.Who.Name) {
			answer := &adminpb.TargetAnswer{Target: a.Target}
			text := a.Target + " took it"
			if a.Err != nil {
				answer.Error = a.Err.Error()
				text = a.Target + ": " + answer.Error
			}
			resp.Answers, said = append(resp.Answers, answer), append(said, text)
		}
		if len(said) == 0 {
			return "there are no targets"
		}
		return strings.Join(said, "\n")
	})
}
