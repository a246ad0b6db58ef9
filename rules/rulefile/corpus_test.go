package rulefile_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	yaml "go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/rules/rulefile"
)

// The corpus has one rule set in each file:
//   - accept: decoder and schema accept it.
//   - refuse: both refuse it.
//   - refuse-semantic: only the decoder refuses it. A schema cannot say that a source names a segment of a path elsewhere
//     in the file, that two names or rules differ, that numbers stand in a relation, that a text is RE2 or CEL; and it
//     does not see YAML's anchors, tags and repeated keys, which are resolved before it looks.
//
// A file of several rule sets that must each be refused has a line "# ---" between them: it is split there.
func TestDecoderAndSchemaAgreeOnTheCorpus(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t)
	for _, c := range []struct {
		dir             string
		decodes, passes bool
	}{{"accept", true, true}, {"refuse", false, false}, {"refuse-semantic", false, true}} {
		paths, err := filepath.Glob(filepath.Join("testdata/corpus", c.dir, "*.yaml"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s is empty: %v", c.dir, err)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			header, rest, several := strings.Cut(string(content), "# ---\n")
			cases := []string{header}
			if several {
				cases = strings.Split(rest, "# ---\n")
			}
			for _, text := range cases {
				if several {
					text = header + text
				}
				if _, err := rulefile.Decode(path, []byte(text)); (err == nil) != c.decodes {
					t.Errorf("%s: the decoder says %v, want accepted %v:\n%s", path, err, c.decodes, text)
				}
				if err := schema.Validate(instance(text)); (err == nil) != c.passes {
					t.Errorf("%s: the schema says %v, want accepted %v:\n%s", path, err, c.passes, text)
				}
			}
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(rulefile.JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("ruleset.schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("ruleset.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// instance is the text as an editor hands it to a schema: anchors and tags resolved, the last of repeated keys kept. What
// is not YAML at all is nothing.
func instance(text string) any {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil || len(n.Content) == 0 {
		return nil
	}
	b, err := json.Marshal(plain(n.Content[0]))
	if err != nil {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	return v
}

func plain(n *yaml.Node) any {
	switch n.Kind {
	case yaml.AliasNode:
		return plain(n.Alias)
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plain(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			list[i] = plain(e)
		}
		return list
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return n.Value
	}
	return v
}

// What is accepted has a canonical form that says the same, and that formatting leaves alone.
func TestAcceptedFilesHaveOneCanonicalForm(t *testing.T) {
	t.Parallel()
	paths, _ := filepath.Glob("testdata/corpus/accept/*.yaml")
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		wantCanonical(t, path, content)
	}
}

// wantCanonical holds for every file that is accepted.
func wantCanonical(t *testing.T, name string, content []byte) {
	t.Helper()
	sets, err := rulefile.Decode(name, content)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range sets {
		written := rulefile.Format(set)
		again, err := rulefile.Decode(name, written)
		if err != nil || len(again) != 1 {
			t.Fatalf("%s: Format's result is not read: %v\n%s", name, err, written)
		}
		wantSameSet(t, again[0], set)
		formatted, err := rulefile.FormatFile(name, written)
		if err != nil || !bytes.Equal(formatted, written) {
			t.Fatalf("%s: what Format writes is not canonical: %v\n%s\nFormatFile:\n%s", name, err, written, formatted)
		}
	}
	formatted, err := rulefile.FormatFile(name, content)
	if err != nil {
		if strings.Contains(err.Error(), "would be lost") {
			return // refused, and said so: nothing is lost
		}
		t.Fatal(err)
	}
	twice, err := rulefile.FormatFile(name, formatted)
	if err != nil || !bytes.Equal(twice, formatted) {
		t.Fatalf("%s: formatting twice gives something else: %v\n%s\nthen\n%s", name, err, formatted, twice)
	}
}

func wantSameSet(t *testing.T, got, want rulefile.RuleSet) {
	t.Helper()
	if got.Domain != want.Domain || got.Owner != want.Owner || len(got.Rules) != len(want.Rules) || !sameJSON(got.Exempt, want.Exempt) ||
		!sameJSON(got.Shard, want.Shard) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want.Rules {
		if got.Rules[i].Name != want.Rules[i].Name || !got.Rules[i].Spec.Equal(want.Rules[i].Spec) {
			t.Fatalf("rule %d: got %+v, want %+v", i, got.Rules[i], want.Rules[i])
		}
	}
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
