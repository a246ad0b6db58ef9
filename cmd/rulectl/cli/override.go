package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) overrideCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "override",
		Aliases: []string{"overrides"},
		Short:   "Give one key of a rule another rate for a time",
		Long: "An override is another rate for one key of one rule, until a time. It counts in the same counter, so neither its\n" +
			"begin nor its end is a fresh budget. The values of the key are sent to be hashed; they are neither stored nor shown.",
		GroupID: groupChange,
	}
	return group(cmd, a.overrideSetCommand(), a.overrideListCommand(), a.overrideDeleteCommand())
}

func (f *overrideFlags) until() (time.Time, error) {
	switch {
	case (f.length == 0) == (f.till == ""):
		return time.Time{}, usagef("say until when, in one way: --for 2h, or --until 2026-12-01T06:00:00Z")
	case f.length != 0:
		return time.Now().Add(time.Duration(f.length)), nil
	}
	t, err := time.Parse(time.RFC3339, f.till)
	if err != nil {
		return t, usagef("--until %q is not a time such as 2026-12-01T06:00:00Z", f.till)
	}
	return t, nil
}

func (a *app) overrideSetCommand() *cobra.Command {
	var f overrideFlags
	cmd := &cobra.Command{
		Use:   "set RULE --key V[,V2…] --limit RATE --for DURATION",
		Short: "Give one key another rate until a time",
		Long: "The rate has the window of the limit that it replaces. It takes the place of an override that the key has for that\n" +
			"limit, takes effect at once, and ends by itself. Ten times more or less than the limit is asked for at a terminal; elsewhere\n" +
			"it needs --yes (exit 7 otherwise).",
		Example: "  rulectl override set public-api/per-client --key 203.0.113.7 --limit 300/min --for 2h -m \"load test\"\n" +
			"  rulectl override set public-api/pair --key 'a,b' --key 203.0.113.7 --limit unlimited --until 2026-12-01T06:00:00Z",
		Args: cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.setOverride(ctx, args[0], &f) }),
	}
	cmd.Flags().StringArrayVar(&f.key, "key", nil, keyUsage)
	cmd.Flags().StringVar(&f.rate, "limit", "", "the rate, for example \"600/min burst 1200\", unlimited or 0/min")
	cmd.Flags().StringVar(&f.limit, "name", "", "name of the limit, where the rule has several")
	cmd.Flags().Var(&f.length, "for", "how long, for example 2h or 3d")
	cmd.Flags().StringVar(&f.till, "until", "", "until when, for example 2026-12-01T06:00:00Z")
	a.yesFlag(cmd, "ten times more or less than the limit is meant")
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) setOverride(ctx context.Context, rule string, f *overrideFlags) error {
	if f.rate == "" {
		return usagef("--limit is missing: say which rate, for example --limit 600/min")
	}
	rate, err := rules.ParseRate(f.rate)
	if err != nil {
		return usagef("--limit: %w", err)
	}
	until, err := f.until()
	if err != nil {
		return err
	}
	if err := a.checkKey(ctx, rule, f); err != nil {
		return err
	}
	confirmed, err := a.askTenfold(ctx, rule, f.limit, rate)
	if err != nil {
		return err
	}
	next := func(step *adminpb.Step) string {
		return "it ends by itself; next: rulectl override list " + step.GetRule()
	}
	return a.changeRule(ctx, change{what: "override a key of %s with " + f.rate, next: next}, rule, func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
		return one(client.SetOverride(ctx, &adminpb.SetOverrideRequest{
			Domain: domain, Rule: name, Key: f.values(), Limit: f.limit, Rate: f.rate, Until: timestamppb.New(until), Confirmed: confirmed, Why: a.why(),
		}))
	})
}

func (a *app) overrideDeleteCommand() *cobra.Command {
	var f overrideFlags
	cmd := &cobra.Command{
		Use:     "delete RULE --key V[,V2…]",
		Short:   "End the overrides of a key",
		Example: "  rulectl override delete public-api/login --key 203.0.113.7 --wait",
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if err := a.checkKey(ctx, args[0], &f); err != nil {
				return err
			}
			next := func(step *adminpb.Step) string { return "next: rulectl override list " + step.GetRule() }
			return a.changeRule(ctx, change{what: "end overrides of %s", next: next}, args[0], func(ctx context.Context, client adminpb.AdminServiceClient, domain, name string) ([]*adminpb.Outcome, error) {
				return one(client.DeleteOverride(ctx, &adminpb.DeleteOverrideRequest{
					Domain: domain, Rule: name, Key: f.values(), Limit: f.limit, Why: a.why(),
				}))
			})
		}),
	}
	cmd.Flags().StringArrayVar(&f.key, "key", nil, keyUsage)
	cmd.Flags().StringVar(&f.limit, "name", "", "name of the limit; all of them by default")
	a.ruleChangeFlags(cmd)
	return cmd
}

func (a *app) overrideListCommand() *cobra.Command {
	var f overrideFlags
	cmd := &cobra.Command{
		Use:     "list RULE",
		Short:   "Show the overrides of a rule that have not ended",
		Long:    "KEY is a keyed hash: the values are not known. To find those of one key, name it with --key.",
		Example: "  rulectl override list public-api/login\n  rulectl override list public-api/login --key 203.0.113.7",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.listOverrides(ctx, args[0], &f) }),
	}
	cmd.Flags().StringArrayVar(&f.key, "key", nil, keyUsage)
	a.domainFlag(cmd, "domain of the rule")
	a.listFlags(cmd)
	return cmd
}

type overrideItem struct {
	Rule  string `json:"rule"`
	Key   string `json:"key"` // keyed hash
	Limit string `json:"limit,omitempty"`
	Rate  string `json:"rate"`
	Until string `json:"until"`
}

func newOverrideItem(o *adminpb.Override) overrideItem {
	return overrideItem{o.GetRule(), o.GetKey(), o.GetLimit(), o.GetRate(), timeJSON(o.GetUntil())}
}

func (a *app) listOverrides(ctx context.Context, rule string, f *overrideFlags) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	if err := a.checkKey(ctx, rule, f); err != nil {
		return err
	}
	l := &listing[*adminpb.Override]{
		kind:   "OverrideList",
		header: []string{"KEY", "LIMIT", "RATE", "UNTIL", "LEFT"},
		row: func(o *adminpb.Override, _ bool) []string {
			until := o.GetUntil().AsTime()
			return []string{shortID(o.GetKey()), o.GetLimit(), o.GetRate(), when(until), left(until, time.Now())}
		},
		item: func(o *adminpb.Override) any { return newOverrideItem(o) },
		none: func() { a.tell("no overrides of %s/%s; make one with: rulectl override set", domain, name) },
	}
	return l.list(ctx, a, func(ctx context.Context) ([]*adminpb.Override, error) {
		resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListOverridesResponse, error) {
			return client.ListOverrides(ctx, &adminpb.ListOverridesRequest{Domain: domain, Rule: name, Key: f.values()})
		})
		return resp.GetOverrides(), err
	})
}
