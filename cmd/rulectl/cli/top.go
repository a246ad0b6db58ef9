package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) topCommand() *cobra.Command {
	since, keys := span(15*time.Minute), int32(20)
	cmd := &cobra.Command{
		Use:   "top RULE",
		Short: "Show the keys that a rule refuses most, or a candidate would",
		Long: "Top shows the most affected keys of each version, the newest first, and about how many keys were affected. Values\n" +
			"are masked, and those that are hashed a short keyed hash: lookup finds the one of a customer.\n\n" +
			"128 keys are kept of each version. Where more were affected, some of a key's count may be of other keys: UNSURE is\n" +
			"how much at most. The counts lag by ten seconds or a little more.\n\nRULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl top public-api/login\n  rulectl top public-api/login --since 24h -n 5 -w",
		GroupID: groupLook,
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			domain, rule, err := a.ruleName(args[0])
			if err != nil {
				return err
			}
			if keys < 1 {
				return usagef("-n is %d: at least one key is shown", keys)
			}
			return a.see(ctx, func(ctx context.Context) (seen, error) { return a.top(ctx, domain, rule, time.Duration(since), keys) })
		}),
	}
	cmd.Flags().Var(&since, "since", "how far back, for example 1h or 2d; at most 8d")
	cmd.Flags().Int32VarP(&keys, "keys", "n", keys, "how many keys of each version; at most 128")
	a.domainFlag(cmd, "domain of the rule")
	a.watchFlag(cmd)
	return cmd
}

func (a *app) top(ctx context.Context, domain, rule string, since time.Duration, keys int32) (seen, error) {
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.TopResponse, error) {
		return client.Top(ctx, &adminpb.TopRequest{Domain: domain, Rule: rule, Since: durationpb.New(since), Limit: keys})
	})
	if err != nil {
		return seen{}, err
	}
	s := seen{text: topText(domain+"/"+rule, resp), data: newTopItem(domain, rule, resp), says: []any{resp.GetVersions(), resp.GetMissing()}}
	if len(resp.GetVersions()) == 0 {
		s.none = func() {
			a.tell("%s/%s refused nobody in the last %s, nor would have; what it met: rulectl stats %s/%s", domain, rule, age(since), domain, rule)
		}
	}
	return s, nil
}

func topText(rule string, r *adminpb.TopResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Rule:   %s\nTime:   %s\n", oneLine(rule), localSpan(r.GetFrom().AsTime(), r.GetTo().AsTime()))
	for _, v := range r.GetVersions() {
		fmt.Fprintf(&b, "\nv%d, %s: refused %s, would refuse %s, of %s\n", v.GetVersion(), oneLine(v.GetRole()), tally.Thousands(v.GetRefused()), tally.Thousands(v.GetWouldRefuse()), keysText(v))
		if v.GetJudgedShared() > 0 {
			b.WriteString(between + estimateText(v) + "\n")
		}
		b.WriteString(topTable(v.GetKeys()))
	}
	if text := missingText(r.GetMissing()); text != "" {
		b.WriteString("\n" + text)
	}
	return b.String()
}

// keysText says how many keys were affected.
func keysText(v *adminpb.VersionKeys) string {
	const kept = 128 // up to that many they are counted
	switch n := v.GetDistinct(); {
	case n == 0:
		return "keys that come with the next report"
	case n == 1:
		return "1 key"
	case n < kept:
		return fmt.Sprintf("%d keys", n)
	default:
		return "about " + tally.Thousands(n) + " keys"
	}
}

func topTable(keys []*adminpb.TopKey) string {
	if len(keys) == 0 {
		return ""
	}
	rows := make([][]string, len(keys))
	for i, k := range keys {
		rows[i] = []string{k.GetLabel(), tally.Thousands(k.GetRefused()), tally.Thousands(k.GetWouldRefuse()), unsure(k.GetOver()), tally.Percent(k.GetShare())}
	}
	return renderTable([]string{"KEY", "REFUSED", "WOULD REFUSE", "UNSURE", "SHARE"}, rows, "REFUSED", "WOULD REFUSE", "UNSURE", "SHARE")
}

// unsure is how much of a count may be of other keys.
func unsure(over int64) string {
	if over == 0 {
		return "-"
	}
	return "at most " + tally.Thousands(over)
}

type topItem struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Domain     string            `json:"domain"`
	Rule       string            `json:"rule"` // its name
	From       string            `json:"from"`
	To         string            `json:"to"`
	Versions   []versionKeysItem `json:"versions"` // the newest first
	Missing    []missingItem     `json:"missing"`  // counts that will never come
}

type versionKeysItem struct {
	Version     int64        `json:"version"`
	Role        string       `json:"role"` // stable, candidate or earlier
	Refused     int64        `json:"refused"`
	WouldRefuse int64        `json:"wouldRefuse"`
	Shared      int64        `json:"wouldRefuseShared"` // with other rules: with any, it is an estimate
	Distinct    int64        `json:"distinct"`          // about how many keys were affected
	Keys        []topKeyItem `json:"keys"`
}

type topKeyItem struct {
	Label       string  `json:"label"`
	Key         string  `json:"key"` // keyed hash
	Refused     int64   `json:"refused"`
	WouldRefuse int64   `json:"wouldRefuse"`
	Over        int64   `json:"over"`  // at most so many of the two may be of other keys
	Share       float64 `json:"share"` // percent of all that the version refused or would have
}

func newTopItem(domain, rule string, r *adminpb.TopResponse) topItem {
	item := topItem{
		APIVersion: apiVersion, Kind: "TopKeys", Domain: domain, Rule: rule, From: timeJSON(r.GetFrom()), To: timeJSON(r.GetTo()),
		Versions: []versionKeysItem{}, Missing: newMissingItems(r.GetMissing()),
	}
	for _, v := range r.GetVersions() {
		keys := make([]topKeyItem, len(v.GetKeys()))
		for i, k := range v.GetKeys() {
			keys[i] = topKeyItem{k.GetLabel(), k.GetId(), k.GetRefused(), k.GetWouldRefuse(), k.GetOver(), tally.InPercent(k.GetShare())}
		}
		item.Versions = append(item.Versions, versionKeysItem{v.GetVersion(), v.GetRole(), v.GetRefused(), v.GetWouldRefuse(), v.GetWouldRefuseShared(), v.GetDistinct(), keys})
	}
	return item
}
