package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe RULE | domain DOMAIN | sidecar NODE",
		Short: "Say in plain words what is known of a rule, a domain or a sidecar",
		Long: "Describe says what a rule means and where it stands: who changed it last and why, for which keys its candidate binds,\n" +
			"which overrides it has, whether it is frozen, and the spec of each version.\n\n" +
			"RULE is DOMAIN/NAME, or a name with -d. A rule may also be named as: describe rule RULE.",
		Example: "  rulectl describe public-api/login\n  rulectl describe domain public-api\n  rulectl describe sidecar cart-7f9-x2",
		GroupID: groupLook,
		Args:    cobra.RangeArgs(1, 2),
		RunE:    a.run(a.describe),
	}
	a.domainFlag(cmd, "domain of the rule")
	return cmd
}

func (a *app) describe(ctx context.Context, args []string) error {
	kind, name := "rule", args[0]
	if len(args) == 2 {
		kind, name = args[0], args[1]
	}
	switch kind {
	case "rule", "rules":
		return a.describeRule(ctx, name)
	case "domain", "domains":
		return a.describeDomain(ctx, name)
	case "sidecar", "sidecars", "node":
		return a.describeSidecar(ctx, name)
	}
	return usagef("%q is nothing to be described: use rule, domain or sidecar", kind)
}

// newest is the version of a rule that was applied last.
func newest(r *adminpb.Rule) *adminpb.Version { return cmp.Or(r.GetCandidate(), r.GetStable()) }

// inForce is the version that decides for most keys.
func inForce(r *adminpb.Rule) *adminpb.Version { return cmp.Or(r.GetStable(), r.GetCandidate()) }

// summary says what a version means; "" for a spec that this program cannot read.
func summary(v *adminpb.Version) string {
	return specSummary(v.GetSpec())
}

func specSummary(spec string) string {
	if s, err := rules.DecodeSpec([]byte(spec)); err == nil {
		return rules.Summary(&s)
	}
	return ""
}

// ruleFacts are all that is shown of a rule.
type ruleFacts struct {
	rule      *adminpb.Rule
	history   []*adminpb.HistoryEntry
	overrides []*adminpb.Override
	domain    *adminpb.Domain
}

type describedRule struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	ruleItem
	Summary     string         `json:"summary"`
	Last        *historyItem   `json:"last,omitempty"`
	OverridesOf []overrideItem `json:"overridesOf"`
	Freezes     []freezeItem   `json:"freezes"`
}

func (a *app) describeRule(ctx context.Context, arg string) error {
	a.domainWay = "rulectl describe domain %s"
	found, err := a.findRules(ctx, []string{arg})
	if err != nil {
		return err
	}
	f := ruleFacts{rule: found[0]}
	domain, name := f.rule.GetDomain(), f.rule.GetName()
	if _, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListDomainsResponse, error) {
		history, err := client.History(ctx, &adminpb.HistoryRequest{Domain: domain, Rule: name})
		if err != nil {
			return nil, err
		}
		overrides, err := client.ListOverrides(ctx, &adminpb.ListOverridesRequest{Domain: domain, Rule: name})
		if err != nil {
			return nil, err
		}
		f.history, f.overrides = history.GetEntries(), overrides.GetOverrides()
		domains, err := client.ListDomains(ctx, &adminpb.ListDomainsRequest{Domain: domain})
		for _, d := range domains.GetDomains() {
			f.domain = d
		}
		return domains, err
	}); err != nil {
		return err
	}
	if a.structured() {
		return a.printData(f.item())
	}
	_, err = fmt.Fprint(a.io.Out, f.text(time.Now()))
	return err
}

func (f *ruleFacts) item() describedRule {
	d := describedRule{
		APIVersion: apiVersion, Kind: "RuleDescription", ruleItem: newRuleItem(f.rule), Summary: summary(newest(f.rule)),
		OverridesOf: []overrideItem{}, Freezes: f.freezes(),
	}
	if len(f.history) > 0 {
		last := newHistoryItem(f.history[0])
		last.Stable, last.Candidate = nil, nil // they stand beside it
		d.Last = &last
	}
	for _, o := range f.overrides {
		d.OverridesOf = append(d.OverridesOf, newOverrideItem(o))
	}
	return d
}

// freezes are those that hold for the rule.
func (f *ruleFacts) freezes() []freezeItem {
	list := []freezeItem{}
	if f.domain == nil {
		return list
	}
	for _, freeze := range newDomainItem(f.domain, 0).Freezes {
		if freeze.Rule == "" || freeze.Rule == f.rule.GetName() {
			list = append(list, freeze)
		}
	}
	return list
}

// text is the whole in words.
func (f *ruleFacts) text(now time.Time) string {
	var b strings.Builder
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-11s %s\n", label, oneLine(text))
		}
	}
	r := f.rule
	said := newVersionItem(newest(r)).said()
	line("Rule:", r.GetDomain()+"/"+r.GetName())
	line("About:", said.Description)
	line("Owner:", said.Owner)
	line("State:", r.GetState())
	line("Cohort:", cohortText(r))
	line("Plan:", r.GetPlan())
	if r.GetCandidate() != nil {
		line("Counted:", fmt.Sprintf("rulectl stats %s/%s has what v%d would refuse", r.GetDomain(), r.GetName(), r.GetCandidate().GetNumber()))
	}
	for _, freeze := range f.freezes() {
		line("Frozen:", freeze.text(now))
	}
	if len(f.history) > 0 {
		h := f.history[0]
		line("Last:", fmt.Sprintf("revision %d, %s ago: %s by %s%s", h.GetRevision(), age(now.Sub(h.GetTime().AsTime())), h.GetAction(),
			actorText(h.GetActor(), h.GetVerified()), quoted(h.GetMessage())))
	}
	for _, o := range f.overrides {
		until := o.GetUntil().AsTime()
		line("Override:", fmt.Sprintf("%s %s for the key %s, until %s (%s left)", o.GetLimit(), o.GetRate(), o.GetKey(), when(until), left(until, now)))
	}
	versionText(&b, "Stable", r.GetStable())
	versionText(&b, "Candidate", r.GetCandidate())
	return b.String()
}

func quoted(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(": %q", message)
}

// cohortText says for whom which version binds.
func cohortText(r *adminpb.Rule) string {
	percent := rules.Percent(r.GetPercent())
	outside, everybody := "nobody is refused", ""
	if r.GetStable() != nil {
		outside, everybody = fmt.Sprintf("v%d binds", r.GetStable().GetNumber()), " for everybody"
	}
	switch {
	case r.GetCandidate() == nil:
		return ""
	case percent == 0:
		return fmt.Sprintf("none: v%d only counts what it would refuse, and %s%s", r.GetCandidate().GetNumber(), outside, everybody)
	}
	return fmt.Sprintf("v%d binds for %s of keys, always the same ones; for the others %s", r.GetCandidate().GetNumber(), percent, outside)
}

func (f freezeItem) text(now time.Time) string {
	what := "this rule"
	if f.Rule == "" {
		what = "the whole domain"
	}
	return fmt.Sprintf("❄ %s refuses nobody until %s (%s left); %s", what, when(f.until), left(f.until, now), f.closedText())
}

func versionText(b *strings.Builder, name string, v *adminpb.Version) {
	if v == nil {
		return
	}
	fmt.Fprintf(b, "\n%s v%d", name, v.GetNumber())
	if text := summary(v); text != "" {
		fmt.Fprintf(b, ": %s.", oneLine(text))
	}
	b.WriteString("\n")
	text, err := asYAML([]byte(v.GetSpec()))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		b.WriteString("  " + line)
	}
}
