package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/subscribe"
)

// revisionJSON is what one revision brought; -o json prints one a line.
type revisionJSON struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Domain     string      `json:"domain"`
	Revision   int64       `json:"revision"` // 0: there is no such domain yet
	Rules      int         `json:"rules"`    // that are in force now
	Settings   string      `json:"settings,omitempty"`
	Steps      []watchItem `json:"steps"`
}

type watchItem struct {
	Rule   string `json:"rule"`
	Before string `json:"before,omitempty"` // absent: it was not there
	After  string `json:"after,omitempty"`  // absent: it is gone
}

func (a *app) printUpdate(u *subscribe.Update, had, has map[string]*rules.Rule) error {
	steps := watchSteps(had, has)
	settings := settingsText(&u.Domain)
	if a.structured() {
		return a.printLine(a.io.Out, revisionJSON{apiVersion, "Revision", u.Domain.Name, u.Domain.Revision, len(u.Rules), settings, steps})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  revision %d: %s\n", oneLine(u.Domain.Name), u.Domain.Revision, count(len(u.Rules), "rule"))
	if settings != "" {
		fmt.Fprintf(&b, "  %s\n", oneLine(settings))
	}
	for _, s := range steps {
		switch {
		case s.Before == "":
			fmt.Fprintf(&b, "  + %s: %s\n", oneLine(s.Rule), oneLine(s.After))
		case s.After == "":
			fmt.Fprintf(&b, "  - %s: was %s\n", oneLine(s.Rule), oneLine(s.Before))
		default:
			fmt.Fprintf(&b, "  ~ %s: %s -> %s\n", oneLine(s.Rule), oneLine(s.Before), oneLine(s.After))
		}
	}
	_, err := fmt.Fprint(a.io.Out, b.String())
	return err
}

// watchSteps are the differences between two sets, by name.
func watchSteps(had, has map[string]*rules.Rule) []watchItem {
	all := maps.Clone(has)
	if all == nil {
		all = map[string]*rules.Rule{}
	}
	maps.Copy(all, had)
	steps := []watchItem{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, after := had[name], has[name]
		if before != nil && after != nil && before.Revision == after.Revision {
			continue
		}
		steps = append(steps, watchItem{all[name].ID(), stateWords(before), stateWords(after)})
	}
	return steps
}

func stateWords(r *rules.Rule) string {
	switch {
	case r == nil:
		return ""
	case len(r.Overrides) > 0:
		return r.State() + ", " + count(len(r.Overrides), "override")
	}
	return r.State()
}

// settingsText says what holds for all rules of a domain; "" when that is nothing special.
func settingsText(d *rules.Domain) string {
	var parts []string
	for _, f := range d.Freezes {
		what := "all rules"
		if f.Rule != "" {
			what = f.Rule
		}
		parts = append(parts, fmt.Sprintf("❄ %s FROZEN until %s", what, when(f.Until)))
	}
	for _, e := range d.Exempt {
		parts = append(parts, "exempt "+e.Name)
	}
	if d.Shard != nil {
		parts = append(parts, "shard "+d.Shard.String())
	}
	return strings.Join(parts, "; ")
}
