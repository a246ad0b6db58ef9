package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/web/api/adminpb"
)

// statsRows is about how many lines the table over time has, so that it fits a screen.
const statsRows = 30

const byVersion = "version"

type statsFlags struct {
	since, step span
	by          string
}

func (a *app) statsCommand() *cobra.Command {
	f := statsFlags{since: span(time.Hour)}
	cmd := &cobra.Command{
		Use:     "stats RULE|DOMAIN",
		Aliases: []string{"stat"},
		Short:   "Show what was counted: allowed, refused, and what a candidate would refuse",
		Long: "Stats shows what the sidecars counted, up to about a second ago. Of a rule it has the figures of each version and a\n" +
			"table over time; of a domain its requests and a line for each version, those that refuse most first.\n\n" +
			"A request counts once for each key that a version met. The range behind a share is its 95% interval. Where other\n" +
			"rules refused a request too, what a version would refuse is an estimate, and called so. Counts that will never\n" +
			"come, of a sidecar that was killed, are named. Times are local; with -o json in UTC.\n\n" +
			"RULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl stats public-api/login\n  rulectl stats public-api/login --since 24h --by version\n  rulectl stats public-api --since 15m -w",
		GroupID: groupLook,
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if f.by != "" && f.by != byVersion {
				return usagef("--by %q is not known: use %s", f.by, byVersion)
			}
			domain, rule, err := a.domainOrRule(args[0])
			if err != nil {
				return err
			}
			return a.see(ctx, func(ctx context.Context) (seen, error) { return a.stats(ctx, domain, rule, &f) })
		}),
	}
	cmd.Flags().Var(&f.since, "since", "how far back, for example 15m, 24h or 30d; at most 400d")
	cmd.Flags().Var(&f.step, "step", "length of a line of the table over time, for example 10s; by default about "+number(statsRows)+" lines")
	cmd.Flags().StringVar(&f.by, "by", "", "version: a line for each version and step")
	a.domainFlag(cmd, "domain of the rule")
	a.watchFlag(cmd)
	return cmd
}

func (a *app) stats(ctx context.Context, domain, rule string, f *statsFlags) (seen, error) {
	step := time.Duration(f.step)
	if step == 0 {
		step = time.Duration(f.since) / statsRows
	}
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.StatsResponse, error) {
		return client.Stats(ctx, &adminpb.StatsRequest{
			Domain: domain, Rule: rule, From: timestamppb.New(time.Now().Add(-time.Duration(f.since))), Step: durationpb.New(step),
		})
	})
	if err != nil {
		return seen{}, err
	}
	s := seen{data: newStatsItem(domain, rule, resp), says: []any{resp.GetVersions(), resp.GetRequests(), resp.GetMissing()}}
	if rule != "" {
		s.text = a.ruleStatsText(domain+"/"+rule, resp, f.by == byVersion)
	} else {
		s.text = a.domainStatsText(domain, resp)
	}
	if len(resp.GetVersions()) == 0 {
		s.none = func() { a.noStats(domain, rule, time.Duration(f.since)) }
	}
	return s, nil
}

func (a *app) noStats(domain, rule string, since time.Duration) {
	if rule == "" {
		a.tell("no request met a rule of %s in the last %s (what is counted comes a second later); look further back with --since, or see: rulectl sidecar list -d %s", domain, age(since), domain)
		return
	}
	a.tell("no request met %s/%s in the last %s (what is counted comes a second later); which ones do: rulectl describe %s/%s; who counts: rulectl sidecar list -d %s",
		domain, rule, age(since), domain, rule, domain)
}
