package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// evidenceText is what is known of what a candidate does and would do, in words.
func evidenceText(e *adminpb.Evidence) string {
	if e.GetJudged() == 0 {
		return "no evidence: no request was judged since " + when(e.GetFrom().AsTime())
	}
	word := "would refuse"
	if e.GetShared() > 0 {
		word = "would refuse, by estimate (other rules refuse as well)"
	}
	return fmt.Sprintf("%s %s of %s requests since %s; newly refused %s, no longer refused %s", word, intervalText(e.GetWouldRefuse()),
		tally.Thousands(e.GetJudged()), when(e.GetFrom().AsTime()), tally.Thousands(e.GetNewlyRefused()), tally.Thousands(e.GetNoLongerRefused()))
}

// intervalText is "0.4% (0.36% to 0.44%)".
func intervalText(i *adminpb.Interval) string {
	return fmt.Sprintf("%s (%s to %s)", tally.Percent(i.GetEstimate()), tally.Percent(i.GetLow()), tally.Percent(i.GetHigh()))
}

// coversText says for how much the candidate decides.
func coversText(r *adminpb.Rollout) string {
	set := rules.Percent(r.GetRule().GetPercent())
	if r.GetBoundBoth() == 0 {
		return fmt.Sprintf("it is set to decide for %s of keys; there were no requests lately", set)
	}
	return fmt.Sprintf("it is set to decide for %s of keys, and decided %s of the latest requests", set, actualText(r))
}

func actualText(r *adminpb.Rollout) string {
	return tally.Percent(float64(r.GetBound()) / float64(r.GetBoundBoth()))
}

// rolloutText is the whole as people read it.
func rolloutText(r *adminpb.Rollout, now time.Time) string {
	var b strings.Builder
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-10s %s\n", label, oneLineKeep(text))
		}
	}
	stable, candidate := newVersionItem(r.GetRule().GetStable()), newVersionItem(r.GetRule().GetCandidate())
	line("Name:", ruleID(r))
	line("Status:", standingText(r))
	line("Since:", fmt.Sprintf("%s (%s ago), revision %d", when(r.GetSince().AsTime()), age(now.Sub(r.GetSince().AsTime())), r.GetRevision()))
	if stable != nil {
		line("Stable:", fmt.Sprintf("v%d  %s", stable.Version, stable.said().limits()))
	}
	if candidate != nil {
		line("Candidate:", fmt.Sprintf("v%d  %s  set %s of keys%s", candidate.Version, candidate.said().limits(), rules.Percent(r.GetRule().GetPercent()), actualWords(r)))
		line("Evidence:", evidenceText(r.GetEvidence()))
	}
	line("Gates:", gatesText(r))
	line("Steps:", stepsText(r))
	for _, wait := range r.GetPlan().GetWaits() {
		line("Waits for:", oneLine(wait))
	}
	if len(r.GetVersions()) > 0 {
		b.WriteString("\n" + countsTable(r))
	}
	return b.String()
}

// oneLineKeep is a text on one line with its gaps.
func oneLineKeep(text string) string { return strings.ReplaceAll(clean(text), "\n", " ") }

func actualWords(r *adminpb.Rollout) string {
	if r.GetBoundBoth() == 0 {
		return ""
	}
	return "   actual " + actualText(r) + " of requests"
}

// standingMarks are how each standing is marked.
var standingMarks = map[string]string{
	"running": "⟳ Running", "holding": "◌ Holding", "paused": "‖ Paused", standingTripped: "✖ Tripped", "finishing": "⟳ Finishing", standingDone: "✔ Done",
	"shadow": "• In shadow", "partial": "• Partial", "stable": "✔ Stable", "deleted": "• Deleted",
}

func standingText(r *adminpb.Rollout) string {
	text := standingMarks[r.GetStanding()]
	if text == "" {
		text = "• " + oneLine(r.GetStanding()) // of a newer control plane
	}
	if p := r.GetPlan(); p != nil && int(p.GetStep()) < len(p.GetSteps()) {
		text += fmt.Sprintf(" at step %d/%d (%s), by %s", p.GetStep()+1, len(p.GetSteps()), stepWhere(p.GetSteps()[p.GetStep()]), actorText(oneLine(p.GetBy()), p.GetVerified()))
	}
	if until := r.GetRule().GetFrozenUntil(); until != nil {
		text += "; ❄ FROZEN until " + when(until.AsTime())
	}
	return text
}

func stepWhere(s *adminpb.PlanStep) string {
	if s.GetPercent() == 0 {
		return string(rules.StageShadow)
	}
	return rules.Percent(s.GetPercent()).String()
}

func gatesText(r *adminpb.Rollout) string {
	list, estimate := []string{}, ""
	if r.GetEvidence().GetShared() > 0 {
		estimate = "by estimate "
	}
	for _, g := range r.GetPlan().GetGates() {
		mark := map[string]string{"pass": "✔", "tripped": "✖"}[g.GetVerdict()]
		if mark == "" {
			mark = "◌"
		}
		list = append(list, fmt.Sprintf("%s %s %s: %s, %s%s", mark, oneLine(g.GetName()), rules.Percent(g.GetLimit()), oneLine(g.GetVerdict()), estimate, intervalText(g.GetIs())))
	}
	mark := "✔"
	if r.GetAcked() < r.GetNodes() || r.GetNodes() == 0 {
		mark = "◌"
	}
	acked := fmt.Sprintf("%s %d/%d acked", mark, r.GetAcked(), r.GetNodes())
	if names := r.GetUnacked(); len(names) > 0 {
		const most = 4
		acked += ", not by " + strings.Join(names[:min(len(names), most)], ", ")
		if more := len(names) - most; more > 0 {
			acked += fmt.Sprintf(" and %d more", more)
		}
	}
	list = append(list, acked)
	if p := r.GetPlan(); p != nil && int(p.GetStep()) < len(p.GetSteps()) {
		if hold := p.GetSteps()[p.GetStep()].GetHold().AsDuration(); hold > 0 {
			mark := "✔"
			if p.GetElapsed().AsDuration() < hold {
				mark = "◌"
			}
			list = append(list, fmt.Sprintf("%s %s of %s", mark, age(p.GetElapsed().AsDuration()), rules.HoldText(hold)))
		}
	}
	return strings.Join(list, "   ")
}

func stepsText(r *adminpb.Rollout) string {
	p := r.GetPlan()
	list := make([]string, len(p.GetSteps()))
	for i, s := range p.GetSteps() {
		mark := "·"
		switch {
		case i < int(p.GetStep()), r.GetStanding() == standingDone:
			mark = "✔"
		case i == int(p.GetStep()):
			mark, _, _ = strings.Cut(standingMarks[r.GetStanding()], " ")
		}
		list[i] = mark + " " + stepWhere(s)
		if hold := s.GetHold().AsDuration(); hold > 0 {
			list[i] += " " + rules.HoldText(hold)
		}
	}
	return strings.Join(list, "   ")
}

// countsTable is what was counted of each version since the step began.
func countsTable(r *adminpb.Rollout) string {
	would := "WOULD REFUSE"
	if r.GetEvidence().GetShared() > 0 {
		would += " (ESTIMATE)"
	}
	header := []string{"VERSION", "STAGE", "DECISIONS", "ALLOWED", "REFUSED", would}
	var rows [][]string
	for _, v := range versionsByAge(r) {
		stage := v.GetRole()
		switch {
		case stage == "candidate" && r.GetRule().GetPercent() > 0:
			stage = rules.Percent(r.GetRule().GetPercent()).String()
		case stage == "candidate":
			stage = string(rules.StageShadow)
		}
		judged := shareOf(v.GetWouldRefuse(), v.GetJudged())
		if v.GetJudged() > 0 {
			judged += " of " + tally.Thousands(v.GetJudged())
		}
		rows = append(rows, []string{
			fmt.Sprintf("v%d", v.GetVersion()), stage, tally.Thousands(v.GetBound()), tally.Thousands(v.GetBound() - v.GetRefused()), shareOf(v.GetRefused(), v.GetBound()), judged,
		})
	}
	return renderTable(header, rows, "DECISIONS", "ALLOWED", "REFUSED", would)
}
