package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	mostRates = time.Hour // that are looked at
	maxTried  = 20
	maxRate   = 1 << 53 // a minute: more than a rule may say
	rateSteps = 100
)

// KeyRates returns how often the keys of a rule called, and what limits would meet.
func (s *Server) KeyRates(ctx context.Context, req *adminpb.KeyRatesRequest) (*adminpb.KeyRatesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := s.keyRates(ctx, req, time.Now())
	if err != nil {
		return nil, fmt.Errorf("key rates: %w", err)
	}
	return resp, nil
}

func (s *Server) keyRates(ctx context.Context, req *adminpb.KeyRatesRequest, now time.Time) (*adminpb.KeyRatesResponse, error) {
	if err := s.mayLook(ctx, req.GetDomain(), req.GetRule()); err != nil {
		return nil, err
	}
	if err := checkTried(req.GetTried()); err != nil {
		return nil, err
	}
	from, err := ratesFrom(req.GetSince(), now)
	if err != nil {
		return nil, err
	}
	sub, err := s.subject(ctx, req.GetDomain(), req.GetRule())
	if err != nil {
		return nil, err
	}
	rates, err := s.options.Tallies.Rates(ctx, tally.Query{Domain: req.GetDomain(), UIDs: []string{sub.rule.UID}, From: from, To: now})
	if err != nil {
		return nil, err
	}
	resp := &adminpb.KeyRatesResponse{From: timestamp(from), To: timestamp(now), Version: sub.newest(rates)}
	curve := tally.NewCurve(sub.minutes(rates, resp.GetVersion()))
	resp.Keys, resp.Calls, resp.Sampled, resp.ShareSampled = curve.Keys(), curve.Calls(), curve.Sampled(), curve.Share()
	for _, step := range curve.Steps(rateSteps) {
		resp.Steps = append(resp.Steps, rateStep(step))
	}
	for _, rate := range req.GetTried() {
		resp.Tried = append(resp.Tried, rateStep(curve.At(rate)))
	}
	for _, b := range curve.Histogram() {
		resp.Histogram = append(resp.Histogram, &adminpb.RateBucket{From: b.From, Below: b.Below, Keys: b.Keys, Calls: b.Calls})
	}
	return resp, nil
}

func checkTried(rates []int64) error {
	if len(rates) > maxTried {
		return fmt.Errorf("%w: %d rates are tried: at most %d", rules.ErrInvalid, len(rates), maxTried)
	}
	for _, rate := range rates {
		if rate < 0 || rate > maxRate {
			return fmt.Errorf("%w: %d is no rate of calls per minute: it is from 0 to %d", rules.ErrInvalid, rate, int64(maxRate))
		}
	}
	return nil
}

func ratesFrom(since *durationpb.Duration, now time.Time) (time.Time, error) {
	length := mostRates
	if since != nil {
		length = since.AsDuration()
	}
	if length <= 0 || length > mostRates {
		return time.Time{}, fmt.Errorf("%w: since is %s: it is more than 0, and at most the hour of which rates are kept", rules.ErrInvalid, length)
	}
	return now.Add(-length).Truncate(time.Minute), nil
}

// newest is the version whose rates are looked at: the candidate or else the stable where it has any, and otherwise the last
// one that has; 0 where none has.
func (sub *subject) newest(rates []tally.VersionRates) (version int64) {
	stands := sub.rule.Candidate
	if stands == nil {
		stands = sub.rule.Stable
	}
	for i := range rates {
		version = rates[i].Version
		if stands != nil && version == stands.Number {
			break
		}
	}
	return version
}

// minutes are the rates of a version, and of the others whose keys called as the same: such a version only has other limits,
// or another text.
func (sub *subject) minutes(rates []tally.VersionRates, version int64) []tally.Rates {
	spec := sub.versions[version]
	byStart := map[time.Time]*tally.Rates{}
	for i := range rates {
		r := &rates[i]
		other := sub.versions[r.Version]
		if r.Version != version && (spec == nil || other == nil || !sameCalls(&spec.Spec, &other.Spec)) {
			continue
		}
		if byStart[r.Start] == nil {
			byStart[r.Start] = &tally.Rates{}
		}
		byStart[r.Start].Add(&r.Rates)
	}
	list := make([]tally.Rates, 0, len(byStart))
	for _, r := range byStart {
		list = append(list, *r)
	}
	return list
}

// sameCalls reports whether two specs meet the same requests under the same keys.
func sameCalls(a, b *rules.Spec) bool {
	meets := func(s *rules.Spec) rules.Spec {
		return rules.Spec{Match: s.Match, When: s.When, Exact: s.Exact, Key: s.Key, MissingKey: s.MissingKey}
	}
	return meets(a).Equal(meets(b))
}

func rateStep(s tally.RateStep) *adminpb.RateStep {
	return &adminpb.RateStep{CallsPerMinute: s.Rate, Keys: s.Keys, Calls: s.Calls}
}
