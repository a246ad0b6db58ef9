package rulefile_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

const head = "apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n"

func decodeRules(t *testing.T, text string) []*rules.Rule {
	t.Helper()
	sets, err := rulefile.Decode("f.yaml", []byte(head+text))
	if err != nil {
		t.Fatal(err)
	}
	list := make([]*rules.Rule, len(sets[0].Rules))
	for i, r := range sets[0].Rules {
		list[i] = &rules.Rule{Domain: "d", Name: r.Name, UID: r.Name, Stable: &rules.Version{Number: 1, Spec: r.Spec}}
	}
	return list
}

func problemsOf(t *testing.T, text string) []rules.Problem {
	t.Helper()
	_, err := rulefile.Decode("f.yaml", []byte(head+text))
	var invalid *rules.ValidationError
	if !errors.As(err, &invalid) {
		t.Fatalf("got %v, want a ValidationError for\n%s", err, text)
	}
	return invalid.Problems
}

// C01: a trailing /* is a prefix; a counter for each path, or one shared by all of them, is a matter of the key.
func TestC01WildcardPathOwnCounterOrShared(t *testing.T) {
	t.Parallel()
	list := decodeRules(t, `
  - {name: own, match: {path: /api/*}, key: [path], limit: 10/min}
  - {name: shared, match: {path: /api/*}, key: [], limit: 10/min}
  - {name: feed, match: {path: /api/feed}, key: [], limit: 2/min}
`)
	index := rules.NewIndex(rules.Domain{Name: "d"}, list)
	matching := func(path string) (names []string, own string) {
		r := &rules.Request{Domain: "d", Method: "GET", Path: path}
		for _, hit := range index.Lookup(r, nil) {
			names = append(names, hit.Rule.Name)
			if hit.Rule.Name == "own" {
				own = string(rules.KeyOf(&hit.Binding.Spec, r).Encoded())
			}
		}
		return names, own
	}
	for path, want := range map[string][]string{
		"/api/feed": {"feed", "own", "shared"}, "/api/other": {"own", "shared"}, "/api/third": {"own", "shared"},
		"/api/a/b": {"own", "shared"}, "/api": nil, "/apix": nil, "/": nil, "/API/x": nil,
	} {
		if got, _ := matching(path); !slices.Equal(got, want) {
			t.Errorf("%s meets %v, want %v", path, got, want)
		}
	}
	_, other := matching("/api/other")
	_, third := matching("/api/third")
	if other == third || other == "" {
		t.Error("two paths have one counter under key: [path]")
	}
	if key := rules.KeyOf(&list[1].Stable.Spec, &rules.Request{Path: "/api/other"}); len(key.Encoded()) != 0 {
		t.Errorf("key: [] tells paths apart: %x", key.Encoded())
	}
}

// C15: a number is enforced exactly or refused with the largest allowed one; 0 refuses and is not unlimited; a number
// that is left out is an error.
func TestC15NumbersTooBigAndZero(t *testing.T) {
	t.Parallel()
	list := decodeRules(t, "  - {name: big, key: [], limit: 30_000_000_000/d}\n")
	if rate := list[0].Stable.Spec.Limits[0].Rate; rate.Amount != 30_000_000_000 {
		t.Errorf("30_000_000_000 became %d", rate.Amount)
	}
	problems := problemsOf(t, "  - {name: big, key: [], limit: 40_000_000_000/d}\n")
	if p := problems[0]; p.Code != rules.CodeLimit || p.Path != "rules[0].limit" || !strings.Contains(p.Message, "at most 34749997124 per d") || p.Line != 5 {
		t.Errorf("too large: got %v, want the field and the largest number", p)
	}
	decodeRules(t, "  - {name: big, key: [], limit: 34749997124/d}\n") // what the message allows is allowed
	if p := problemsOf(t, "  - {name: big, key: [], limit: 34749997125/d}\n")[0]; p.Code != rules.CodeLimit {
		t.Errorf("one more than allowed: got %v", p)
	}

	zero := decodeRules(t, "  - {name: block, match: {header: {user-agent: bad-scanner}}, key: [], limit: 0/s}\n  - {name: free, key: [], limit: unlimited}\n")
	if rate := zero[0].Stable.Spec.Limits[0].Rate; rate.Unlimited || rate.Amount != 0 || rate.String() != "0/s" {
		t.Errorf("0/s became %+v", rate)
	}
	if rate := zero[1].Stable.Spec.Limits[0].Rate; !rate.Unlimited {
		t.Errorf("unlimited became %+v", rate)
	}
	for _, text := range []string{
		"  - {name: x, key: []}\n", "  - {name: x, key: [], limit: }\n", "  - {name: x, key: [], limit: /min}\n", "  - {name: x, key: [], limit: ''}\n",
		"  - {name: x, key: [], limits: []}\n", "  - {name: x, key: [], limit: {by: attr:p, values: {a: 1/s}}}\n",
	} {
		if p := problemsOf(t, text)[0]; !strings.Contains(p.Path, "limit") || p.Line == 0 {
			t.Errorf("%s: got %v, want the limit named", text, p)
		}
	}
}

// C16: a misspelt key names file, line, key and the near word.
func TestC16MisspeltKey(t *testing.T) {
	t.Parallel()
	problems := problemsOf(t, "  - name: search\n    key: [ip]\n    unlimied: true\n")
	if len(problems) != 1 {
		t.Fatalf("got %v, want one problem", problems)
	}
	const want = `f.yaml:7:5: error HG0002: rules[0].unlimied: unknown key "unlimied": did you mean "limit"? (limit: unlimited never refuses)`
	if got := problems[0].String(); !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want it to begin with %s", got, want)
	}
	for slip, word := range map[string]string{
		"macth: {path: /}": "match", "limits_: []": "limits", "missingkey: skip": "missingKey", "respons: {}": "response", "lable: {}": "labels",
	} {
		p := problemsOf(t, "  - {name: x, key: [ip], limit: 1/s, "+slip+"}\n")[0]
		if !strings.Contains(p.Message, `did you mean "`+word+`"?`) {
			t.Errorf("%s: got %v, want the word %s", slip, p, word)
		}
	}
	for slip, word := range map[string]string{
		"key: [heder:x-a]": "header:x-a", "key: [paht]": "path", "missingKey: skipp": "skip", "failure: clsed": "closed", "algorithm: slidingwindow": "sliding-window",
		"limit: unlimted": "unlimited", "when: metod == 'x'": "method", "response: {headers: non}": "none",
	} {
		text := "  - {name: x, "
		if !strings.HasPrefix(slip, "key") {
			text += "key: [ip], "
		}
		if !strings.HasPrefix(slip, "limit") {
			text += "limit: 1/s, "
		}
		p := problemsOf(t, text+slip+"}\n")[0]
		if !strings.Contains(p.Message, "did you mean") || !strings.Contains(p.Message, word) {
			t.Errorf("%s: got %v, want the word %s", slip, p, word)
		}
	}
}

// C17: two limits over one selector load, in one rule or in two; two rules equal in everything but text are refused, and
// both are named.
func TestC17TwoLimitsOverOneSelector(t *testing.T) {
	t.Parallel()
	list := decodeRules(t, `
  - name: both
    key: [attr:account]
    limits: [{name: second, limit: 10/s}, {name: day, limit: 250/d, algorithm: sliding-window}]
  - {name: a, key: [attr:account], limit: 10/s}
  - {name: b, key: [attr:account], limit: 250/d, algorithm: sliding-window}
`)
	if limits := list[0].Stable.Spec.Limits; len(limits) != 2 || limits[0].Algorithm != rules.TokenBucket || limits[1].Algorithm != rules.SlidingWindow {
		t.Errorf("got %+v, want both limits", limits)
	}
	hits := rules.NewIndex(rules.Domain{Name: "d"}, list).Lookup(&rules.Request{Attr: map[string]string{"account": "a"}}, nil)
	if len(hits) != 3 {
		t.Errorf("%d rules apply, want all three", len(hits))
	}

	problems := problemsOf(t, `
  - {name: a, key: [attr:account], limit: 10/s}
  - {name: b, description: the same again, owner: x, key: [attr:account], limit: 10/1s burst 10}
`)
	const want = `f.yaml:7:12: error HG0109: rules[1]: rule "b" says the same as rule "a" at f.yaml:6:12`
	if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), want) {
		t.Errorf("got %v, want %s", problems, want)
	}
}
