package ui

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (u *UI) silenceForm(ctx context.Context, r *request) (form, error) {
	length, err := r.length("for", time.Hour)
	if err != nil {
		return form{}, err
	}
	silence, err := u.silenceOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	id, text := frozenThing(r), rules.HoldText(length)
	return form{
		Title: fmt.Sprintf("Silence the alerts of %s for %s?", id, text), Verb: "Silence for " + text,
		Choices: lengthChoices(r, "silence", silenceLengths, length),
		Changes: []change{{"Alerts of " + id, silenceWords(silence), "not sent until " + time.Now().Add(length).UTC().Format(utc)}},
		Says:    []string{"What the rule refuses now is taken for usual, and what fires is acknowledged. It goes on refusing: to end that, freeze it or roll it back. The silence ends by itself."},
		Fields:  []field{hidden("for", text)},
		Command: command("alert", "silence", id, "--for", text, "-m", "MESSAGE"),
	}, nil
}

// silenceOf is the silence of a rule; nil: there is none.
func (u *UI) silenceOf(ctx context.Context, r *request) (*adminpb.SilenceState, error) {
	if _, err := u.ruleOf(ctx, r); err != nil {
		return nil, err
	}
	resp, err := u.api.ListAlerts(ctx, &adminpb.ListAlertsRequest{Domain: r.PathValue("domain")})
	for _, s := range resp.GetSilences() {
		if s.GetRule() == r.PathValue("rule") {
			return s, err
		}
	}
	return nil, err
}

func silenceWords(s *adminpb.SilenceState) string {
	if s == nil {
		return "sent"
	}
	return fmt.Sprintf("not sent until %s, by %s", s.GetUntil().AsTime().UTC().Format(utc), s.GetActor())
}

func (u *UI) silence(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	length, err := r.length("for", 0)
	if err != nil {
		return done{}, err
	}
	resp, err := u.api.Silence(ctx, &adminpb.SilenceRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), For: durationpb.New(length), Message: why.GetMessage()})
	return done{says: fmt.Sprintf("Alerts of %s are %s.", frozenThing(r), silenceWords(resp.GetSilence()))}, err
}

func (u *UI) unsilenceForm(ctx context.Context, r *request) (form, error) {
	silence, err := u.silenceOf(ctx, r)
	id := frozenThing(r)
	return form{
		Title: "Send the alerts of " + id + " again?", Verb: "End the silence",
		Changes: []change{{"Alerts of " + id, silenceWords(silence), "sent"}},
		Says:    []string{"What still fires is sent at once."},
		Command: command("alert", "unsilence", id, "-m", "MESSAGE"),
	}, err
}

func (u *UI) unsilence(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	_, err := u.api.Unsilence(ctx, &adminpb.UnsilenceRequest{Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Message: why.GetMessage()})
	return done{says: "Alerts of " + frozenThing(r) + " are sent again."}, err
}

// targetsTime is how long targets may take to answer a test: a little more than the control plane gives them.
const targetsTime = 12 * time.Second

func (u *UI) testAlertsForm(context.Context, *request) (form, error) {
	return form{
		Title: "Send a test alert to every target?", Verb: "Send",
		Says:    []string{"It says that it is a test, and is over at once."},
		Command: command("alert", "test", "-m", "MESSAGE"),
	}, nil
}

func (u *UI) testAlerts(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	resp, err := u.api.TestAlerts(ctx, &adminpb.TestAlertsRequest{Message: why.GetMessage()})
	answer := &shown{Title: "The test alert was sent", Back: backFrom(r.Request)}
	if len(resp.GetAnswers()) == 0 {
		answer.Title, answer.Says = "No test alert was sent", []string{"The control plane has no target for alerts: it is started with them, see its configuration."}
	}
	for _, a := range resp.GetAnswers() {
		text := "✓ took it"
		if a.GetError() != "" {
			text = "✕ " + a.GetError()
		}
		answer.Facts = append(answer.Facts, fact{a.GetTarget(), text})
	}
	return done{shown: answer}, err
}
