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

// settingsWords says what the settings are: "exempt health, probes; shard header:x-api-key; frozen until …".
func settingsWords(s rules.Settings) string {
	var parts []string
	if len(s.Exempt) > 0 {
		names := make([]string, len(s.Exempt))
		for i, e := range s.Exempt {
			match, err := json.Marshal(e.Match)
			if err != nil {
				match = []byte("?") // every valid match encodes
			}
			names[i] = e.Name + " " + string(match)
		}
		parts = append(parts, "exempt "+strings.Join(names, ", "))
	}
	if s.Shard != nil {
		parts = append(parts, "shard "+s.Shard.String())
	}
	for i := range s.Freezes {
		parts = append(parts, freezeWords(&s.Freezes[i]))
	}
	if len(parts) == 0 {
		return "no settings"
	}
	return strings.Join(parts, "; ")
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
