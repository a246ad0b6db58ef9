package ruletest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/rulectl/ruletest"
	"github.com/headgate/headgate/rules"
)

// problems returns where a test is wrong, as "line:column path".
func problems(t *testing.T, content string) []string {
	t.Helper()
	_, err := ruletest.Decode("x.test.yaml", []byte(content))
	if err == nil {
		return nil
	}
	var invalid *rules.ValidationError
	if !errors.As(err, &invalid) {
		t.Fatalf("error %v is not a ValidationError", err)
	}
	var list []string
	for _, p := range invalid.Problems {
		list = append(list, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Path))
	}
	return list
}

// The rule set, however it is written, is read where it stands, and up to where it ends.
func TestRuleSetsMayBeWrittenInEveryForm(t *testing.T) {
	t.Parallel()
	const flow = "{apiVersion: headgate/v1, kind: RuleSet, domain: d, rules: [{name: r, key: [], limit: LIMIT}]}"
	const block = "\n  apiVersion: headgate/v1\n  kind: RuleSet\n  domain: d\n  rules:\n  - name: r\n    key: []\n    limit: LIMIT\n"
	const steps = "steps: [{request: {}, expect: {decision: allowed, rule: r}}]\n"
	for name, test := range map[string]struct{ content, bad string }{
		"flow":             {"kind: RuleTest\nruleset: " + flow + "\n" + steps, "2:96 rules[0].limit"},
		"flow over lines":  {"kind: RuleTest\nruleset: " + strings.ReplaceAll(flow, ", rules", ",\n    rules") + "\n" + steps, "3:39 rules[0].limit"},
		"block":            {"kind: RuleTest\nruleset:" + block + steps, "9:12 rules[0].limit"},
		"block at the end": {"kind: RuleTest\n" + steps + "ruleset:" + block, "10:12 rules[0].limit"},
		"with comments":    {"kind: RuleTest # a\nruleset: # b" + block + "# c\n\n" + steps, "9:12 rules[0].limit"},
		"in a second text": {"---\n---\nkind: RuleTest\n" + steps + "ruleset:" + block + "---\n", "12:12 rules[0].limit"},
		"a mark above":     {"kind: RuleTest\nruleset:\n  # é\n" + block[1:] + steps, "10:12 rules[0].limit"},
		"everything as JSON": {
			`{"kind": "RuleTest", "ruleset": {"apiVersion": "headgate/v1", "kind": "RuleSet", "domain": "d", ` +
				`"rules": [{"name": "r", "key": [], "limit": "LIMIT"}]}, "steps": [{"request": {}, "expect": {"rule": "r"}}]}`,
			"1:33 rules[0].limit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests, err := ruletest.Decode("x.test.yaml", []byte(strings.ReplaceAll(test.content, "LIMIT", "1/min")))
			if err != nil {
				t.Fatal(err)
			}
			for i := range tests {
				result, err := ruletest.Run(t.Context(), &tests[i], "memory")
				if err != nil || !result.Passed() || result.Requests != 1 {
					t.Errorf("result %+v, error %v; want one request that passes", result, err)
				}
			}
			if diff := cmp.Diff([]string{test.bad}, problems(t, strings.ReplaceAll(test.content, "LIMIT", "1/m"))); diff != "" {
				t.Errorf("a bad limit: -want +got:\n%s", diff)
			}
		})
	}
}

func TestDecodingIsStrictAndNamesThePlace(t *testing.T) {
	t.Parallel()
	const head = "kind: RuleTest\nruleset: {apiVersion: headgate/v1, kind: RuleSet, domain: d, rules: [{name: r, key: [], limit: 1/min}]}\n"
	two := "kind: RuleTest\nrules: [" + writeRules(t, "a") + ", " + writeRules(t, "b") + "]\n"
	for content, want := range map[string]string{
		"":                            "1:1 ",
		"kind: RuleTest\n":            "1:1 ruleset;1:1 steps",
		"a: [":                        "1:1 ",
		"\xff":                        "1:1 ",
		"[]":                          "1:1 ",
		strings.Repeat("a", 5<<20):    "1:1 ",
		head:                          "1:1 steps",
		head + "steps: []":            "3:8 steps",
		head + "steps: {}":            "3:8 steps",
		head + "steps: []\nsteps: []": "3:8 steps;4:1 steps",
		head + "step: []\nsteps: [{request: {}}]":                                        "3:1 step",
		head + "rules: [x]\nsteps: [{request: {}}]":                                      "3:8 rules",
		head + "shadow: [x]\nsteps: [{request: {}}]":                                     "3:10 shadow[0]",
		head + "shadow: [d/r, r]\nsteps: [{request: {}, wouldRefuse: [y]}]":              "4:37 steps[0].wouldRefuse[0]",
		head + "steps: [{request: {}, repeat: 2, expect: [allowed]}]":                    "3:42 steps[0].expect",
		head + "steps: [{request: {}, expect: [allowed, refused]}]":                      "3:31 steps[0].expect",
		head + "steps: [{request: {}, expect: {}}]":                                      "3:31 steps[0].expect",
		head + "steps: [{request: {}, expect: {count: {}}}]":                             "3:39 steps[0].expect.count",
		head + "steps: [{request: {}, expect: {count: {allowed: 1}, rule: r}}]":          "3:53 steps[0].expect.rule",
		head + "steps: [{request: {}, expect: {reason: because}}]":                       "3:40 steps[0].expect.reason",
		head + "steps: [{request: {}, expect: {retryAfter: 1s}}]":                        "3:44 steps[0].expect.retryAfter",
		head + "steps: [{request: {}, expect: {remaining: -1}}]":                         "3:43 steps[0].expect.remaining",
		head + "steps: [{request: {}, expect: {retryAfter: none, remaining: none}}]":     "",
		head + "steps: [{request: {descriptors: []}}]":                                   "3:33 steps[0].request.descriptors",
		head + "steps: [{request: {hits: 1.5}}]":                                         "3:26 steps[0].request.hits",
		head + "steps: [{request: {domain: e}}]":                                         "3:28 steps[0].request.domain",
		head + "steps: [{request: {header: [a]}}]":                                       "3:28 steps[0].request.header",
		head + "steps: [{at: -1s, request: {}}]":                                         "3:14 steps[0].at",
		head + "steps: [{at: 2h, request: {}}, {at: 1h, request: {}}]":                   "",
		head + "steps: [{every: 1h, repeat: 3, request: {}}, {at: 59min, request: {}}]":  "3:46 steps[1].at",
		head + "steps: [{at: 1ns, request: {}}]":                                         "3:14 steps[0].at",
		head + "steps: [{at: 100000d, request: {}}]":                                     "3:14 steps[0].at",
		head + "steps: [{every: 300d, repeat: 1000, request: {}}]":                       "3:31 steps[0].repeat",
		head + "steps: [{at: &x 1s, request: {}}, {at: *x, request: {}}]":                "3:14 ;3:40 ",
		head + "steps: [{at: 2d, every: 5min, request: {path: null}}]":                   "3:47 steps[0].request.path",
		"kind: RuleSet\nruleset: 7\nsteps: [{request: {}}]":                              "1:7 kind;2:10 ",
		"kind: RuleTest\nrules: [nowhere.yaml, 7]\nsteps: [{request: {}}]":               "2:9 rules[0];2:23 rules[1]",
		"kind: RuleTest\nrules: []\nsteps: [{request: {}}]":                              "2:8 rules",
		two + "steps: [{request: {}}]":                                                   "3:19 steps[0].request.domain",
		two + "steps: [{request: {domain: a}}]\nshadow: [r]":                             "4:10 shadow[0]",
		two + "steps: [{request: {domain: a}, expect: {rule: a/r}}]\nshadow: [b/r]":      "",
		head + "steps:\n- request: {}\n  expect: refused\n  repeat: 1000001\n":           "6:11 steps[0].repeat",
		head + "steps:\n- {request: {header: {a: [1, true], b: x}, attr: {c: 1.5}}}\n":   "",
		head + "steps:\n- {request: {}, expect: {rule: '', limit: none, status: 200}}\n": "",
	} {
		if got := strings.Join(problems(t, content), ";"); got != want {
			t.Errorf("%.160q:\ngot  %s\nwant %s", strings.TrimPrefix(content, head), got, want)
		}
	}
}

// writeRules writes a rule file of a domain with a rule r.
func writeRules(t *testing.T, domain string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), domain+".yaml")
	content := "apiVersion: headgate/v1\nkind: RuleSet\ndomain: " + domain + "\nrules: [{name: r, key: [], limit: 1/min}]\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestATestOfTwoDomainsNamesThem(t *testing.T) {
	t.Parallel()
	content := "kind: RuleTest\nrules: [" + writeRules(t, "a") + ", " + writeRules(t, "b") + "]\nshadow: [b/r]\nsteps:\n" +
		"- {request: {domain: a}, repeat: 2, expect: [allowed, {decision: refused, rule: a/r}], wouldRefuse: []}\n" +
		"- {request: {domain: b}, repeat: 2, expect: {decision: allowed, rule: none}, wouldRefuse: [b/r]}\n"
	tests, err := ruletest.Decode("x.test.yaml", []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	result, err := ruletest.Run(t.Context(), &tests[0], "memory")
	if err != nil || !result.Passed() {
		t.Errorf("failures %+v, error %v; want none", result.Failures, err)
	}
}

func TestFailuresAreBoundedAndCounted(t *testing.T) {
	t.Parallel()
	content := "kind: RuleTest\nrules: [" + writeRules(t, "a") + "]\nsteps: [{request: {}, repeat: 100, expect: allowed}]\n"
	tests, err := ruletest.Decode("x.test.yaml", []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	result, err := ruletest.Run(t.Context(), &tests[0], "")
	if err != nil || len(result.Failures) != 20 || result.More != 79 {
		t.Errorf("%d failures and %d more, error %v; want 20 and 79", len(result.Failures), result.More, err)
	}
}
