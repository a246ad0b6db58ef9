package cli_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/rulectl/cli"
)

// protected makes a protected context of the control plane, and returns how somebody at a terminal runs rulectl in it.
func (c *controlPlane) protected(t *testing.T) func(typed string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	env := map[string]string{"RULECTL_CONFIG": filepath.Join(t.TempDir(), "config.yaml")}
	run := func(typed string, args ...string) (int, string, string) {
		var out, err bytes.Buffer
		code := cli.Run(t.Context(), args, cli.IO{
			In: strings.NewReader(typed), Out: &out, Err: &err, Interactive: true, Getenv: func(key string) string { return env[key] },
		})
		return code, out.String(), err.String()
	}
	if code, _, said := run("", "config", "set-context", "prod", "--server", c.addr, "--protected"); code != 0 {
		t.Fatalf("set-context: exit code %d, %q", code, said)
	}
	return run
}

func TestProtectedContextWantsItsNameTyped(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustApply(t, oneRule)
	rulectl := plane.protected(t)
	for _, typed := range []string{"y\n", "", "Prod\n", strings.Repeat("prod", 1000) + "\n"} {
		code, _, said := rulectl(typed, "promote", "a/x", "--to", "1%")
		if code != 7 || !strings.HasSuffix(strings.ReplaceAll(said, "\n", ""), "promote a/x to 1%, in the protected context prod? Type its name to go on: rulectl: nothing was changed") {
			t.Errorf("typed %.10q: exit code %d, %q", typed, code, said)
		}
	}
	// --yes alone says that what is unusual is meant, and not where.
	if code, _, said := rulectl("n\n", "delete", "a/x", "--yes"); code != 7 || !strings.Contains(said, "Type its name") {
		t.Errorf("delete --yes: exit code %d, %q", code, said)
	}
	if got, want := plane.state(t), "v1 in shadow with no stable version"; got != want {
		t.Errorf("the rule is %s, want %s", got, want)
	}
	if code, _, said := rulectl("prod\n", "promote", "a/x", "--to", "1%"); code != 0 {
		t.Errorf("typed the name: exit code %d, %q", code, said)
	}
	// The name is asked for once, and is the answer to the other question too.
	if code, _, said := rulectl("prod\n", "delete", "a/x"); code != 0 || strings.Count(said, "?") != 1 {
		t.Errorf("delete: exit code %d, %q", code, said)
	}
}

func TestApplyShowsWhatItDoesBeforeAProtectedContextIsNamed(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	rulectl := plane.protected(t)
	file := write(t, "a.yaml", []byte(oneRule))
	code, out, said := rulectl("no\n", "apply", "-f", file)
	if code != 7 || out != "" || !strings.Contains(said, "+ a/x: new, v1 in shadow with no stable version\napply ") {
		t.Errorf("exit code %d, %q, %q", code, out, said)
	}
	if code, out, said = rulectl("prod\n", "apply", "-f", file); code != 0 || !strings.Contains(out, "a  revision 1\n") {
		t.Errorf("exit code %d, %q, %q", code, out, said)
	}
}
