package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/rulectl/cli"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
)

// typed is an answer that somebody types, after something has happened.
type typed struct {
	text  *strings.Reader
	first func()
}

func (a *typed) Read(p []byte) (int, error) {
	if a.first != nil {
		a.first()
		a.first = nil
	}
	return a.text.Read(p)
}

// atTerminal runs rulectl with somebody in front of it, who types the answer.
func atTerminal(t *testing.T, addr string, in *typed, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Run(t.Context(), args, cli.IO{
		In: in, Out: &out, Err: &err, Interactive: true,
		Getenv: func(key string) string { return map[string]string{"RULECTL_SERVER": addr}[key] },
	})
	return code, out.String(), err.String()
}

func answer(text string) *typed { return &typed{text: strings.NewReader(text)} }

func (c *controlPlane) mustApply(t *testing.T, file string) {
	t.Helper()
	if code, said := run(t.Context(), c.addr, file, "apply", "-f", "-", "--yes").end(); code != 0 {
		t.Fatalf("apply: exit code %d, %q", code, said)
	}
}

func (c *controlPlane) state(t *testing.T) string {
	t.Helper()
	history, err := c.service.History(t.Context(), "a", "x")
	if err != nil {
		t.Fatal(err)
	}
	return history[len(history)-1].Rule.State()
}

func TestDeleteAsksAtATerminal(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustApply(t, oneRule)
	for _, no := range []string{"n\n", "\n", "", "maybe\n"} {
		code, out, said := atTerminal(t, plane.addr, answer(no), "delete", "a/x")
		if code != 7 || out != "" || !strings.HasPrefix(strings.ReplaceAll(said, "\n", ""), "delete a/x, which is v1 in shadow with no stable version? [y/N] rulectl: nothing was changed") {
			t.Errorf("answered %q: exit code %d, %q, %q", no, code, out, said)
		}
	}
	if got, want := plane.state(t), "v1 in shadow with no stable version"; got != want {
		t.Errorf("the rule is %s, want %s", got, want)
	}
	if code, out, said := atTerminal(t, plane.addr, answer("y\n"), "delete", "a/x"); code != 0 || !strings.Contains(out, "-> deleted") {
		t.Errorf("answered yes: exit code %d, %q, %q", code, out, said)
	}
	if got := plane.state(t); got != "deleted" {
		t.Errorf("the rule is %s, want deleted", got)
	}
}

func TestAnswerCountsOnlyForWhatWasShown(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustApply(t, oneRule)
	slow := answer("yes\n")
	slow.first = func() {
		if _, err := plane.service.Promote(t.Context(), "a", "x", rules.AllKeys, rollout.Why{Who: access.Local("somebody")}); err != nil {
			t.Error(err)
		}
	}
	code, _, said := atTerminal(t, plane.addr, slow, "delete", "a/x")
	if code != 5 || !strings.Contains(said, "a/x is v1 stable since revision 2") {
		t.Errorf("exit code %d, %q", code, said)
	}
	if got := plane.state(t); got != "v1 stable" {
		t.Errorf("the rule is %s, want v1 stable", got)
	}
}

func TestApplyShowsWhatTakesEffectAtOnceAndAsks(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	exempt := strings.Replace(oneRule, "rules:", "exempt: [{name: health, match: {path: /livez}}]\nrules:", 1)
	file := write(t, "a.yaml", []byte(exempt))
	code, out, said := atTerminal(t, plane.addr, answer("no\n"), "apply", "-f", file)
	if code != 7 || out != "" || !strings.Contains(said, "⚠ exemptions take effect at once") || !strings.Contains(said, "change at once, without shadow: a? [y/N]") {
		t.Errorf("exit code %d, %q, %q", code, out, said)
	}
	code, out, said = atTerminal(t, plane.addr, answer("y\n"), "apply", "-f", file)
	if code != 0 || !strings.Contains(out, "a  revision 1\n") || !strings.HasPrefix(said, "a is a new domain\na  would be changed\n") || strings.Contains(said, "nothing is stored") {
		t.Errorf("exit code %d, %q, %q", code, out, said)
	}
	// What starts in shadow is not asked for.
	file = write(t, "a.yaml", []byte(strings.Replace(oneRule, "1/s", "2/s", 1)))
	if code, _, said = atTerminal(t, plane.addr, answer(""), "apply", "-f", file); code != 0 || strings.Contains(said, "[y/N]") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

func TestAdoptSaysHowManySidecarsItIsAbout(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustSave(t, "n1", "acked=1", "lineage=OLDER")
	plane.mustSave(t, "n2", "acked=1", "lineage=OLDER")
	code, _, said := atTerminal(t, plane.addr, answer("\n"), "sidecar", "adopt", "OLDER")
	if code != 7 || !strings.Contains(said, "holds the history OLDER, now 2 sidecars? [y/N]") {
		t.Errorf("exit code %d, %q", code, said)
	}
	if code, out, said := atTerminal(t, plane.addr, answer("y\n"), "sidecar", "adopt", "OLDER"); code != 0 || !strings.Contains(out, "follow this one") {
		t.Errorf("exit code %d, %q, %q", code, out, said)
	}
}

func TestApplyAsksForLimitsThatChangeTenfold(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustApply(t, oneRule)
	file := write(t, "a.yaml", []byte(strings.Replace(oneRule, "1/s", "10/s", 1)))
	code, out, said := atTerminal(t, plane.addr, answer("n\n"), "apply", "-f", file)
	if code != 7 || out != "" || !strings.Contains(said, "⚠ warning HG0209: limits[0].rate: ") || !strings.Contains(said, "change a limit ten times or more: a/x? [y/N]") {
		t.Errorf("answered no: exit code %d, %q, %q", code, out, said)
	}
	if code, out, said := atTerminal(t, plane.addr, answer("y\n"), "apply", "-f", file); code != 0 || !strings.Contains(out, "a  revision 2\n") {
		t.Errorf("answered yes: exit code %d, %q, %q", code, out, said)
	}
	if got, want := plane.state(t), "v2 in shadow with no stable version"; got != want {
		t.Errorf("the rule is %s, want %s", got, want)
	}
}

func TestOverrideAsksForARateThatIsTenfold(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustApply(t, oneRule)
	set := func(in *typed, rate string) (int, string, string) {
		return atTerminal(t, plane.addr, in, "override", "set", "a/x", "--key", "192.0.2.1", "--limit", rate, "--for", "2h")
	}
	code, out, said := set(answer("n\n"), "10/s")
	if code != 7 || out != "" || !strings.Contains(said, "⚠ a/x: the limit changes ten times or more: from 1/s to 10/s\noverride a key of a/x with 10/s? [y/N]") {
		t.Errorf("answered no: exit code %d, %q, %q", code, out, said)
	}
	if code, out, said := set(answer("y\n"), "10/s"); code != 0 || !strings.Contains(out, "10/s until ") {
		t.Errorf("answered yes: exit code %d, %q, %q", code, out, said)
	}
	if code, _, said := set(answer(""), "2/s"); code != 0 || strings.Contains(said, "[y/N]") {
		t.Errorf("twice the limit: exit code %d, %q", code, said)
	}
}

func TestPromoteShowsTheEvidenceAndAsksAtATerminal(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustApply(t, oneRule)
	code, _, said := atTerminal(t, plane.addr, answer("n\n"), "promote", "a/x", "--to", "1%")
	if code != 7 || !strings.Contains(said, "no evidence: no request was judged since") || !strings.HasSuffix(said, "promote a/x to 1%? [y/N] rulectl: nothing was changed\n") {
		t.Errorf("no: exit code %d, %q", code, said)
	}
	// Somebody promotes it while it is asked: what was looked at is not what would be changed.
	somebody := &typed{text: strings.NewReader("y\n"), first: func() {
		if _, err := plane.service.Promote(t.Context(), "a", "x", 5000, rollout.Why{Who: access.Local("somebody")}); err != nil {
			t.Error(err)
		}
	}}
	if code, _, said := atTerminal(t, plane.addr, somebody, "promote", "a/x", "--to", "1%"); code != 5 {
		t.Errorf("overtaken: exit code %d, %q", code, said)
	}
	if code, _, said := atTerminal(t, plane.addr, answer("y\n"), "promote", "a/x", "--to", "60%"); code != 0 || plane.state(t) != "v1 at 60% with no stable version" {
		t.Errorf("yes: exit code %d, %q; the rule is %s", code, said, plane.state(t))
	}
	if code, _, said := atTerminal(t, plane.addr, answer(""), "promote", "a/x", "--to", "70%", "--yes"); code != 0 || strings.Contains(said, "[y/N]") {
		t.Errorf("--yes: exit code %d, %q", code, said)
	}
}
