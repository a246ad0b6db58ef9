package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// timeText is how times are written in words.
const timeText = "2006-01-02 15:04:05Z07:00"

// Freeze makes a rule, or a whole domain, refuse nothing for a time.
type Freeze struct {
	Rule            string // "": the whole domain
	For             time.Duration
	IncludingClosed bool // also versions with failure: closed
}

// freeze returns the settings with a freeze in place of one of the same rule. The rule is nil for a whole domain.
func freeze(is rules.Settings, rule *rules.Rule, domain string, op Freeze, now time.Time) (rules.Settings, error) {
	target := domain
	if rule != nil {
		target = rule.ID()
	}
	if op.For < time.Second || op.For > rules.MaxFreeze {
		return is, fmt.Errorf("%w: freeze %s for %s: a freeze lasts from 1s to %s", rules.ErrInvalid, target, op.For, rules.MaxFreeze)
	}
	if rule != nil && !op.IncludingClosed {
		for _, v := range held(rule) {
			if v.Spec.Failure.Mode == rules.FailClosed {
				return is, &rules.GuardError{
					Rule: target, Danger: fmt.Sprintf("v%d has failure: closed, so it guards something that is worse than a refusal", v.Number),
					Way: "freeze it with --including-closed when it is meant",
				}
			}
		}
	}
	is.Freezes = append(otherFreezes(is.Freezes, op.Rule, now), rules.Freeze{
		Rule: op.Rule, Until: now.Add(op.For + time.Second - 1).UTC().Truncate(time.Second), IncludingClosed: op.IncludingClosed,
	})
	slices.SortFunc(is.Freezes, func(a, b rules.Freeze) int { return strings.Compare(a.Rule, b.Rule) })
	return is, nil
}

// otherFreezes are those of other rules that have not ended.
func otherFreezes(list []rules.Freeze, rule string, now time.Time) []rules.Freeze {
	return slices.DeleteFunc(slices.Clone(list), func(f rules.Freeze) bool { return f.Rule == rule || !now.Before(f.Until) })
}

// frozen returns the freeze of exactly this rule ("": of the whole domain) that has not ended.
func frozen(list []rules.Freeze, rule string, now time.Time) *rules.Freeze {
	for i := range list {
		if list[i].Rule == rule && now.Before(list[i].Until) {
			return &list[i]
		}
	}
	return nil
}

// settle returns the settings that a file leads to: what it names is added or takes the place of what had its name. What
// it does not name stays, unless prune is set.
func settle(is rules.Settings, shard *rules.Source, exempt []rules.Exemption, prune bool) rules.Settings {
	if shard != nil || prune {
		is.Shard = shard
	}
	named := func(e rules.Exemption) bool {
		return slices.ContainsFunc(exempt, func(x rules.Exemption) bool { return x.Name == e.Name })
	}
	kept := slices.DeleteFunc(slices.Clone(is.Exempt), func(e rules.Exemption) bool { return prune || named(e) })
	is.Exempt = append(kept, exempt...)
	slices.SortFunc(is.Exempt, func(a, b rules.Exemption) int { return strings.Compare(a.Name, b.Name) })
	if len(is.Exempt) == 0 {
		is.Exempt = nil
	}
	return is
}

// settingsWords says what differs between two settings, and nothing else: "health not exempt; not frozen" and "exempt health
// {…}; frozen until …". Freezes that have ended differ from none in nothing.
func settingsWords(was, will rules.Settings, now time.Time) (before, after string) {
	var w [2][]string
	add := func(old, fresh string) {
		if old != fresh {
			w[0], w[1] = append(w[0], old), append(w[1], fresh)
		}
	}
	for _, name := range namesOf(was.Exempt, will.Exempt, func(e rules.Exemption) string { return e.Name }) {
		add(exemptWords(was.Exempt, name), exemptWords(will.Exempt, name))
	}
	add(shardWords(was.Shard), shardWords(will.Shard))
	for _, rule := range namesOf(was.Freezes, will.Freezes, func(f rules.Freeze) string { return f.Rule }) {
		add(frozenWords(was.Freezes, rule, now), frozenWords(will.Freezes, rule, now))
	}
	if len(w[0]) == 0 { // a freeze that ended just now, or one that was made twice in a second
		return "as before", "as before"
	}
	return strings.Join(w[0], "; "), strings.Join(w[1], "; ")
}

// namesOf are the names in either list, in order and each once.
func namesOf[T any](a, b []T, name func(T) string) []string {
	list := make([]string, 0, len(a)+len(b))
	for _, x := range slices.Concat(a, b) {
		list = append(list, name(x))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// exemptWords says "exempt health {…}", or "health not exempt".
func exemptWords(list []rules.Exemption, name string) string {
	for _, e := range list {
		if e.Name != name {
			continue
		}
		match, err := json.Marshal(e.Match)
		if err != nil {
			match = []byte("?") // every valid match encodes
		}
		return "exempt " + name + " " + string(match)
	}
	return name + " not exempt"
}

func shardWords(s *rules.Source) string {
	if s == nil {
		return "no shard"
	}
	return "shard " + s.String()
}

// frozenWords says whether a rule, or the domain as a whole, is frozen.
func frozenWords(list []rules.Freeze, rule string, now time.Time) string {
	if f := frozen(list, rule, now); f != nil {
		return freezeWords(f)
	}
	return strings.TrimSpace(rule + " not frozen")
}

// freezeWords says "login frozen until 2026-11-02 03:15:00Z".
func freezeWords(f *rules.Freeze) string {
	what := "frozen"
	if f.Rule != "" {
		what = f.Rule + " frozen"
	}
	if f.IncludingClosed {
		what += ", failure: closed included,"
	}
	return what + " until " + f.Until.UTC().Format(timeText)
}
