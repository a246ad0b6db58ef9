package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete RULE",
		Short: "Take a rule out of force, at once",
		Long: "Delete takes a rule out of force at once, for everybody, with its overrides. `rulectl rollback RULE` restores it, with\n" +
			"its counters and its history. It asks at a terminal; elsewhere it needs --yes (exit 7 otherwise).\n\n" +
			"RULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl delete public-api/login -m \"the endpoint is gone\" --yes --wait",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.deleteRule(ctx, args[0]) }),
	}
	a.ruleChangeFlags(cmd)
	a.yesFlag(cmd, "do not ask")
	return cmd
}

func (a *app) deleteRule(ctx context.Context, rule string) error {
	if !a.yes.given() {
		list, err := a.findRules(ctx, []string{rule})
		if err != nil {
			return err
		}
		r := list[0]
		if err := a.confirm(ctx, fmt.Sprintf("delete %s/%s, which is %s", r.GetDomain(), r.GetName(), r.GetState())); err != nil {
			return err
		}
		if a.expect == 0 {
			a.expect = r.GetRevision() // the answer was about this one
		}
	}
	next := func(step *adminpb.Step) string { return "to undo: rulectl rollback " + step.GetRule() }
	return a.changeRule(ctx, change{what: "delete %s", next: next}, rule, func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
		return one(client.Delete(ctx, &adminpb.DeleteRequest{Domain: domain, Rule: name, Why: a.why()}))
	})
}
