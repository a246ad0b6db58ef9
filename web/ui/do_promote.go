package ui

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// shares are the percentages that are offered, in hundredths of a percent.
var shares = []uint32{100, 500, 1000, 2500, 5000, 10_000}

// What the form of a plan begins with.
const (
	usualGates = rules.GateWouldRefuse + " 2%"
	gatesHint  = rules.GateWouldRefuse + " bounds what it refuses or would, " + rules.GateDelta + " 0.5% how much more than the stable, " +
		rules.GateMinRequests + " 500 says how many are judged first"
	usualHold = 15 * time.Minute
)

// promoteForm asks how far: to a share of keys (?to=10%), to the next step of the plan (?next=1), or by a plan (?plan=).
func (u *UI) promoteForm(ctx context.Context, r *request) (form, error) {
	o, err := u.ruleOf(ctx, r)
	if err != nil {
		return form{}, err
	}
	switch {
	case r.Query.Has("plan"):
		return o.planForm(r), nil
	case r.Query.Has("next"):
		return o.nextForm(), nil
	}
	text := r.Query.Get("to")
	if text == "" {
		text = rules.Percent(nextShare(o.GetRule().GetPercent())).String()
	}
	to, err := parseShare(text)
	if err != nil {
		return form{}, err
	}
	return o.shareForm(r, to)
}

// parseShare reads a share of keys.
func parseShare(text string) (rules.Percent, error) {
	to, err := rules.ParsePercent(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		return 0, fmt.Errorf("to: %w", err)
	}
	return to, nil
}

// nextShare is the least of the usual shares above one.
func nextShare(now uint32) uint32 {
	for _, s := range shares {
		if s > now {
			return s
		}
	}
	return uint32(rules.AllKeys)
}

func (o onRule) shareForm(r *request, to rules.Percent) (form, error) {
	now := rules.Percent(o.GetRule().GetPercent())
	title, verb := fmt.Sprintf("Promote %s to %s of keys?", o.id, to), "Promote to "+to.String()
	switch {
	case to == 0:
		title, verb = fmt.Sprintf("Put the candidate of %s back in shadow?", o.id), "Abort"
	case to < now:
		title, verb = fmt.Sprintf("Lower %s to %s of keys?", o.id, to), "Lower to "+to.String()
	case to == rules.AllKeys:
		title, verb = fmt.Sprintf("Make the candidate of %s the stable version?", o.id), "Promote to 100%"
	}
	f := o.form(title, verb, "promote", o.id, "--to", to.String())
	f.Fields = []field{hidden("to", to.String())}
	f.Changes = []change{{"Share of keys", now.String(), to.String()}}
	f.Facts = append(o.proof(), f.Facts...)
	f.Choices = o.shareChoices(r, to)
	o.effect(&f, now, to)
	var err error
	if to > 0 {
		f.Diff, err = o.between(o.GetRule().GetStable(), o.GetRule().GetCandidate())
	}
	return f, err
}

// shareChoices are the ways to promote.
func (o onRule) shareChoices(r *request, to rules.Percent) *choices {
	path := backFrom(r.Request) + "/do/promote"
	c := &choices{Label: "Share of keys", Exact: &field{Name: "to", Label: "Another share", Value: to.String(), Hint: "steps of 0.01%"}}
	for _, s := range shares {
		p := rules.Percent(s)
		c.Items = append(c.Items, choice{p.String(), path + "?to=" + strings.ReplaceAll(p.String(), "%", "%25"), p == to})
	}
	if o.running() {
		c.Items = append(c.Items, choice{"next step of the plan", path + "?next=1", false})
	}
	c.Items = append(c.Items, choice{"by a plan…", path + "?plan=", false})
	return c
}

// running reports that a plan promotes the rule.
func (o onRule) running() bool {
	p := o.GetPlan()
	return p != nil && int(p.GetStep()) < len(p.GetSteps())-1
}

// effect says for whom another version decides from then on.
func (o onRule) effect(f *form, now, to rules.Percent) {
	v, stable := o.GetRule().GetCandidate(), o.GetRule().GetStable()
	if v == nil {
		return
	}
	f.Changes = append(f.Changes, change{"Limits for these keys", saysWords(stable), saysWords(v)})
	switch {
	case to == rules.AllKeys:
		f.Says = append(f.Says, fmt.Sprintf("v%d decides for every key and becomes the stable version; nothing is on trial any more.", v.GetNumber()))
	case to > now && now > 0:
		f.Says = append(f.Says, fmt.Sprintf("The keys for which v%d decides now stay, and %s of all keys are added.", v.GetNumber(), to-now))
	case to < now:
		f.Says = append(f.Says, fmt.Sprintf("For %s of the keys v%d no longer decides: exactly those that were added last.", now-to, v.GetNumber()))
	}
}

func (o onRule) nextForm() form {
	f := o.form("Take the next step of the plan of "+o.id+"?", "Next step", "promote", o.id, "--to", "next")
	f.Fields = []field{hidden("next", "1")}
	f.Facts = append(o.proof(), f.Facts...)
	if p := o.GetPlan(); o.running() {
		from, to := p.GetSteps()[p.GetStep()], p.GetSteps()[p.GetStep()+1]
		f.Title = fmt.Sprintf("Take %s to %s of keys, the next step of its plan?", o.id, rules.Percent(to.GetPercent()))
		f.Verb = "Go on to " + rules.Percent(to.GetPercent()).String()
		f.Changes = []change{{"Share of keys", rules.Percent(from.GetPercent()).String(), rules.Percent(to.GetPercent()).String()}}
		for _, wait := range p.GetWaits() {
			f.Warnings = append(f.Warnings, "The plan waits: "+wait+".")
		}
		if left := from.GetHold().AsDuration() - p.GetElapsed().AsDuration(); left > 0 {
			f.Warnings = append(f.Warnings, fmt.Sprintf("The plan holds this step for another %s.", lasting(left)))
		}
	}
	return f
}

// planForm asks for the texts of a plan. Who opens it finds one that is usual from where the candidate is.
func (o onRule) planForm(r *request) form {
	steps, gates, onTrip := r.Query.Get("plan"), usualGates, r.Query.Get("on_trip")
	if r.Query.Has("gates") {
		gates = r.Query.Get("gates")
	}
	if steps == "" {
		steps = usualPlan(o.GetRule().GetPercent())
	}
	if onTrip == "" {
		onTrip = string(rules.TripPauses)
	}
	words := []string{"promote", o.id, "--plan", steps}
	if gates != "" {
		words = append(words, "--gate", gates)
	}
	f := o.form("Promote "+o.id+" by a plan?", "Start the plan", append(words, "--on-trip", onTrip)...)
	f.Facts = append(o.proof(), f.Facts...)
	f.Fields = []field{
		{Name: "plan", Label: "Steps", Kind: "text", Value: steps, Hint: "share of keys and for how long at least; or “+30% 15m, max 100%”", Required: true},
		{Name: "gates", Label: "Gates", Kind: "text", Value: gates, Hint: gatesHint},
		{Name: "on_trip", Label: "When a gate trips", Value: onTrip, Options: []option{
			{string(rules.TripPauses), "pause: the candidate stays where it is"}, {string(rules.TripRollsBack), "roll back"},
		}},
	}
	f.Says = []string{"The control plane takes step after step by itself, and each only on evidence: every sidecar has it and has reported, enough requests were judged, and every gate passes. Otherwise it holds, and says why."}
	return f
}

// usualPlan goes up by the usual shares.
func usualPlan(now uint32) string {
	steps := []string{}
	if now == 0 {
		steps = append(steps, "shadow 1h")
	}
	for at := now; at < uint32(rules.AllKeys); {
		at = nextShare(at)
		step := rules.PlanStep{Percent: rules.Percent(at), Hold: usualHold}
		if at == uint32(rules.AllKeys) {
			step.Hold = 0
		}
		steps = append(steps, step.String())
	}
	return strings.Join(steps, ", ")
}

func (u *UI) promote(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	req := &adminpb.PromoteRequest{
		Domain: r.PathValue("domain"), Rule: r.PathValue("rule"), Why: why,
		Plan: r.Query.Get("plan"), Next: r.Query.Has("next"), ForceGate: r.knowingly(),
	}
	switch text := r.Query.Get("to"); {
	case req.GetPlan() != "":
		req.OnTrip, req.Gates = r.Query.Get("on_trip"), []string{r.Query.Get("gates")}
	case text != "":
		to, err := parseShare(text)
		if err != nil {
			return done{}, err
		}
		req.To = uint32(to)
	case !req.GetNext():
		return done{}, fmt.Errorf("%w: the form says neither how far nor by which plan: to, next or plan", rules.ErrInvalid)
	}
	resp, err := u.api.Promote(ctx, req)
	return done{outcome: resp.GetOutcome()}, err
}

// evidence is what is known of what the candidate refuses.
func (o onRule) evidence() []fact {
	e := o.GetEvidence()
	if e == nil {
		return nil
	}
	if e.GetJudged() == 0 {
		return []fact{{"Would refuse", "not known: no request was judged since " + e.GetFrom().AsTime().UTC().Format(utc)}}
	}
	of := fmt.Sprintf("%s of %s requests", interval(e.GetWouldRefuse()), tally.Thousands(e.GetJudged()))
	if e.GetShared() > 0 {
		of += ", by estimate: other rules refuse some of them too"
	}
	facts := []fact{{"Would refuse", of}}
	if stable := o.GetRule().GetStable(); stable != nil {
		facts = append(facts,
			fact{"Newly refused", fmt.Sprintf("%s of %s compared with v%d", tally.Thousands(e.GetNewlyRefused()), tally.Thousands(e.GetCompared()), stable.GetNumber())},
			fact{"No longer refused", tally.Thousands(e.GetNoLongerRefused())})
	}
	return append(facts, fact{"Decides for", o.coverWords()})
}

// proof is the evidence, with what the gates of the plan say of it.
func (o onRule) proof() []fact {
	facts := o.evidence()
	for _, g := range o.GetPlan().GetGates() {
		facts = append(facts, fact{g.GetName() + " " + keyShare(g.GetLimit()), gateWords(g)})
	}
	return facts
}

// coverWords say for how much the candidate decides now.
func (o onRule) coverWords() string {
	set := keyShare(o.GetRule().GetPercent()) + " of keys"
	if o.GetRule().GetPercent() == 0 {
		return "nobody: it is in shadow"
	}
	if o.GetBoundBoth() == 0 {
		return set + "; there were no requests lately"
	}
	return fmt.Sprintf("%s, which were %s of the latest requests", set, tally.Percent(float64(o.GetBound())/float64(o.GetBoundBoth())))
}

// gateWords say what a gate says.
func gateWords(g *adminpb.GateState) string {
	if g.GetOf() == 0 {
		return "undecided: no request was judged"
	}
	words := map[string]string{"pass": "✓ passes", "tripped": "✕ has tripped", "undecided": "◌ is undecided"}
	return fmt.Sprintf("%s: %s of %s requests", words[g.GetVerdict()], interval(g.GetIs()), tally.Thousands(g.GetOf()))
}
