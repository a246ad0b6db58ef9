package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) promoteCommand() *cobra.Command {
	to := ""
	cmd := &cobra.Command{
		Use:   "promote RULE --to PERCENT",
		Short: "Let a rule's candidate bind for a percentage of keys",
		Long: "Promote moves a candidate up or down, in steps of 0.01%. The percentage is of keys, not of requests: raising it\n" +
			"only adds keys, lowering it returns exactly the earlier ones. At 100% the candidate becomes the stable version;\n" +
			"at 0% it is back in shadow.\n\nRULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl promote public-api/login --to 25% -m \"shadow looks right\" --wait",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if to == "" {
				return usagef("--to is missing: say how far, for example --to 25%%")
			}
			percent, err := rules.ParsePercent(to)
			if err != nil {
				return usagef("--to: %w", err)
			}
			return a.promote(ctx, args[0], percent)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "share of keys, for example 25% or 0.5%")
	a.domainFlag(cmd, "domain of the rule")
	a.changeFlags(cmd)
	return cmd
}

func (a *app) promote(ctx context.Context, rule string, to rules.Percent) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	return a.change(ctx, change{next: nextStep, do: func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		resp, err := client.Promote(ctx, &adminpb.PromoteRequest{Domain: domain, Rule: name, To: uint32(to), Message: a.message})
		return []*adminpb.Outcome{resp.GetOutcome()}, err
	}})
}

func (a *app) rollbackCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:     "rollback RULE",
		Aliases: []string{"undo"},
		Short:   "Undo a rule's last step, or go back to a version",
		Long: "Rollback drops a candidate beside a stable version, moves a candidate without one back to shadow, and otherwise\n" +
			"restores the version that was in force before. With --to it makes that version the stable, from any state.\n" +
			"It needs no file, and nothing is lost: it is a new revision. A rollback right after a rollback changes nothing.\n\n" +
			"RULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl rollback public-api/login -m \"refusals on checkout\" --wait\n" +
			"  rulectl rollback public-api/login --to v7 --wait",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.rollback(ctx, args[0], to) }),
	}
	cmd.Flags().StringVar(&to, "to", "", "version to make the stable, such as v7; by default the last step is undone")
	a.domainFlag(cmd, "domain of the rule")
	a.changeFlags(cmd)
	return cmd
}

func (a *app) rollback(ctx context.Context, rule, to string) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	version := int64(0)
	if to != "" {
		version, err = strconv.ParseInt(strings.TrimPrefix(to, "v"), 10, 64)
		if err != nil || version < 1 {
			return usagef("--to: %q is not a version, such as v7", to)
		}
	}
	next := func(step *adminpb.Step) string { return "next: rulectl get rule " + step.GetRule() }
	return a.change(ctx, change{next: next, do: func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		resp, err := client.Rollback(ctx, &adminpb.RollbackRequest{Domain: domain, Rule: name, To: version, Message: a.message})
		return []*adminpb.Outcome{resp.GetOutcome()}, err
	}})
}
