package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) diffCommand() *cobra.Command {
	var f applyFlags
	var unified bool
	cmd := &cobra.Command{
		Use:   "diff -f FILE|DIR|-",
		Short: "Show what apply would do, and change nothing; exit 1 if that is something",
		Long: "Diff says in plain words what `rulectl apply` of the same files with the same flags would do to each rule. With -u it\n" +
			"shows each spec as the control plane keeps it beside the one of the file, as a unified diff; RULECTL_EXTERNAL_DIFF\n" +
			"names a program that shows two folders in its place.\n\n" +
			"Exit 0: apply would change nothing. 1: it would, be it only with --replace, since a candidate binds already, which is\n" +
			"said. 2: they could not be compared. 4, 5 and 7: apply would be refused, and why. (As with kubectl; terraform has it\n" +
			"the other way round.) It needs the role that apply needs, and leaves no audit record.",
		Example: "  rulectl diff -f rules/\n  rulectl diff -f rules/ -u --prune",
		GroupID: groupChange,
		Args:    onlyFiles,
		RunE:    a.compare(func(ctx context.Context, _ []string) error { return a.diff(ctx, f, unified) }),
	}
	a.filesFlag(cmd)
	cmd.Flags().BoolVarP(&unified, "unified", "u", false, "show the specs as a unified diff")
	f.register(cmd)
	return cmd
}

// compare adapts the function of a command whose exit code 1 means that there are differences: that it failed is 2.
func (a *app) compare(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	run := a.run(f)
	return func(cmd *cobra.Command, args []string) error {
		a.failure = exitUsage
		return run(cmd, args)
	}
}

func (a *app) diff(ctx context.Context, f applyFlags, unified bool) error {
	files, req, err := a.applyRequest(f)
	if err != nil {
		return err
	}
	outcomes, err := a.dryRun(ctx, req)
	if bound := err; errors.Is(err, rules.ErrConflict) && !req.GetReplace() && strings.Contains(err.Error(), "--replace") {
		req.Replace = true
		if outcomes, err = a.dryRun(ctx, req); err == nil {
			a.warn("apply of these files needs --replace, and is refused without: %s", oneLine(bound.Error()))
		}
	}
	if err != nil {
		a.showProblems(err, files)
		return err
	}
	standing, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListRulesResponse, error) {
		return client.ListRules(ctx, &adminpb.ListRulesRequest{})
	})
	if err != nil {
		return err
	}
	sets, _ := rulefile.DecodeAll(files) // a newer control plane may read what this program cannot: then there are less words
	items := diffItems(outcomes, standing.GetRules(), sets)
	external := strings.TrimSpace(a.io.Getenv(externalDiff))
	switch {
	case a.structured():
		err = printList(a, "DiffList", items)
	case unified && external != "":
		err = a.showExternally(ctx, external, items)
	case unified:
		err = a.printUnified(items)
	default:
		err = a.printDiff(outcomes, items)
	}
	if err != nil {
		return err
	}
	if len(items) > 0 {
		return explained{exitFailed}
	}
	a.tell("✔ apply would change nothing")
	return nil
}

// diffItem is what apply would do to one rule, or to the settings of a domain.
type diffItem struct {
	Rule     string   `json:"rule"`
	Before   string   `json:"before,omitempty"` // the state; absent: a new rule
	After    string   `json:"after"`
	Warnings []string `json:"warnings,omitempty"`

	Was         string      `json:"was,omitempty"` // what the spec in force means, or the one being tried
	Will        string      `json:"will,omitempty"`
	Limits      []limitItem `json:"limits,omitempty"` // that change
	OnlyText    bool        `json:"onlyText"`         // description, owner or labels
	NewCounters bool        `json:"newCounters"`      // what was spent does not count in the new limits
	Unified     []string    `json:"unified,omitempty"`

	specs []specOfRule // of the rule as it stands
	will  *rules.Spec  // of the file; nil: none
}

// specOfRule is one spec of a rule as it stands.
type specOfRule struct {
	name string // "stable v3"
	spec rules.Spec
}

func diffItems(outcomes []*adminpb.Outcome, standing []*adminpb.Rule, sets []rulefile.RuleSet) []diffItem {
	items := []diffItem{}
	for _, o := range outcomes {
		for _, step := range o.GetSteps() {
			item := diffItem{Rule: step.GetRule(), Before: step.GetBefore(), After: step.GetAfter(), Warnings: step.GetWarnings()}
			item.specs = specsOf(standing, step.GetRule())
			item.compare(findRule(sets, step.GetRule()), deletes(step))
			items = append(items, item)
		}
	}
	return items
}

// specsOf are the specs that a rule has, the stable first.
func specsOf(standing []*adminpb.Rule, rule string) (list []specOfRule) {
	at := slices.IndexFunc(standing, func(r *adminpb.Rule) bool { return r.GetDomain()+"/"+r.GetName() == rule })
	if at < 0 {
		return nil
	}
	for name, v := range map[string]*adminpb.Version{"stable": standing[at].GetStable(), "candidate": standing[at].GetCandidate()} {
		if s, err := rules.DecodeSpec([]byte(v.GetSpec())); v != nil && err == nil {
			list = append(list, specOfRule{fmt.Sprintf("%s v%d", name, v.GetNumber()), s})
		}
	}
	slices.SortFunc(list, func(a, b specOfRule) int { return -strings.Compare(a.name, b.name) })
	return list
}

// findRule returns a rule of the files; nil where none is so named.
func findRule(sets []rulefile.RuleSet, rule string) *rulefile.Rule {
	for i := range sets {
		for j := range sets[i].Rules {
			if sets[i].Domain+"/"+sets[i].Rules[j].Name == rule {
				return &sets[i].Rules[j]
			}
		}
	}
	return nil
}

// compare fills in what the specs say. A rule that is taken out of force has no new spec.
func (d *diffItem) compare(in *rulefile.Rule, deleted bool) {
	var was *rules.Spec
	if len(d.specs) > 0 {
		was = &d.specs[0].spec
		d.Was = rules.Summary(was)
	}
	if in == nil && !deleted {
		return // the settings of the domain, or a file that this program cannot read
	}
	name, text := "nothing", ""
	if in != nil {
		d.will, d.Will = &in.Spec, rules.Summary(&in.Spec)
		name, text = fmt.Sprintf("%s:%d", in.Place.File, in.Place.Line), specText(&in.Spec)
	}
	for _, old := range d.specs {
		if u := udiff.Unified(d.Rule+" "+old.name, name, specText(&old.spec), text); u != "" {
			d.Unified = append(d.Unified, u)
		}
	}
	switch {
	case in == nil:
	case was == nil:
		d.Unified = append(d.Unified, udiff.Unified(d.Rule+" does not exist", name, "", text))
	default:
		d.OnlyText = was.SameVerdicts(in.Spec)
		d.NewCounters = !rules.SameCounters(was, &in.Spec)
		d.Limits = changedLimits(was, &in.Spec)
	}
}

// specText is the canonical form of a spec, as YAML.
func specText(s *rules.Spec) string {
	b, err := s.Encode()
	if err != nil {
		return ""
	}
	text, err := asYAML(b)
	if err != nil {
		return string(b) + "\n"
	}
	return string(text)
}

func (a *app) printUnified(items []diffItem) error {
	var b strings.Builder
	for _, item := range items {
		if len(item.Unified) == 0 {
			fmt.Fprintf(&b, "# %s: %s -> %s\n", oneLine(item.Rule), oneLine(item.Before), oneLine(item.After))
		}
		for _, u := range item.Unified {
			for line := range strings.Lines(clean(u)) {
				b.WriteString(a.diffColour(line))
			}
		}
	}
	_, err := fmt.Fprint(a.io.Out, b.String())
	return err
}

func (a *app) diffColour(line string) string {
	text := strings.TrimSuffix(line, "\n")
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "@@"):
		return a.tinted(bold, text) + "\n"
	case strings.HasPrefix(line, "+"):
		return a.tinted(green, text) + "\n"
	case strings.HasPrefix(line, "-"):
		return a.tinted(red, text) + "\n"
	}
	return line
}
