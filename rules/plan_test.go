package rules_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
)

// C28 (a): steps that do not add up are cut to fit, and end where they should.
func TestPlanIsLaidOut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"shadow 1h, 1% 15m, 10% 15m, 50% 30m, 100%": "shadow 1h, 1% 15m, 10% 15m, 50% 30m, 100%",
		"+30% 15m":                      "30% 15m, 60% 15m, 90% 15m, 100%",
		"+30% 15m, max 100%":            "30% 15m, 60% 15m, 90% 15m, 100%",
		"+20% 15m max 50%":              "20% 15m, 40% 15m, 50%",
		"shadow 2d, 1% 90s, +50% 1h30m": "shadow 2d, 1% 1m30s, 51% 1h30m, 100%",
		"+60% 60m,max 50%":              "50%",
		" 0.5%  1h ,  25 10m , 100% ":   "0.5% 1h, 25% 10m, 100%",
		"100%":                          "100%",
		"shadow 24h, 50%":               "shadow 1d, 50%",
		"+1% 1s":                        "",
	} {
		steps, err := rules.ParsePlan(text)
		got := (&rules.Plan{Steps: steps}).StepsText()
		if want == "" {
			want = got
			if len(steps) != 100 || !strings.HasSuffix(got, "99% 1s, 100%") {
				t.Errorf("plan %q has %d steps, want 100", text, len(steps))
			}
		}
		if err != nil || got != want {
			t.Errorf("plan %q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestPlansThatMeanNothingAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                         "a step is empty",
		"shadow 1h":                "ends in shadow",
		"shadow 1h, shadow 1h, 1%": "only goes up",
		"10% 15m, 10%":             "only goes up",
		"10% 15m, 1% 15m, 100%":    "only goes up",
		"10%, 100%":                "says not how long",
		"10% 15m":                  "is the last step",
		"0% 15m, 1%":               "0% is called shadow",
		"10% 15x, 100%":            `"15x" is no time`,
		"10% 1ms, 100%":            "whole seconds",
		"10% 8d, 100%":             "from 1s to 7d",
		"101%":                     "not a percentage",
		"10% 15m 20m, 100%":        "is not a step",
		"+0.01% 1s":                "more than 100 steps",
		"+30% 15m, 100%":           "only max PERCENT may",
		"+30% 15m, max 50%, 100%":  "follows max",
		"+30%":                     "is not a rise",
		"+shadow 15m":              "is not a rise",
		"10%, +shadow 15m":         "is not a rise",
		"+shadow 15m max 10%":      "is not a rise",
		"+30% 15m most 5%":         "is not a rise",
		"+30% 15m, max 0%":         "max is 0%",
		"max 50%":                  "not a percentage",
		"50% 1m, +10% 1m, max 40%": "is not above 50%",
	} {
		_, err := rules.ParsePlan(text)
		if !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("plan %q: %v, want invalid with %q", text, err, want)
		}
	}
}

func TestGatesAreRead(t *testing.T) {
	t.Parallel()
	g, err := rules.ParseGates("maxWouldRefuse 2%", " maxDelta 0.5%, minRequests 1_000")
	if want := []string{"maxWouldRefuse 2%", "maxDelta 0.5%", "minRequests 1000"}; err != nil || !cmp.Equal(g.Texts(), want) {
		t.Errorf("gates: %q, %v; want %q", g.Texts(), err, want)
	}
	if none, err := rules.ParseGates(); err != nil || none.Texts() != nil || none.Minimum() != rules.DefaultMinRequests {
		t.Errorf("no gates: %+v, %v; want the default minimum", none, err)
	}
	for text, want := range map[string]string{
		"maxRefuse 2%": "is none", "maxWouldRefuse 0": "never surely", "maxDelta 0": "", "maxDelta": "write maxWouldRefuse", "maxDelta 2": "", "maxDelta 200%": "not a percentage",
		"minRequests 0": "from 1 on", "maxDelta 1%, maxDelta 2%": "twice", "minRequests 1, minRequests 1": "twice",
	} {
		if _, err := rules.ParseGates(text); want == "" && err != nil || want != "" && (!errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("gate %q: %v, want %q", text, err, want)
		}
	}
}

// A plan is what its texts say, and is stored as them.
func TestPlansSurviveBeingStored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var steps []rules.PlanStep
		at := rules.Percent(0)
		for at < rules.AllKeys {
			hold := time.Duration(rapid.IntRange(1, 7*86400).Draw(t, "hold")) * time.Second
			if len(steps) > 0 || rapid.Bool().Draw(t, "no shadow") {
				at = rules.Percent(rapid.Uint32Range(uint32(at)+1, 10_000).Draw(t, "percent"))
			}
			steps = append(steps, rules.PlanStep{Percent: at, Hold: hold})
		}
		steps[len(steps)-1].Hold = 0
		if len(steps) > 100 {
			return
		}
		text := (&rules.Plan{Steps: steps}).StepsText()
		plan, err := rules.NewPlan(text, rapid.SampledFrom([][]string{nil, {"maxWouldRefuse 0.01%"}, {"maxDelta 3%", "minRequests 7"}}).Draw(t, "gates"),
			rapid.SampledFrom([]string{"", "pause", "rollback"}).Draw(t, "on trip"))
		if err != nil || !cmp.Equal(plan.Steps, steps) {
			t.Fatalf("%q: %+v, %v; want %+v", text, plan.Steps, err, steps)
		}
		course := &rules.Course{Plan: plan, By: "ann", Step: len(steps) - 1, Since: time.Unix(1, 5000).UTC(), Revision: 7}
		stored, err := rules.EncodeCourse(course)
		if err != nil {
			t.Fatal(err)
		}
		back, err := rules.DecodeCourse(stored)
		if diff := cmp.Diff(course, back); err != nil || diff != "" {
			t.Fatalf("%s: %v\n%s", stored, err, diff)
		}
	})
}

func TestStoredPlansOfANewerProgramAreRefused(t *testing.T) {
	t.Parallel()
	none, err := rules.EncodeCourse(nil)
	if course, decoded := rules.DecodeCourse(none); none != "" || err != nil || course != nil || decoded != nil {
		t.Errorf("no plan is stored as %q (%v), and read as %v, %v", none, err, course, decoded)
	}
	for _, stored := range []string{
		`{"plan":{"steps":"100%","onTrip":"pause"},"step":1}`, `{"plan":{"steps":"100%","onTrip":"pause","more":1},"step":0}`, `{"more":1}`, `{`, `{}`,
	} {
		if _, err := rules.DecodeCourse(stored); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", stored, err)
		}
	}
	if _, err := json.Marshal(rules.Plan{}); err != nil {
		t.Error(err)
	}
}

func TestStateSaysWhereThePlanStands(t *testing.T) {
	t.Parallel()
	plan, err := rules.NewPlan("shadow 1h, 10% 15m, 100%", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	r := rules.Rule{Stable: &rules.Version{Number: 7}, Candidate: &rules.Version{Number: 8}, Percent: 1000, Course: &rules.Course{Plan: plan, Step: 1}}
	if got, want := r.State(), "v8 at 10%, step 2 of 3, beside stable v7"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Paused, r.Stable = true, nil
	if got, want := r.State(), "v8 at 10%, step 2 of 3, paused, with no stable version"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
