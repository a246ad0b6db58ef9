package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/web/api/adminpb"
)

// A change is one call that changes something, and the hint that follows each of its steps.
type change struct {
	do   func(context.Context, adminpb.AdminServiceClient) ([]*adminpb.Outcome, error)
	next func(*adminpb.Step) string
}

// change makes the change, waits for the fleet where that is asked for, and says what became of each rule. Once the
// change is stored, its outcome is printed whatever happens then.
func (a *app) change(ctx context.Context, c change) error {
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
	if a.output == outputTable {
		a.printOutcomes(outcomes)
	}
	var waits []*wait
	var waitErr error
	if a.wait {
		waits, waitErr = a.awaitAll(ctx, client, outcomes)
	}
	if a.output == outputJSON {
		return firstOf(printList(a, "ChangeList", changeItems(outcomes, waits)), waitErr)
	}
	if waitErr == nil {
		a.suggestNext(outcomes, c.next)
	}
	return waitErr
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printOutcomes(outcomes []*adminpb.Outcome) {
	for _, o := range outcomes {
		if o.GetRevision() == 0 {
			fmt.Fprintf(a.io.Out, "%s  unchanged: %s\n", o.GetDomain(), oneLine(o.GetNote()))
			continue
		}
		fmt.Fprintf(a.io.Out, "%s  revision %d\n", o.GetDomain(), o.GetRevision())
		for _, step := range o.GetSteps() {
			if step.GetBefore() == "" {
				fmt.Fprintf(a.io.Out, "  + %s: new, %s\n", step.GetRule(), oneLine(step.GetAfter()))
				continue
			}
			fmt.Fprintf(a.io.Out, "  ~ %s: %s -> %s\n", step.GetRule(), oneLine(step.GetBefore()), oneLine(step.GetAfter()))
			for _, w := range step.GetWarnings() {
				fmt.Fprintf(a.io.Out, "    %s\n", oneLine(w))
			}
		}
	}
}

// suggestNext prints the command that most often follows, for the first rule that changed.
func (a *app) suggestNext(outcomes []*adminpb.Outcome, next func(*adminpb.Step) string) {
	for _, o := range outcomes {
		if steps := o.GetSteps(); len(steps) > 0 {
			fmt.Fprintln(a.io.Err, next(steps[0]))
			return
		}
	}
}

// nextStep is the hint after apply and promote. It reads the state in words, as the control plane says it; a wording it
// does not know costs a better hint and nothing else.
func nextStep(step *adminpb.Step) string {
	rule := step.GetRule()
	switch after := step.GetAfter(); {
	case strings.Contains(after, " in shadow"):
		return fmt.Sprintf("in shadow it counts what it would refuse, and refuses nobody; next: rulectl promote %s --to 1%%", rule)
	case strings.Contains(after, "%"):
		return fmt.Sprintf("next: rulectl promote %s --to 100%%; to undo: rulectl rollback %s", rule, rule)
	}
	return fmt.Sprintf("next: rulectl get rule %s; to undo: rulectl rollback %s", rule, rule)
}

type changeItem struct {
	Domain   string     `json:"domain"`
	Revision int64      `json:"revision"` // 0: nothing changed
	Note     string     `json:"note,omitempty"`
	Steps    []stepItem `json:"steps"`
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
