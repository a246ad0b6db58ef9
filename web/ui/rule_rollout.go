package ui

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// rolloutTab is how a candidate is being promoted. Where the rule stands is read beside it, and is the page's Rollout.
type rolloutTab struct{}

// rolloutTab fills the tab of a rule's page.
func (u *UI) rolloutTab(_ context.Context, _ *request, page *rulePage) error {
	page.RolloutTab = &rolloutTab{}
	return nil
}

// stop is a share of keys that the slider can be put to.
type stop struct {
	At    int // its place on the slider
	Share uint32
	Here  bool
	To    string // the form that promotes to it
}

// Text is the share in words.
func (s stop) Text() string {
	if s.Share == 0 {
		return "shadow"
	}
	return keyShare(s.Share)
}

// Stops are the shares of the plan, or the usual ones, with the one that is set among them.
func (p *rulePage) Stops() []stop {
	all := append([]uint32{0, p.Rollout.GetRule().GetPercent()}, shares...)
	if plan := p.Rollout.GetPlan(); plan != nil {
		all = []uint32{0, p.Rollout.GetRule().GetPercent(), uint32(rules.AllKeys)}
		for _, s := range plan.GetSteps() {
			all = append(all, s.GetPercent())
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	stops := make([]stop, len(all))
	for i, share := range all {
		to := p.Path + "/do/promote?to=" + strings.ReplaceAll(keyShare(share), "%", "%25")
		stops[i] = stop{At: i, Share: share, Here: share == p.Rollout.GetRule().GetPercent(), To: to}
	}
	return stops
}

// railStep is a step of a plan, or of what could be one.
type railStep struct {
	Text, Hold string
	State      string    // past, here or next
	Ends       time.Time // when the time of the step is over; zero: it is, or does not pass, or there is none
	Held       bool      // a pause or a freeze holds the step up: its time begins anew after it
}

// Rail are the steps of the plan; nil where none runs.
func (p *rulePage) Rail() []railStep {
	plan := p.Rollout.GetPlan()
	if plan == nil {
		return nil
	}
	rail := make([]railStep, len(plan.GetSteps()))
	for i, s := range plan.GetSteps() {
		one := railStep{Text: stop{Share: s.GetPercent()}.Text(), State: "next"}
		if s.GetHold() != nil {
			one.Hold = rules.HoldText(s.GetHold().AsDuration())
		}
		switch at := int(plan.GetStep()); {
		case i < at:
			one.State = "past"
		case i == at:
			one.State = "here"
			left := s.GetHold().AsDuration() - plan.GetElapsed().AsDuration()
			switch running := p.Rollout.GetStanding() == "running"; {
			case left > 0 && running:
				one.Ends = p.begun(plan).Add(s.GetHold().AsDuration())
			case p.Rollout.GetRule().GetPaused(), left > 0:
				one.Held = true
			}
		}
		rail[i] = one
	}
	return rail
}

// begun is when the step began. It is the same each time it is asked for, so that what shows it does not change: since when
// the rule stands so, or, where a freeze held it up, the end of that to within ten seconds.
func (p *rulePage) begun(plan *adminpb.PlanState) time.Time {
	since := p.Rollout.GetSince().AsTime()
	by := time.Now().Add(-plan.GetElapsed().AsDuration())
	if by.Sub(since) < 3*time.Second {
		return since
	}
	return by.Round(10 * time.Second)
}

// Running reports that there is a next step to take.
func (p *rulePage) Running() bool { return onRule{Rollout: p.Rollout}.running() }

// Evidence is what is known of what the candidate refuses.
func (p *rulePage) Evidence() []fact { return onRule{Rollout: p.Rollout}.evidence() }

// Actual is the share of the requests of the last minutes that the candidate decided; "" where there were none.
func (p *rulePage) Actual() string {
	if p.Rollout.GetBoundBoth() == 0 {
		return ""
	}
	return tally.Percent(float64(p.Rollout.GetBound()) / float64(p.Rollout.GetBoundBoth()))
}

// gateTile shows what a gate says.
type gateTile struct {
	*adminpb.GateState
	Title, Words, Class string
	Figure              template.HTML
}

// Gates are those of the plan.
func (p *rulePage) Gates() []gateTile {
	titles := map[string]string{rules.GateWouldRefuse: "Refused, or would be", rules.GateDelta: "Newly less no longer refused"}
	verdicts := map[string][2]string{"pass": {"✓ passes", "good"}, "tripped": {"✕ tripped", "bad"}, "undecided": {"◌ undecided", "warn"}}
	tiles := make([]gateTile, 0, len(p.Rollout.GetPlan().GetGates()))
	for _, g := range p.Rollout.GetPlan().GetGates() {
		v := verdicts[g.GetVerdict()]
		t := gateTile{GateState: g, Title: titles[g.GetName()], Words: v[0], Class: v[1]}
		if g.GetOf() > 0 {
			t.Figure = gateFigure(g.GetIs(), float64(g.GetLimit())/float64(rules.AllKeys))
		}
		tiles = append(tiles, t)
	}
	return tiles
}

// gateFigure draws an interval with its estimate, and the limit as a dotted line. What it shows stands beside it in words.
func gateFigure(i *adminpb.Interval, limit float64) template.HTML {
	const wide, high = 240.0, 26.0
	low, most := min(0, i.GetLow()), max(2*limit, 1.1*i.GetHigh(), 0.001)
	at := func(v float64) float64 { return (v - low) / (most - low) * wide }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="gate" viewBox="0 0 %.0f %.0f" preserveAspectRatio="none" aria-hidden="true">`, wide, high)
	fmt.Fprintf(&b, `<line class="base" x1="0" x2="%.0f" y1="%.1f" y2="%.1f"/>`, wide, high/2, high/2)
	fmt.Fprintf(&b, `<rect class="surely" x="%.1f" y="5" width="%.1f" height="%.1f"/>`, at(i.GetLow()), max(at(i.GetHigh())-at(i.GetLow()), 1.5), high-10)
	fmt.Fprintf(&b, `<line class="estimate" x1="%.1f" x2="%.1f" y1="2" y2="%.1f"/>`, at(i.GetEstimate()), at(i.GetEstimate()), high-2)
	fmt.Fprintf(&b, `<line class="limit" x1="%.1f" x2="%.1f" y1="0" y2="%.1f"/></svg>`, at(limit), at(limit), high)
	return template.HTML(b.String()) //nolint:gosec // made of numbers alone
}
