package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) rollbackCommand() *cobra.Command {
	var to string
	var toRevision int64
	cmd := &cobra.Command{
		Use:     "rollback RULE | rollback -d DOMAIN --to-revision N",
		Aliases: []string{"undo"},
		Short:   "Undo a rule's last step, go back to a version, restore a deleted rule, or a whole domain",
		Long: "Rollback drops a candidate beside a stable version, moves a candidate without one back to shadow, restores a rule\n" +
			"that was deleted, and otherwise restores the version that was in force before. With --to it makes that version\n" +
			"the stable, from any state. It needs no file, and nothing is lost: it is a new revision. A rollback right after\n" +
			"a rollback changes nothing.\n\n" +
			"With -d and --to-revision, and no RULE, it restores the stable versions, exemptions and overrides of the whole\n" +
			"domain as they were at that revision, in one revision. Freezes and the shard stay.\n\n" +
			"RULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl rollback public-api/login -m \"refusals on checkout\" --wait\n" +
			"  rulectl rollback public-api/login --to v7 --wait\n" +
			"  rulectl rollback -d public-api --to-revision 41 -m \"as before the deploy\" --wait",
		GroupID: groupChange,
		Args:    cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			switch {
			case len(args) == 1 && toRevision != 0:
				return usagef("--to-revision is for a whole domain, without RULE; a rule goes back to a version: --to vN")
			case len(args) == 1:
				return a.rollback(ctx, args[0], to)
			case to != "" || toRevision == 0 || a.domain == "":
				return usagef("name the RULE, or a whole domain with -d DOMAIN --to-revision N")
			}
			return a.rollbackDomain(ctx, toRevision)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "version to make the stable, such as v7; by default the last step is undone")
	cmd.Flags().Int64Var(&toRevision, "to-revision", 0, "revision to restore the domain of -d as it was at")
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) rollback(ctx context.Context, rule, to string) error {
	a.domainWay = "rulectl rollback -d %s --to-revision N"
	version := int64(0)
	if to != "" {
		var err error
		version, err = strconv.ParseInt(strings.TrimPrefix(to, "v"), 10, 64)
		if err != nil || version < 1 {
			return usagef("--to: %q is not a version, such as v7", to)
		}
		if domain, name, err := a.ruleName(rule); err == nil {
			a.lists = "rulectl history " + domain + "/" + name
		}
	}
	next := func(step *adminpb.Step) string { return "next: rulectl get rule " + step.GetRule() }
	return a.changeRule(ctx, change{what: "roll back %s", next: next}, rule, func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
		return one(client.Rollback(ctx, &adminpb.RollbackRequest{Domain: domain, Rule: name, To: version, Why: a.why()}))
	})
}

func (a *app) rollbackDomain(ctx context.Context, revision int64) error {
	a.lists = "rulectl get domains"
	next := func(*adminpb.Step) string { return "next: rulectl get rules -d " + a.domain }
	what := fmt.Sprintf("restore the domain %s as it was at revision %d", a.domain, revision)
	return a.change(ctx, change{what: what, next: next, do: func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		return one(client.RollbackDomain(ctx, &adminpb.RollbackDomainRequest{Domain: a.domain, ToRevision: revision, Why: a.why()}))
	}})
}
