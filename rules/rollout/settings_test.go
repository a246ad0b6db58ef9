package rollout

import (
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
)

func TestStepsOfSettingsSayOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	until := now.Add(15 * time.Minute)
	exempt := func(names ...string) (list []rules.Exemption) {
		for _, name := range names {
			list = append(list, rules.Exemption{Name: name, Match: rules.Match{Method: []string{"GET"}}})
		}
		return list
	}
	other := []rules.Exemption{{Name: "health", Match: rules.Match{Method: []string{"HEAD"}}}}
	shard, err := rules.ParseSource("ip")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		was, will     rules.Settings
		before, after string
	}{
		"a freeze, beside an exemption": {
			rules.Settings{Exempt: exempt("health")},
			rules.Settings{Exempt: exempt("health"), Freezes: []rules.Freeze{{Until: until}}},
			"not frozen", "frozen until 2026-11-29 12:15:00Z",
		},
		"the end of one of two": {
			rules.Settings{Freezes: []rules.Freeze{{Rule: "a", Until: until}, {Rule: "b", Until: until}}},
			rules.Settings{Freezes: []rules.Freeze{{Rule: "a", Until: until}}},
			"b frozen until 2026-11-29 12:15:00Z", "b not frozen",
		},
		"a freeze that has ended goes unsaid": {
			rules.Settings{Freezes: []rules.Freeze{{Rule: "a", Until: now}}}, rules.Settings{Shard: &shard}, "no shard", "shard ip",
		},
		"one more exemption": {
			rules.Settings{Exempt: exempt("health")},
			rules.Settings{Exempt: exempt("health", "probes")},
			"probes not exempt", `exempt probes {"method":["GET"]}`,
		},
		"another match": {
			rules.Settings{Exempt: exempt("health")},
			rules.Settings{Exempt: other},
			`exempt health {"method":["GET"]}`, `exempt health {"method":["HEAD"]}`,
		},
		"nothing that can be said": {
			rules.Settings{Freezes: []rules.Freeze{{Until: now}}}, rules.Settings{}, "as before", "as before",
		},
	} {
		if before, after := settingsWords(c.was, c.will, now); before != c.before || after != c.after {
			t.Errorf("%s: %q -> %q, want %q -> %q", name, before, after, c.before, c.after)
		}
	}
}
