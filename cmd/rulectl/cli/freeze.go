package cli

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

type freezeFlags struct {
	length          span
	includingClosed bool
	sidecar         string
}

func (a *app) freezeCommand() *cobra.Command {
	var f freezeFlags
	cmd := &cobra.Command{
		Use:   "freeze DOMAIN|RULE --for DURATION [--sidecar HOST:PORT]",
		Short: "Let a rule, or a whole domain, refuse nothing for a time",
		Long: "Freeze makes every version of a rule, or of all rules of a domain, refuse nothing, at once, and ends by itself.\n" +
			"What is admitted is still counted, so its end hands out no fresh budget. A rule with failure: closed (it guards\n" +
			"something that is worse than a refusal) is frozen only with --including-closed.\n\n" +
			"When the control plane is gone: --sidecar HOST:PORT freezes on that sidecar alone, at its operations port. No\n" +
			"control plane is asked; the sidecar reports it when the control plane is back. A sidecar with one domain needs no\n" +
			"DOMAIN.\n\n" +
			"A name without \"/\" is a domain, unless -d names the domain.",
		Example: "  rulectl freeze public-api/login --for 15m -m \"checkout is refused\" --wait\n" +
			"  rulectl freeze public-api --for 15m --including-closed\n" +
			"  rulectl freeze public-api --for 15m --sidecar 10.0.0.7:8082",
		GroupID: groupChange,
		Args:    cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if len(args) == 0 && a.domain == "" && f.sidecar == "" {
				return errNoTarget
			}
			length := time.Duration(f.length)
			if length < time.Second || length > rules.MaxFreeze {
				return usagef("--for is missing or out of bounds: a freeze lasts from 1s to %s, such as --for 15m", age(rules.MaxFreeze))
			}
			return a.freeze(ctx, strings.Join(args, ""), f)
		}),
	}
	cmd.Flags().Var(&f.length, "for", "how long, for example 15m")
	cmd.Flags().BoolVar(&f.includingClosed, "including-closed", false, "also rules with failure: closed")
	a.sidecarFlag(cmd, &f.sidecar)
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) sidecarFlag(cmd *cobra.Command, sidecar *string) {
	cmd.Flags().StringVar(sidecar, "sidecar", "", "only on this sidecar: HOST:PORT of its operations port; no control plane is asked")
}

func (a *app) freeze(ctx context.Context, target string, f freezeFlags) error {
	domain, rule, err := a.frozen(target, f.sidecar)
	if err != nil {
		return err
	}
	if f.sidecar != "" {
		return a.breakGlass(ctx, f.sidecar, glass{domain: domain, rule: rule, length: time.Duration(f.length), includingClosed: f.includingClosed})
	}
	what := path.Join(domain, rule)
	next := func(*adminpb.Step) string { return "it ends by itself; to end it now: rulectl unfreeze " + what }
	return a.change(ctx, change{what: "freeze " + what, next: next, do: func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		return one(client.Freeze(ctx, &adminpb.FreezeRequest{
			Domain: domain, Rule: rule, For: durationpb.New(time.Duration(f.length)), IncludingClosed: f.includingClosed, Why: a.why(),
		}))
	}})
}

var errNoTarget = usagef("name the DOMAIN or RULE")

// frozen reads what is frozen. Only a sidecar knows which domain is meant when none is named.
func (a *app) frozen(target, sidecar string) (domain, rule string, err error) {
	switch {
	case target != "":
		domain, rule, err = a.domainOrRule(target)
		if rule == "" {
			a.lists = "rulectl get domains"
		}
		return domain, rule, err
	case a.domain == "" && sidecar == "":
		return "", "", errNoTarget
	}
	return a.domain, "", nil
}

func (a *app) unfreezeCommand() *cobra.Command {
	var sidecar string
	cmd := &cobra.Command{
		Use:   "unfreeze DOMAIN|RULE",
		Short: "End a freeze",
		Long: "Unfreeze ends the freeze of exactly what is named: that of a domain is not ended rule by rule, and that of a rule\n" +
			"not with its domain. `rulectl get domains` shows what is frozen. With --sidecar HOST:PORT it ends a freeze that\n" +
			"was made at that sidecar; no control plane is asked.",
		Example: "  rulectl unfreeze public-api/login --wait\n  rulectl unfreeze public-api --sidecar 10.0.0.7:8082",
		GroupID: groupChange,
		Args:    cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return a.unfreeze(ctx, strings.Join(args, ""), sidecar)
		}),
	}
	a.sidecarFlag(cmd, &sidecar)
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) unfreeze(ctx context.Context, target, sidecar string) error {
	domain, rule, err := a.frozen(target, sidecar)
	if err != nil {
		return err
	}
	if sidecar != "" {
		return a.breakGlass(ctx, sidecar, glass{domain: domain, rule: rule})
	}
	next := func(*adminpb.Step) string { return "next: rulectl get domains -d " + domain }
	return a.change(ctx, change{what: "unfreeze " + path.Join(domain, rule), next: next, do: func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		outcomes, err := one(client.Unfreeze(ctx, &adminpb.UnfreezeRequest{Domain: domain, Rule: rule, Why: a.why()}))
		if err == nil {
			a.warnOfGlass(ctx, client, domain)
		}
		return outcomes, err
	}})
}

// warnOfGlass names the freezes that were made at sidecars themselves: those are not ended at the control plane.
func (a *app) warnOfGlass(ctx context.Context, client adminpb.AdminServiceClient, domain string) {
	resp, err := client.ListNodes(ctx, &adminpb.ListNodesRequest{Domain: domain})
	if err != nil {
		return // it is a hint
	}
	for _, n := range resp.GetNodes() {
		for _, freeze := range n.GetBreakGlass() {
			a.warn("sidecar %s alone: %s; to end it: rulectl unfreeze %s --sidecar HOST:PORT", oneLine(n.GetId()), oneLine(freeze), domain)
		}
	}
}
