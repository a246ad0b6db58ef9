package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// newest is the version that was applied last: the candidate, where there is one.
func newest(r *rules.Rule) *rules.Version { return cmp.Or(r.Candidate, r.Stable) }

// steps says what became of each rule and of the settings. A new spec is compared with the one in force, or the one being
// tried.
func (p *plan) steps(domain string, at time.Time) []Step {
	was := make(map[string]*rules.Rule, len(p.before))
	for i := range p.before {
		was[p.before[i].UID] = &p.before[i]
	}
	list := make([]Step, 0, len(p.after)+1)
	if c := p.settings; c != nil {
		before, after := settingsWords(c.before, c.after, at)
		list = append(list, Step{Rule: domain, Before: before, After: after, Warnings: p.warnings[domain]})
	}
	for i := range p.after {
		now := &p.after[i]
		old := was[now.UID]
		step := Step{
			Rule: now.ID(), After: now.State() + planWords(old, now) + overrideWords(old, now), Warnings: p.warnings[now.Name],
			Stable: number(now.Stable), Candidate: number(now.Candidate),
		}
		if old != nil {
			step.Before = old.State()
			step.Warnings = append(step.Warnings, compared(old, now)...)
		}
		list = append(list, step)
	}
	return list
}

// started reports that a plan was started by this change.
func started(old, now *rules.Rule) bool {
	return now.Course != nil && (old == nil || old.Course == nil || old.Course.Begun != now.Course.Begun)
}

// planWords says which plan was started, or why it holds.
func planWords(old, now *rules.Rule) string {
	switch c := now.Course; {
	case c == nil || old == nil:
		return ""
	case started(old, now):
		return "; plan: " + c.Plan.String()
	case c.Tripped != "" && (old.Course == nil || old.Course.Tripped == ""):
		return "; " + c.Tripped
	}
	return ""
}

// overrideWords says which overrides are new and which are gone: "; override 1f2e3d4c: 600/min until …".
func overrideWords(old, now *rules.Rule) string {
	var before []rules.Override
	if old != nil {
		before = old.Overrides
	}
	without := func(list []rules.Override, o rules.Override) bool {
		return !slices.ContainsFunc(list, func(other rules.Override) bool { return sameOverride(o, other) })
	}
	var b strings.Builder
	for _, o := range now.Overrides {
		if without(before, o) {
			fmt.Fprintf(&b, "; override %s: %s until %s", overrideName(o), o.Rate, o.Until.UTC().Format(timeText))
		}
	}
	for _, o := range before {
		if without(now.Overrides, o) {
			fmt.Fprintf(&b, "; no longer override %s: %s", overrideName(o), o.Rate)
		}
	}
	return b.String()
}

// overrideName is the begin of the hash of the key, and the limit's name where there is one.
func overrideName(o rules.Override) string {
	name := o.Key.String()[:8]
	if o.Limit != "" {
		name += " of " + o.Limit
	}
	return name
}

// compared warns of what is unusual between two states: limits that change tenfold, counters that start anew at once, and a
// plan that ends.
func compared(old, now *rules.Rule) []string {
	var list []string
	if v := newest(now); v != nil && !old.Deleted() && v.Number > newest(old).Number {
		for _, problem := range rules.CompareLimits(&inForce(old).Spec, &v.Spec) {
			list = append(list, problem.String())
		}
	}
	if started(old, now) && now.Course.Running() && now.Course.Plan.Gates.MaxWouldRefuse == nil && now.Course.Plan.Gates.MaxDelta == nil {
		list = append(list, "no gate watches what the plan's steps refuse: only a person stops it")
	}
	if old.Course.Running() && now.Course == nil {
		list = append(list, "its plan ends here: nothing promotes it by itself any more")
	}
	for _, o := range now.Overrides {
		for _, v := range held(now) {
			holds := func(l rules.Limit) bool { return o.HoldsFor(&v.Spec, &l) }
			if !slices.ContainsFunc(v.Spec.Limits, holds) {
				list = append(list, fmt.Sprintf("override %s (%s) does not hold for v%d, whose limits are others", overrideName(o), o.Rate, v.Number))
			}
		}
	}
	if old.Stable != nil && now.Stable != nil && !rules.SameCounters(&old.Stable.Spec, &now.Stable.Spec) && old.Candidate == nil {
		list = append(list, fmt.Sprintf("the counters of v%d are not those of v%d (another algorithm, window or key): they start anew, so callers get a fresh budget",
			now.Stable.Number, old.Stable.Number))
	}
	return list
}

func (s *Service) record(in intent, p *plan, done []Step) (Record, error) {
	lines := make([]string, len(done))
	for i, step := range done {
		lines[i] = fmt.Sprintf("%s: %s -> %s", step.Rule, cmp.Or(step.Before, "new"), step.After)
	}
	was, will := p.snapshot(p.before), p.snapshot(p.after)
	if p.settings != nil {
		was[""], will[""] = p.settings.before, p.settings.after
	}
	before, err := json.Marshal(was)
	if err != nil {
		return Record{}, fmt.Errorf("write the audit record: %w", err)
	}
	after, err := json.Marshal(will)
	if err != nil {
		return Record{}, fmt.Errorf("write the audit record: %w", err)
	}
	r := s.note(in.action, in.target, in.why)
	r.Domain, r.Detail, r.Before, r.After = in.domain, strings.Join(lines, "\n"), before, after
	return r, nil
}

// note is a record without a revision, and so far without details.
func (s *Service) note(action Action, target string, why Why) Record {
	return Record{
		Time: s.now().UTC().Truncate(time.Microsecond), Actor: why.actor(), Action: action, Message: why.Message,
		Target: strings.ToValidUTF8(target[:min(len(target), maxTarget)], ""),
		Before: json.RawMessage("{}"), After: json.RawMessage("{}"),
	}
}

// maxTarget bounds what a record is about, in bytes: it is looked up by, and a refused attempt may have named anything.
const maxTarget = 1024

type ruleSnapshot struct {
	UID       string           `json:"uid"`
	Stable    *versionSnapshot `json:"stable,omitempty"`
	Candidate *versionSnapshot `json:"candidate,omitempty"`
	Percent   rules.Percent    `json:"percent,omitempty"`
	Paused    bool             `json:"paused,omitempty"`
	Overrides []rules.Override `json:"overrides,omitempty"`
	Plan      *rules.Course    `json:"plan,omitempty"`
}

// versionSnapshot is a version in a record. Its spec is in the record that brought it, and only there: with ten thousand
// rules it would be megabytes, again and again.
type versionSnapshot struct {
	Number int64       `json:"number"`
	Spec   *rules.Spec `json:"spec,omitempty"`
}

func snapshotOf(v *rules.Version, had int64) *versionSnapshot {
	switch {
	case v == nil:
		return nil
	case v.Number <= had:
		return &versionSnapshot{Number: v.Number}
	}
	return &versionSnapshot{Number: v.Number, Spec: &v.Spec}
}

// snapshot is what a record keeps of rules, by name. The settings of the domain stand beside them under "".
func (p *plan) snapshot(list []rules.Rule) map[string]any {
	m := make(map[string]any, len(list))
	for i := range list {
		r := &list[i]
		m[r.Name] = ruleSnapshot{
			UID: r.UID, Stable: snapshotOf(r.Stable, p.had[r.UID]), Candidate: snapshotOf(r.Candidate, p.had[r.UID]),
			Percent: r.Percent, Paused: r.Paused, Overrides: r.Overrides, Plan: r.Course,
		}
	}
	return m
}
