package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

// limitItem is a rate that differs between two specs.
type limitItem struct {
	Name   string `json:"name,omitempty"`   // of the limit
	Value  string `json:"value,omitempty"`  // of limit.by, such as a plan
	Before string `json:"before,omitempty"` // absent: there was none
	After  string `json:"after,omitempty"`  // absent: there is none
	Change string `json:"change,omitempty"` // looser or stricter; absent: neither, or not to be compared
}

// changedLimits compares limits by their names, and rates by the values of limit.by.
func changedLimits(before, after *rules.Spec) []limitItem {
	had, has := ratesOf(before), ratesOf(after)
	all := maps.Clone(had)
	maps.Copy(all, has)
	keys := slices.SortedFunc(maps.Keys(all), func(a, b limitItem) int {
		return strings.Compare(a.Name+"\x00"+a.Value, b.Name+"\x00"+b.Value)
	})
	var list []limitItem
	for _, key := range keys {
		was, wasThere := had[key]
		is, isThere := has[key]
		if wasThere && isThere && was == is {
			continue
		}
		item := key
		if wasThere {
			item.Before = was.text()
		}
		if isThere {
			item.After = is.text()
		}
		if wasThere && isThere && was.algorithm == is.algorithm {
			item.Change = changeText(was.Rate, is.Rate)
		}
		list = append(list, item)
	}
	return list
}

type namedRate struct {
	rules.Rate
	algorithm rules.Algorithm
}

func (r namedRate) text() string {
	if r.algorithm == rules.SlidingWindow {
		return r.String() + " sliding"
	}
	return r.String()
}

// ratesOf are the rates of a spec, by the name of the limit and the value they are for.
func ratesOf(s *rules.Spec) map[limitItem]namedRate {
	rates := map[limitItem]namedRate{}
	for i := range s.Limits {
		l := &s.Limits[i]
		rates[limitItem{Name: l.Name}] = namedRate{l.Rate, l.Algorithm}
		for value, rate := range l.Values {
			rates[limitItem{Name: l.Name, Value: value}] = namedRate{rate, l.Algorithm}
		}
	}
	return rates
}

// changeText compares what can be compared: no limit with any, and the numbers of one window.
func changeText(was, is rules.Rate) string {
	switch {
	case is.Unlimited:
		return "looser"
	case was.Unlimited:
		return "stricter"
	case was.Window != is.Window:
		return ""
	case was.Amount <= is.Amount && was.Burst <= is.Burst:
		return "looser"
	case was.Amount >= is.Amount && was.Burst >= is.Burst:
		return "stricter"
	}
	return ""
}

// printDiff says in words what apply would do.
func (a *app) printDiff(outcomes []*adminpb.Outcome, items []diffItem) error {
	var b strings.Builder
	for _, o := range outcomes {
		if len(o.GetSteps()) == 0 {
			fmt.Fprintf(&b, "%s  unchanged: %s\n", oneLine(o.GetDomain()), oneLine(o.GetNote()))
			continue
		}
		fmt.Fprintf(&b, "%s  %s\n", oneLine(o.GetDomain()), count(len(o.GetSteps()), "change"))
		for range o.GetSteps() {
			a.diffWords(&b, &items[0])
			items = items[1:]
		}
	}
	_, err := fmt.Fprint(a.io.Out, b.String())
	return err
}

func (a *app) diffWords(b *strings.Builder, d *diffItem) {
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(b, "      %-9s %s\n", label, oneLine(text))
		}
	}
	switch {
	case d.Before == "":
		fmt.Fprintf(b, "  %s\n", a.tinted(green, fmt.Sprintf("+ %s: new, %s", oneLine(d.Rule), oneLine(d.After))))
	case strings.HasPrefix(d.After, string(rules.StageDeleted)):
		fmt.Fprintf(b, "  %s\n", a.tinted(red, fmt.Sprintf("- %s: %s -> %s", oneLine(d.Rule), oneLine(d.Before), oneLine(d.After))))
	default:
		fmt.Fprintf(b, "  %s\n", a.tinted(yellow, fmt.Sprintf("~ %s: %s -> %s", oneLine(d.Rule), oneLine(d.Before), oneLine(d.After))))
	}
	switch {
	case d.Was != "" && d.Will != "" && d.Was != d.Will:
		line("was", d.Was)
		line("will be", d.Will)
	case d.Will != "":
		line("says", d.Will)
	default:
		line("was", d.Was)
	}
	for _, l := range d.Limits {
		line("limit", l.words())
	}
	if d.OnlyText {
		line("only", "its description, owner or labels: no verdict depends on them")
	}
	for _, w := range d.Warnings {
		fmt.Fprintf(b, "      ⚠ %s\n", oneLine(w))
	}
	if d.NewCounters {
		b.WriteString("      ⚠ its counters start anew: another algorithm, window or key counts nothing of what was spent until now\n")
		if strings.Contains(d.After, " in shadow") {
			b.WriteString("        (in shadow they fill as callers call; before promoting, wait as long as the longest window)\n")
		}
	}
}

// words is "burst, pro: 300/min -> 600/min (looser)".
func (l limitItem) words() string {
	name := l.Name
	if l.Value != "" {
		name = strings.TrimPrefix(name+", "+l.Value, ", ")
	}
	if name != "" {
		name += ": "
	}
	text := name + becomes(l.Before, l.After)
	switch {
	case l.Before == "":
		text += " (new)"
	case l.After == "":
		text += " (no longer)"
	case l.Change != "":
		text += " (" + l.Change + ")"
	}
	return text
}
