package rulefile_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// A case is one file under testdata/cases: a rule file, a line of dashes with "want", and what Decode makes of it.
const divider = "\n------------------------------- want\n"

// TestDecode compares each case; with -update it writes down what Decode does.
func TestDecode(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(content), divider)
			got := outcome(t, input)
			if update() {
				if err := os.WriteFile(path, []byte(input+divider+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Decode(%s): -want +got\n%s", path, diff)
			}
		})
	}
}

func update() bool { return flag.Lookup("update").Value.String() == "true" }

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the cases' outcomes")
	os.Exit(m.Run())
}

func outcome(t *testing.T, input string) string {
	t.Helper()
	sets, err := rulefile.Decode("rules.yaml", []byte(input))
	if err != nil {
		var invalid *rules.ValidationError
		if !errors.As(err, &invalid) || !errors.Is(err, rules.ErrInvalid) {
			t.Fatalf("the error is a %T, not a ValidationError: %v", err, err)
		}
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, set := range sets {
		for _, r := range set.Rules {
			spec, err := r.Spec.Encode()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s/%s at %s\n  %s\n", set.Domain, r.Name, r.Place, spec)
		}
	}
	return b.String()
}

func TestDecodeAllJoinsFilesOfOneDomain(t *testing.T) {
	t.Parallel()
	file := func(name, domain, rule string) rulefile.File {
		return rulefile.File{Name: name, Content: []byte("apiVersion: headgate/v1\nkind: RuleSet\ndomain: " + domain +
			"\nrules:\n  - name: " + rule + "\n    key: [ip]\n    limit: " + strconv.Itoa(len(name)+int(name[0])) + "/s\n")}
	}
	sets, err := rulefile.DecodeAll([]rulefile.File{file("1.yaml", "b", "x"), file("2.yaml", "a", "x"), file("3.yaml", "b", "y")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, set := range sets {
		for _, r := range set.Rules {
			got = append(got, set.Domain+"/"+r.Name+" "+r.Place.String())
		}
	}
	want := []string{"b/x 1.yaml:5:11", "b/y 3.yaml:5:11", "a/x 2.yaml:5:11"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	_, err = rulefile.DecodeAll([]rulefile.File{file("1.yaml", "b", "x"), file("2.yaml", "b", "x")})
	wantText := `2.yaml:5:11: error HG0007: rules[0].name: "x" is already the name of the rule at 1.yaml:5:11`
	if err == nil || err.Error() != wantText {
		t.Errorf("one rule in two files: got %v, want %s", err, wantText)
	}
}

// TestDecodeIsBounded gives it what exhausts a careless parser.
func TestDecodeIsBounded(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ","))
	}
	cases := map[string]struct {
		content  string
		wantCode string
	}{
		"10 MiB":        {strings.Repeat("a", 10<<20), rulefile.CodeSize},
		"many parts":    {"[" + strings.Repeat("a,", 1<<20) + "]", rulefile.CodeSize},
		"deep flow":     {strings.Repeat("[", 1<<18), rulefile.CodeSyntax},
		"deep block":    {strings.Repeat("- ", 1<<18), rulefile.CodeSyntax},
		"deep but well": {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), rulefile.CodeKind},
		"deep JSON":     {strings.Repeat(`{"rules":`, 9000) + "1" + strings.Repeat("}", 9000), rulefile.CodeMissing},
		"alias bomb":    {bomb, rulefile.CodeUnknown},
		"not UTF-8":     {"domain: \xff\xfe", rulefile.CodeSyntax},
		"NUL":           {"domain: a\x00b", rulefile.CodeSyntax},
		"long key":      {strings.Repeat("k", 1000) + ": 1", rulefile.CodeMissing},
		"hostile regexes": {func() string {
			var b strings.Builder
			b.WriteString("apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n")
			for i := range 6000 {
				fmt.Fprintf(&b, "- {name: r%d, key: [], limit: 1/s, match: {header: {a: {regex: 'x{1000}y{%d}'}}}}\n", i, i%990+1)
			}
			return b.String()
		}(), rules.CodeMatch},
		"hostile CEL": {func() string {
			var b strings.Builder
			b.WriteString("apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n")
			for i := range 7000 {
				fmt.Fprintf(&b, "- {name: r%d, key: [], limit: 1/s, when: 'path.matches(path) || method == \"%d\"'}\n", i, i)
			}
			return b.String()
		}(), rules.CodeWhen},
		"many unknown keys": {func() string {
			var b strings.Builder
			for i := range 10_000 {
				fmt.Fprintf(&b, "k%d: 1\n", i)
			}
			return b.String()
		}(), rulefile.CodeUnknown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := rulefile.Decode("f", []byte(c.content))
			var invalid *rules.ValidationError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v, want a ValidationError", err)
			}
			if n := len(invalid.Problems); n > 201 {
				t.Errorf("%d problems are reported, want at most 200 and a last line", n)
			}
			if n := len(err.Error()); n > 100_000 {
				t.Errorf("the report has %d bytes", n)
			}
			for _, p := range invalid.Problems {
				if p.Code == c.wantCode {
					return
				}
			}
			t.Errorf("no problem has code %s: %v", c.wantCode, invalid.Problems[0])
		})
	}
}

// Beyond those that are shown, problems are only counted: none of them changes one that is shown.
func TestProblemsBeyondTheLastShownChangeNone(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 250 {
		fmt.Fprintf(&text, "  - {name: r%d, key: [ip], limit: 60/m}\n", i)
	}
	text.WriteString("  - {key: [ip], limit: 60/min}\n  - {zz: 1, name: last, key: [ip], limit: 60/min}\n")
	problems := problemsOf(t, text.String())
	for i, p := range problems[:200] {
		if want := fmt.Sprintf("rules[%d].limit", i); p.Path != want {
			t.Fatalf("problem %d is of %q, want %q: %v", i+1, p.Path, want, p)
		}
	}
	if last := problems[200]; len(problems) != 201 || last.Message != "52 more problems are left out" {
		t.Errorf("%d problems, and at the end: %v", len(problems), last)
	}
}

// FuzzDecode holds what is true of every file: Decode never panics, says where each problem is, and what it accepts is
// valid, survives the wire and has one canonical form that says the same. The corpus is kept in testdata, and runs with
// every go test.
func FuzzDecode(f *testing.F) {
	paths, _ := filepath.Glob("testdata/cases/*.txt")
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		input, _, _ := strings.Cut(string(content), divider)
		f.Add([]byte(input))
	}
	paths, _ = filepath.Glob("testdata/corpus/accept/*.yaml")
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte(commentedFile))
	f.Fuzz(func(t *testing.T, content []byte) {
		sets, err := rulefile.Decode("f", content)
		if err != nil {
			wantPlaces(t, err, content)
			return
		}
		if len(sets) == 0 {
			t.Fatal("neither a rule set nor a problem")
		}
		wantCanonical(t, "f", content)
		for _, set := range sets {
			for _, r := range set.Rules {
				b, err := r.Spec.Encode()
				if err != nil {
					t.Fatal(err)
				}
				back, err := rules.DecodeSpec(b)
				if err != nil || !back.Equal(r.Spec) {
					t.Fatalf("%s does not survive the wire: %v", b, err)
				}
			}
		}
	})
}

func wantPlaces(t *testing.T, err error, content []byte) {
	t.Helper()
	var invalid *rules.ValidationError
	if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
		t.Fatalf("got %T, want a ValidationError with problems", err)
	}
	lines := 2 // the parser may stop behind the last one
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
		lines += strings.Count(string(content), end)
	}
	for _, p := range invalid.Problems {
		if p.Code == rulefile.CodeSize && p.Line == 0 {
			continue // "more problems are left out" stands nowhere
		}
		if p.Line < 1 || p.Column < 1 || p.Line > lines {
			t.Fatalf("%v is not in the file", p)
		}
	}
	if _, err := json.Marshal(invalid.Problems); err != nil {
		t.Fatal(err)
	}
}
