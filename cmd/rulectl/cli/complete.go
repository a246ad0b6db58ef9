package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// completeWithin is how long a shell waits for names: who types does not wait longer, and goes on typing.
const completeWithin = time.Second

// names of things, for a shell; nil when they cannot be had. A name may have a meaning behind a tab.
type lister func(ctx context.Context, a *app) []string

// complete lets shells complete the names of what there is, in arguments and in flags.
func (a *app) complete(root *cobra.Command) {
	for _, path := range []string{
		"promote", "abort", "pause", "resume", "rollback", "delete", "history", "rollout status", "top", "inspect", "override set", "override list", "override delete",
		"alert silence", "alert unsilence",
	} {
		a.completeArg(root, path, ruleNames)
	}
	a.completeArg(root, "get rules", ruleNames)
	for _, path := range []string{"freeze", "unfreeze", "stats", "lookup"} {
		a.completeArg(root, path, ruleNames, domainNames)
	}
	a.completeDescribe(root)
	a.completeArg(root, "get domains", domainNames)
	a.completeArg(root, "watch", domainNames)
	a.completeArg(root, "sidecar describe", nodeNames)
	a.completeArg(root, "sidecar diff", nodeNames)
	a.completeArg(root, "token revoke", tokenIDs)
	for _, path := range []string{"config use-context", "config set-context", "config delete-context"} {
		a.completeArg(root, path, contextNames)
	}
	a.completeFlag(root, "context", contextNames)
	a.completeFlag(root, "output", words("table", "wide", "json", "yaml", "name"))
	for cmd := range commands(root) {
		a.completeFlag(cmd, "domain", domainNames)
		a.completeFlag(cmd, "stage", words(stageShadow, stageEnforce))
		a.completeFlag(cmd, "role", words(string(access.Viewer), string(access.Editor), string(access.Operator), string(access.Admin), string(access.Sidecar)))
	}
	promote, _, _ := root.Find([]string{"promote"})
	a.completeFlag(promote, "to", words("1%", "10%", "50%", "100%", stepNext))
	a.completeFlag(promote, "on-trip", words(string(rules.TripPauses), string(rules.TripRollsBack)))
	stats, _, _ := root.Find([]string{"stats"})
	a.completeFlag(stats, "by", words(byVersion))
	rollback, _, _ := root.Find([]string{"rollback"})
	_ = rollback.RegisterFlagCompletionFunc("to", func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.named(cmd.Context(), typed, func(ctx context.Context, a *app) []string { return versionNames(ctx, a, args) })
	})
}

// commands walks over a command and all below it.
func commands(root *cobra.Command) func(yield func(*cobra.Command) bool) {
	return func(yield func(*cobra.Command) bool) {
		walk(root, yield)
	}
}

func walk(cmd *cobra.Command, yield func(*cobra.Command) bool) bool {
	if !yield(cmd) {
		return false
	}
	return !slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return !walk(c, yield) })
}

func words(list ...string) lister {
	return func(context.Context, *app) []string { return list }
}

func (a *app) completeArg(root *cobra.Command, path string, listers ...lister) {
	cmd, _, err := root.Find(strings.Fields(path))
	if err != nil {
		return
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && cmd.Args != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // it takes one
		}
		return a.named(cmd.Context(), typed, listers...)
	}
}

// completeDescribe completes a rule, or a kind of things and one of them.
func (a *app) completeDescribe(root *cobra.Command) {
	of := map[string]lister{"rule": ruleNames, "domain": domainNames, "sidecar": nodeNames}
	cmd, _, _ := root.Find([]string{"describe"})
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return a.named(cmd.Context(), typed, ruleNames, words("domain", "sidecar"))
		case len(args) == 1 && of[args[0]] != nil:
			return a.named(cmd.Context(), typed, of[args[0]])
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes a flag, where the command has one of its own.
func (a *app) completeFlag(cmd *cobra.Command, flag string, list lister) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.named(cmd.Context(), typed, list)
	})
}

func (a *app) named(ctx context.Context, typed string, listers ...lister) ([]string, cobra.ShellCompDirective) {
	a.timeout = min(a.timeout, completeWithin)
	var list []string
	for _, names := range listers {
		for _, name := range names(ctx, a) {
			if strings.HasPrefix(name, typed) {
				list = append(list, oneLineTab(name))
			}
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// oneLineTab cleans a name and its meaning, and keeps the tab between.
func oneLineTab(text string) string {
	name, meaning, has := strings.Cut(text, "\t")
	if !has {
		return oneLine(name)
	}
	return oneLine(name) + "\t" + oneLine(meaning)
}

func ruleNames(ctx context.Context, a *app) (list []string) {
	resp, _ := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListRulesResponse, error) {
		return client.ListRules(ctx, &adminpb.ListRulesRequest{Domain: a.domain})
	})
	for _, r := range resp.GetRules() {
		name := r.GetDomain() + "/" + r.GetName()
		if a.domain != "" {
			name = r.GetName()
		}
		list = append(list, name+"\t"+r.GetState())
	}
	return list
}

func domainNames(ctx context.Context, a *app) []string {
	list, _ := a.allDomains(ctx)
	return list
}

func nodeNames(ctx context.Context, a *app) (list []string) {
	resp, _ := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListNodesResponse, error) {
		return client.ListNodes(ctx, &adminpb.ListNodesRequest{})
	})
	for _, n := range resp.GetNodes() {
		list = append(list, n.GetId())
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func tokenIDs(ctx context.Context, a *app) (list []string) {
	resp, _ := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListCredentialsResponse, error) {
		return client.ListCredentials(ctx, &adminpb.ListCredentialsRequest{})
	})
	for _, c := range resp.GetCredentials() {
		list = append(list, c.GetId()+"\t"+c.GetName()+", "+c.GetRole())
	}
	return list
}

func versionNames(ctx context.Context, a *app, args []string) (list []string) {
	if len(args) == 0 {
		return nil
	}
	domain, name, err := a.ruleName(args[0])
	if err != nil {
		return nil
	}
	resp, _ := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.HistoryResponse, error) {
		return client.History(ctx, &adminpb.HistoryRequest{Domain: domain, Rule: name})
	})
	seen := map[int64]bool{}
	for _, e := range resp.GetEntries() {
		for _, v := range []*adminpb.Version{e.GetCandidate(), e.GetStable()} {
			if v != nil && !seen[v.GetNumber()] {
				seen[v.GetNumber()] = true
				list = append(list, "v"+number(v.GetNumber())+"\t"+summary(v))
			}
		}
	}
	return list
}

func contextNames(_ context.Context, a *app) (list []string) {
	c, err := readConfig(configPath(a.io.Getenv))
	if err != nil {
		return nil
	}
	for _, s := range c.contexts {
		list = append(list, s.Name+"\t"+s.address())
	}
	return list
}
