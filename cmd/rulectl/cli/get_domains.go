package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) getDomainsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "domains [DOMAIN]",
		Aliases: []string{"domain"},
		Short:   "Show domains with their settings, and what is frozen",
		Example: "  rulectl get domains\n  rulectl get domain public-api -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if len(args) == 1 {
				a.domain, a.lists = args[0], "rulectl get domains"
			}
			return a.getDomains(ctx, len(args) == 1)
		}),
	}
	a.domainFlag(cmd, "only this domain")
	a.listFlags(cmd)
	a.watchFlag(cmd)
	hasNames(cmd)
	return cmd
}

type domainItem struct {
	Domain           string          `json:"domain"`
	Revision         int64           `json:"revision"`         // the last one that touched it, or one of its rules
	SettingsRevision int64           `json:"settingsRevision"` // the last one that touched what follows
	Rules            int             `json:"rules"`
	Shard            string          `json:"shard,omitempty"`
	Exempt           []exemptionItem `json:"exempt"`
	Freezes          []freezeItem    `json:"freezes"` // that have not ended
}

type exemptionItem struct {
	Name  string          `json:"name"`
	Match json.RawMessage `json:"match"`
}

type freezeItem struct {
	Rule            string `json:"rule,omitempty"` // absent: all of the domain
	Until           string `json:"until"`
	IncludingClosed bool   `json:"includingClosed"`

	until time.Time
}

func (a *app) getDomains(ctx context.Context, named bool) error {
	l := &listing[domainItem]{
		kind:   "DomainList",
		header: []string{"DOMAIN", "REVISION", "RULES", "SHARD", "EXEMPT", "FROZEN"},
		wide:   []string{"SETTINGS REVISION"},
		right:  []string{"REVISION", "RULES", "SETTINGS REVISION"},
		row:    domainItem.row,
		notes:  domainItem.notes,
		name:   func(d domainItem) string { return d.Domain },
		none:   func() { a.nothing("domains", "the first rule makes one: rulectl apply -f FILE") },
	}
	return l.list(ctx, a, func(ctx context.Context) ([]domainItem, error) { return a.findDomains(ctx, named) })
}

// findDomains returns the domain that -d names, or all; one that is named has to be there.
func (a *app) findDomains(ctx context.Context, named bool) ([]domainItem, error) {
	var of *adminpb.ListRulesResponse
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListDomainsResponse, error) {
		var err error
		if of, err = client.ListRules(ctx, &adminpb.ListRulesRequest{Domain: a.domain}); err != nil {
			return nil, err
		}
		return client.ListDomains(ctx, &adminpb.ListDomainsRequest{Domain: a.domain})
	})
	if err != nil {
		return nil, err
	}
	if named && len(resp.GetDomains()) == 0 {
		return nil, fmt.Errorf("domain %s: %w", a.domain, rules.ErrNotFound)
	}
	has := map[string]int{}
	for _, r := range of.GetRules() {
		has[r.GetDomain()]++
	}
	items := make([]domainItem, len(resp.GetDomains()))
	for i, d := range resp.GetDomains() {
		items[i] = newDomainItem(d, has[d.GetName()])
	}
	return items, nil
}

func newDomainItem(d *adminpb.Domain, has int) domainItem {
	item := domainItem{
		Domain: d.GetName(), Revision: d.GetRevision(), SettingsRevision: d.GetSettingsRevision(), Rules: has, Shard: d.GetShard(),
		Exempt: []exemptionItem{}, Freezes: []freezeItem{},
	}
	for _, e := range d.GetExempt() {
		match := json.RawMessage(e.GetMatch())
		if !json.Valid(match) {
			match = json.RawMessage("null")
		}
		item.Exempt = append(item.Exempt, exemptionItem{e.GetName(), match})
	}
	for _, f := range d.GetFreezes() {
		item.Freezes = append(item.Freezes, freezeItem{f.GetRule(), timeJSON(f.GetUntil()), f.GetIncludingClosed(), f.GetUntil().AsTime()})
	}
	return item
}

func (d domainItem) row(wide bool) []string {
	exempt := make([]string, len(d.Exempt))
	for i, e := range d.Exempt {
		exempt[i] = e.Name
	}
	frozen := ""
	for _, f := range d.Freezes {
		switch {
		case f.Rule == "":
			frozen = "❄ all"
			if !f.IncludingClosed {
				frozen = "❄ all but failure: closed"
			}
		case !strings.HasPrefix(frozen, "❄ all"):
			frozen = "❄ " + count(len(d.Freezes), "rule")
		}
	}
	row := []string{d.Domain, strconv.FormatInt(d.Revision, 10), strconv.Itoa(d.Rules), d.Shard, strings.Join(exempt, ","), frozen}
	if wide {
		row = append(row, number(d.SettingsRevision))
	}
	return row
}

// notes say until when what is frozen.
func (d domainItem) notes(now time.Time) []string {
	list := make([]string, len(d.Freezes))
	for i, f := range d.Freezes {
		what := d.Domain
		if f.Rule != "" {
			what += "/" + f.Rule
		}
		list[i] = fmt.Sprintf("❄ %s FROZEN until %s (%s left); %s; to end it: rulectl unfreeze %s", what, when(f.until), left(f.until, now), f.closedText(), what)
	}
	return list
}

// closedText says what becomes of the rules that guard something.
func (f *freezeItem) closedText() string {
	switch {
	case f.IncludingClosed:
		return "rules with failure: closed refuse nobody either"
	case f.Rule != "":
		return "a version with failure: closed still refuses"
	}
	return "rules with failure: closed still refuse"
}
