package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// The shortest and the longest silence: one that nobody remembers must not hide a rule for ever.
const (
	MinSilence = time.Minute
	MaxSilence = 7 * 24 * time.Hour
)

// Silence is a rule of which no alert is sent until a time. What fired when it was made is acknowledged with it.
type Silence struct {
	Domain, Rule string
	At, Until    time.Time // UTC, microseconds
	Actor        Actor
	Message      string
}

// Silence has no alert of a rule sent for a time, and takes what the rule refuses now for usual.
func (s *Service) Silence(ctx context.Context, domain, name string, length time.Duration, why Why) (Silence, error) {
	var made Silence
	err := s.onAlerts(ctx, domain, domain+"/"+name, ActionSilence, why, func(r Record) error {
		if length < MinSilence || length > MaxSilence {
			return fmt.Errorf("%w: a silence lasts from a minute to seven days, and ends by itself", rules.ErrInvalid)
		}
		list, err := s.store.Rules(ctx, domain)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list, func(r rules.Rule) bool { return r.Name == name }) {
			return rules.ErrNotFound
		}
		made = Silence{Domain: domain, Rule: name, At: r.Time, Until: r.Time.Add(length), Actor: r.Actor, Message: r.Message}
		r.Detail = fmt.Sprintf("%s/%s: no alert is sent until %s", domain, name, made.Until.Format(timeText))
		return s.store.SaveSilence(ctx, made, r)
	})
	return made, err
}

// Unsilence ends the silence of a rule; what still fires is sent then.
func (s *Service) Unsilence(ctx context.Context, domain, name string, why Why) error {
	return s.onAlerts(ctx, domain, domain+"/"+name, ActionUnsilence, why, func(r Record) error {
		silences, err := s.Silences(ctx, domain)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(silences, func(s Silence) bool { return s.Rule == name }) {
			return fmt.Errorf("%w: there is no silence of it", rules.ErrNotFound)
		}
		r.Detail = fmt.Sprintf("%s/%s: alerts are sent again", domain, name)
		return s.store.DeleteSilence(ctx, domain, name, r)
	})
}

// Silences returns those of a domain that have not ended, or of all domains when domain is "", by domain and rule.
func (s *Service) Silences(ctx context.Context, domain string) ([]Silence, error) {
	list, err := s.store.Silences(ctx, domain)
	return slices.DeleteFunc(list, func(one Silence) bool { return !s.now().Before(one.Until) }), err
}

// TestAlerts has test send an alert to where alerts go, and records what it says came of it.
func (s *Service) TestAlerts(ctx context.Context, why Why, test func(context.Context) string) error {
	return s.onAlerts(ctx, "", "the targets of alerts", ActionTestAlert, why, func(r Record) error {
		r.Detail = test(ctx)
		return s.store.Note(ctx, r, "")
	})
}

// onAlerts runs what an operator may do about alerts. It makes no revision.
func (s *Service) onAlerts(ctx context.Context, domain, target string, action Action, why Why, do func(Record) error) error {
	err := why.Who.May(access.Operator, domain)
	if err == nil {
		r := s.note(action, target, why)
		r.Domain = domain
		err = do(r)
	}
	if err != nil {
		return s.Refused(ctx, domain, action, target, why, fmt.Errorf("%s %s: %w", action, target, err))
	}
	return nil
}
