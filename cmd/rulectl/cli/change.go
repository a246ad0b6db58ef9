package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

// why comes with every change.
func (a *app) why() *adminpb.Why {
	return &adminpb.Why{Message: a.message, ExpectRevision: a.expect}
}

// A change is one call that changes something, and the hint that follows it, about the first thing that it changed.
type change struct {
	what string // as in "promote a/x to 10%"
	do   func(context.Context, adminpb.AdminServiceClient) ([]*adminpb.Outcome, error)
	next func(*adminpb.Step) string
	many func(*adminpb.Outcome) string // the hint where several things changed; nil: next
}

// change makes the change, waits for the fleet where that is asked for, and says what became of each rule. Once the
// change is stored, its outcome is printed whatever happens then.
func (a *app) change(ctx context.Context, c change) error {
	if err := a.allow(ctx, c.what); err != nil {
		return err
	}
	client, closeConn, err := a.connect()
	if err != nil {
		return err
	}
	defer closeConn()
	a.changing = true
	callCtx, cancel := a.call(ctx)
	outcomes, err := c.do(callCtx, client)
	cancel()
	if err != nil {
		return err
	}
	a.changing = false
	if err := a.showOutcomes(outcomes); err != nil {
		return err
	}
	var waits []*wait
	var waitErr error
	if a.wait {
		waits, waitErr = a.awaitAll(ctx, client, outcomes)
	}
	if a.structured() {
		if err := printList(a, "ChangeList", changeItems(outcomes, waits)); err != nil {
			return fmt.Errorf("the change is stored; %w", err)
		}
		return waitErr
	}
	if waitErr == nil {
		a.suggestNext(outcomes, &c)
	}
	return waitErr
}

// one makes the outcomes of a call about one domain of its reply.
func one[R interface{ GetOutcome() *adminpb.Outcome }](resp R, err error) ([]*adminpb.Outcome, error) {
	return []*adminpb.Outcome{resp.GetOutcome()}, err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// showOutcomes prints what was done, unless that follows as JSON.
func (a *app) showOutcomes(outcomes []*adminpb.Outcome) error {
	if a.output != outputName {
		if !a.structured() {
			printOutcomes(a.io.Out, outcomes, "dry run: nothing is stored")
		}
		return nil
	}
	var steps []*adminpb.Step
	for _, o := range outcomes {
		steps = append(steps, o.GetSteps()...)
	}
	return printNames(a, steps, (*adminpb.Step).GetRule)
}

// printOutcomes prints what was done, or what only would be, which dry says.
func printOutcomes(w io.Writer, outcomes []*adminpb.Outcome, dry string) {
	for _, o := range outcomes {
		domain := oneLine(o.GetDomain())
		switch {
		case len(o.GetSteps()) == 0:
			fmt.Fprintf(w, "%s  unchanged: %s\n", domain, oneLine(o.GetNote()))
		case o.GetRevision() == 0:
			fmt.Fprintf(w, "%s  %s\n", domain, dry)
		default:
			fmt.Fprintf(w, "%s  revision %d\n", domain, o.GetRevision())
		}
		for _, step := range o.GetSteps() {
			rule, before, after := oneLine(step.GetRule()), oneLine(step.GetBefore()), oneLine(step.GetAfter())
			switch {
			case before == "":
				fmt.Fprintf(w, "  + %s: new, %s\n", rule, after)
			case deletes(step):
				fmt.Fprintf(w, "  - %s: %s -> %s\n", rule, before, after)
			default:
				fmt.Fprintf(w, "  ~ %s: %s -> %s\n", rule, before, after)
			}
			for _, warning := range step.GetWarnings() {
				fmt.Fprintf(w, "    ⚠ %s\n", oneLine(warning))
			}
		}
	}
}

// ofSettings reports that a step is about the settings of the domain, and not about a rule.
func ofSettings(step *adminpb.Step) bool { return !strings.Contains(step.GetRule(), "/") }

func deletes(step *adminpb.Step) bool {
	return !ofSettings(step) && strings.HasPrefix(step.GetAfter(), string(rules.StageDeleted))
}

// suggestNext prints the command that most often follows, for the first domain that changed.
func (a *app) suggestNext(outcomes []*adminpb.Outcome, c *change) {
	for _, o := range outcomes {
		switch steps := o.GetSteps(); {
		case len(steps) == 0:
			continue
		case len(steps) > 1 && c.many != nil:
			a.tell("%s", oneLine(c.many(o)))
		default:
			a.tell("%s", oneLine(c.next(steps[0])))
		}
		return
	}
}

// nextOfMany is the hint after a change of several rules. It names one that is there, and undoes all of them.
func nextOfMany(o *adminpb.Outcome) string {
	hint := "next: rulectl get rules -d " + o.GetDomain()
	for _, step := range o.GetSteps() {
		if inShadow(step) {
			hint = shadowHint(step)
			break
		}
	}
	stood := func(s *adminpb.Step) bool { return !ofSettings(s) && s.GetBefore() != "" } // else the domain may be new
	if slices.ContainsFunc(o.GetSteps(), stood) {
		hint += fmt.Sprintf("; to undo: rulectl rollback -d %s --to-revision %d", o.GetDomain(), o.GetRevision()-1)
	}
	return hint
}

func inShadow(step *adminpb.Step) bool {
	return !ofSettings(step) && strings.Contains(step.GetAfter(), " in shadow")
}

func shadowHint(step *adminpb.Step) string {
	return fmt.Sprintf("in shadow it counts what it would refuse, and refuses nobody; next: rulectl promote %s --to 1%%", step.GetRule())
}

// nextStep is the hint after apply and promote. It reads the state in words, as the control plane says it; a wording it
// does not know costs a better hint and nothing else.
func nextStep(step *adminpb.Step) string {
	rule := step.GetRule()
	switch {
	case ofSettings(step):
		return "next: rulectl get domains -d " + rule
	case deletes(step):
		return "to undo: rulectl rollback " + rule
	case inShadow(step):
		return shadowHint(step)
	case strings.Contains(step.GetAfter(), "%"):
		return fmt.Sprintf("next: rulectl promote %s --to 100%%; to undo: rulectl rollback %s", rule, rule)
	}
	return fmt.Sprintf("next: rulectl get rule %s; to undo: rulectl rollback %s", rule, rule)
}

type changeItem struct {
	Domain   string     `json:"domain"`
	Revision int64      `json:"revision"` // 0: nothing changed
	Note     string     `json:"note,omitempty"`
	Steps    []stepItem `json:"steps"`          // with revision 0: what would be done
	Wait     *waitItem  `json:"wait,omitempty"` // only with --wait
}

type stepItem struct {
	Rule   string `json:"rule"`
	Before string `json:"before,omitempty"` // absent: a new rule
	After  string `json:"after"`

	Warnings []string `json:"warnings,omitempty"`
}

func changeItems(outcomes []*adminpb.Outcome, waits []*wait) []changeItem {
	items := make([]changeItem, len(outcomes))
	for i, o := range outcomes {
		items[i] = changeItem{Domain: o.GetDomain(), Revision: o.GetRevision(), Note: o.GetNote(), Steps: []stepItem{}}
		for _, step := range o.GetSteps() {
			items[i].Steps = append(items[i].Steps, stepItem{step.GetRule(), step.GetBefore(), step.GetAfter(), step.GetWarnings()})
		}
		if i < len(waits) {
			items[i].Wait = waits[i].item()
		}
	}
	return items
}
