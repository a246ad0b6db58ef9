package rulefile_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// commentedFile has a comment in each place that a comment is likely in, and nothing in canonical form.
const commentedFile = `# yaml-language-server: $schema=./x
apiVersion: headgate/v1   # one
domain: "d"  # two
# three
kind: RuleSet
rules:
# first
- limit: 600000/min burst 1_200_000 # lim
  key: [header:X-Api-Key, 'path.id'] # keyc
  # before match
  match: # on match
    # on header
    header:
      X-B: ["yes"]  # xb
      X-A: [1a, # x
        b]
    path: ["/v1/{id}"]

  name: a # name
  when: |
    method == "GET" &&
    path != "#x"

# second
- {name: b, limit: unlimited, cost: 100000, key: [{from: ip}]} # tail b

- name: c
  limits:
  - limit: 1/s
    name: x
  - {name: y, limit: {default: 1/h, by: "header:x", values: {on: 60/h}}, algorithm: token-bucket}
  key: []
  # foot c

# end
`

func TestFormatFileKeepsComments(t *testing.T) {
	t.Parallel()
	got, err := rulefile.FormatFile("f", []byte(commentedFile))
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/format/commented.yaml"
	if update() {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The design's example, which people copy, is nearly canonical: only the spaces before comments and two numbers differ.
func TestFormatFileLeavesWhatIsWellWritten(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/corpus/accept/design.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := rulefile.FormatFile("f", content)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(got), "#"); n != strings.Count(string(content), "#") {
		t.Errorf("%d comments are left of %d", n, strings.Count(string(content), "#"))
	}
}

func TestFormatFileRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := rulefile.FormatFile("f", []byte("apiVersion: headgate/v1\nkind: RuleSet\n"))
	if !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("a file without a domain: got %v, want ErrInvalid", err)
	}
	// A comment alone in a document of its own has nothing to stand beside.
	_, err = rulefile.FormatFile("f", []byte("# lonely\n---\n---\napiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules: []\n"))
	if err == nil || !strings.Contains(err.Error(), "would be lost") {
		t.Errorf("a comment that would be lost: got %v", err)
	}
}

func TestFormatFileMakesYAMLOfJSON(t *testing.T) {
	t.Parallel()
	got, err := rulefile.FormatFile("f.json", []byte(`{"kind":"RuleSet","apiVersion":"headgate/v1","domain":"d","rules":[{"limit":"60/minute","key":["ip"],"name":"a"}]}`))
	const want = "apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n  - name: a\n    key: [ip]\n    limit: 60/min\n"
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

// Comments and blank lines may stand anywhere: formatting keeps every one or refuses, says the same, and does so at once.
func TestFormatFileKeepsCommentsWhereverTheyStand(t *testing.T) {
	t.Parallel()
	sources := []string{commentedFile}
	for _, path := range []string{"testdata/corpus/accept/everything.yaml", "testdata/corpus/accept/design.yaml"} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, string(content))
	}
	kept, refused := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		all := strings.Split(rapid.SampledFrom(sources).Draw(r, "source"), "\n")
		for n := range rapid.IntRange(1, 6).Draw(r, "changes") {
			at := rapid.IntRange(0, len(all)-1).Draw(r, "line")
			comment := fmt.Sprintf("# note %d", n)
			switch rapid.IntRange(0, 3).Draw(r, "change") {
			case 0:
				all[at] += " " + comment
			case 1:
				all = slices.Insert(all, at, strings.Repeat(" ", rapid.IntRange(0, 8).Draw(r, "indent"))+comment)
			case 2:
				all = slices.Insert(all, at, "")
			default:
				all = slices.Insert(all, at, "", comment, "")
			}
		}
		content := []byte(strings.Join(all, "\n"))
		if _, err := rulefile.Decode("f", content); err != nil {
			return
		}
		formatted, err := rulefile.FormatFile("f", content)
		if err != nil {
			if !strings.Contains(err.Error(), "would be lost") {
				r.Fatalf("%v\n%s", err, content)
			}
			refused++
			return
		}
		kept++
		twice, err := rulefile.FormatFile("f", formatted)
		if diff := cmp.Diff(string(formatted), string(twice)); err != nil || diff != "" {
			r.Fatalf("formatting twice: %v\n%s\nfrom\n%s", err, diff, content)
		}
	})
	if kept < refused {
		t.Errorf("%d files were formatted and %d refused: comments must survive", kept, refused)
	}
}
