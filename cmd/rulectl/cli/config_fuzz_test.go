package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever a file holds, it is read or told to be wrong; what was read is written and read again the same.
func FuzzConfigFile(f *testing.F) {
	for _, text := range []string{
		"", "# nothing", "apiVersion: rulectl/v1\nkind: Config\ncurrent-context: a\ncontexts:\n  - {name: a, server: \"x:1\", tls: true, protected: yes}\n",
		"contexts: [{name: a}, {name: a}]", "contexts: {a: b}", "a: &x [*x]", "contexts: [*x]", "- 1", "kind: Config\n---\nkind: Config", "contexts:\n- name: \"1\"\n  domain: 'true'",
		"contexts: [{name: a, name: b, tls: maybe, ? [x] : y}]",
	} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		c := configFile{path: path}
		if err := c.decode(text); err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("it does not name the file: %v", err)
			}
			return
		}
		if err := c.write(); err != nil {
			t.Fatal(err)
		}
		again, err := readConfig(path)
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if again.current != c.current {
			t.Errorf("the context in use is %q, want %q", again.current, c.current)
		}
		if diff := cmp.Diff(c.contexts, again.contexts); diff != "" {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
	})
}
