package rulefile_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// The golden file has each rule of testdata/summary.yaml in plain words: read them side by side.
func TestSummary(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/summary.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sets, err := rulefile.Decode("summary.yaml", content)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range sets[0].Rules {
		b.WriteString(r.Name + ": " + rules.Summary(&r.Spec) + "\n")
	}
	const golden = "testdata/summary.txt"
	if update() {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestSummaryOfTheDesignsExample(t *testing.T) {
	t.Parallel()
	sets, err := rulefile.Decode("f", []byte("apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n  - {name: a, key: [header:x-api-key], limit: 600/min burst 1200}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "Each API key: 600 calls a minute, bursts to 1,200"
	if got := rules.Summary(&sets[0].Rules[0].Spec); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q first", got, want)
	}
}

// Warnings have their place in the file, and are none of them wrong: the golden file is the whole output.
func TestWarnings(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/warnings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sets, err := rulefile.Decode("warnings.yaml", content)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, w := range rulefile.Warnings(sets) {
		b.WriteString(w.String() + "\n")
	}
	const golden = "testdata/warnings.txt"
	if update() {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
