package rules_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
)

func TestSettingsAreValidatedWhole(t *testing.T) {
	t.Parallel()
	source := func(text string) *rules.Source {
		s, err := rules.ParseSource(text)
		if err != nil {
			t.Fatal(err)
		}
		return &s
	}
	health := rules.Match{Path: []string{"/livez"}}
	for _, c := range []struct {
		name     string
		settings rules.Settings
		want     []string // "CODE path"
	}{
		{"nothing", rules.Settings{}, nil},
		{
			"all of it", rules.Settings{
				Shard: source("header:x-api-key"), Exempt: []rules.Exemption{{Name: "health", Match: health}, {Name: "ready", Match: health}},
				Freezes: []rules.Freeze{{Until: time.Now()}, {Rule: "r", Until: time.Now()}},
			}, nil,
		},
		{"a shard by a segment", rules.Settings{Shard: source("path.id")}, []string{"HG0104 shard"}},
		{"a shard of nothing", rules.Settings{Shard: &rules.Source{}}, []string{"HG0104 shard"}},
		{
			"exemptions",
			rules.Settings{Exempt: []rules.Exemption{
				{Name: "health", Match: health},
				{Name: "Health", Match: rules.Match{Path: []string{"livez"}}},
				{Name: "health"},
			}},
			[]string{"HG0101 exempt[1].name", "HG0102 exempt[1].match.path[0]", "HG0101 exempt[2].name", "HG0102 exempt[2].match"},
		},
		{"freezes", rules.Settings{Freezes: []rules.Freeze{{Rule: "d/r"}}}, []string{"HG0101 freezes[0].rule", "HG0105 freezes[0].until"}},
	} {
		var got []string
		for _, p := range c.settings.Validate() {
			got = append(got, p.Code+" "+p.Path)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestFreezeCoversItsRulesUntilItsEnd(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	open, closed := &rules.Spec{}, &rules.Spec{Failure: rules.Failure{Mode: rules.FailClosed}}
	d := rules.Domain{Freezes: []rules.Freeze{
		{Until: end},
		{Rule: "late", Until: end.Add(time.Hour)},
		{Rule: "login", Until: end, IncludingClosed: true},
	}}
	for _, c := range []struct {
		rule string
		spec *rules.Spec
		at   time.Time
		want *rules.Freeze
	}{
		{"r", open, end.Add(-1), &d.Freezes[0]},
		{"r", open, end, nil},
		{"r", closed, end.Add(-1), nil},
		{"login", closed, end.Add(-1), &d.Freezes[2]},
		{"late", open, end.Add(-1), &d.Freezes[1]}, // the one that ends last
		{"late", open, end, &d.Freezes[1]},
		{"late", open, end.Add(time.Hour), nil},
	} {
		if got := d.Frozen(c.rule, c.spec, c.at); got != c.want {
			t.Errorf("%s, fails %s, at %v: %+v, want %+v", c.rule, c.spec.Failure, c.at, got, c.want)
		}
	}
}
