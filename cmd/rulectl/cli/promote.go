package cli

import (
	"context"
	"fmt"
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
	a.ruleChangeFlags(cmd)
	return cmd
}

// ruleChangeFlags are the flags of every command that changes one rule.
func (a *app) ruleChangeFlags(cmd *cobra.Command) {
	a.domainFlag(cmd, "domain of the rule")
	a.changeFlags(cmd)
}

func (a *app) abortCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "abort RULE",
		Short: "Put a rule's candidate back in shadow",
		Long: "Abort is promote --to 0%: the candidate refuses nobody any more and goes on being judged; a stable version stays\n" +
			"in force. A pause ends with it.",
		Example: "  rulectl abort public-api/login -m \"refusals on checkout\" --wait",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.promote(ctx, args[0], 0) }),
	}
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) promote(ctx context.Context, rule string, to rules.Percent) error {
	return a.changeRule(ctx, change{what: fmt.Sprintf("promote %%s to %s", to), next: nextStep}, rule, func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
		return one(client.Promote(ctx, &adminpb.PromoteRequest{Domain: domain, Rule: name, To: uint32(to), Why: a.why()}))
	})
}

// changeRule makes a change of one rule, whose name is the %s of what it is.
func (a *app) changeRule(ctx context.Context, c change, rule string,
	do func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error),
) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	c.what = strings.Replace(c.what, "%s", domain+"/"+name, 1)
	c.do = func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		return do(ctx, client, domain, name)
	}
	return a.change(ctx, c)
}

func (a *app) pauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause RULE",
		Short: "Hold a rule's candidate where it is",
		Long: "Pause keeps a candidate from being promoted until it is resumed. What it refuses it goes on refusing: to end that,\n" +
			"abort or roll back, which are possible at any time.",
		Example: "  rulectl pause public-api/login -m \"waiting for the partner\"",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.pause(ctx, args[0], false) }),
	}
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume RULE",
		Short:   "Let a candidate that was paused be promoted again",
		Example: "  rulectl resume public-api/login",
		GroupID: groupChange,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.pause(ctx, args[0], true) }),
	}
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) pause(ctx context.Context, rule string, resume bool) error {
	c := change{what: "pause %s", next: func(step *adminpb.Step) string { return "next: rulectl resume " + step.GetRule() }}
	if resume {
		c = change{what: "resume %s", next: nextStep}
	}
	return a.changeRule(ctx, c, rule, func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
		return one(client.Pause(ctx, &adminpb.PauseRequest{Domain: domain, Rule: name, Resume: resume, Why: a.why()}))
	})
}
