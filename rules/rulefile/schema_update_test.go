package rulefile

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

// The published schema is what the reference says; -update writes it.
func TestPublishedSchemaIsTheReferences(t *testing.T) {
	t.Parallel()
	want, err := buildSchema()
	if err != nil {
		t.Fatal(err)
	}
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile("ruleset.schema.json", want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(JSONSchema(), want) {
		t.Error("ruleset.schema.json is not what reference.go says: run go test ./rules/rulefile -run Schema -update")
	}
}
