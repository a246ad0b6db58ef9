package cli_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/rulectl/cli"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
)

// watching is a `rulectl watch` whose standard output can be read line by line while it runs.
type watching struct {
	lines chan string
	code  chan int
	stop  context.CancelFunc
}

func watch(t *testing.T, plane *controlPlane, args ...string) *watching {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	w := &watching{lines: make(chan string, 100), code: make(chan int, 1), stop: stop}
	go func() {
		w.code <- cli.Run(ctx, append([]string{"watch"}, args...), cli.IO{
			In: strings.NewReader(""), Out: in, Err: io.Discard,
			Getenv: func(key string) string { return map[string]string{"RULECTL_SERVER": plane.addr}[key] },
		})
		_ = in.Close()
	}()
	go func() {
		defer close(w.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.lines <- lines.Text()
		}
	}()
	t.Cleanup(stop)
	return w
}

// wants reads the next line, which has to be this one.
func (w *watching) wants(t *testing.T, line string) {
	t.Helper()
	if got, ok := <-w.lines; !ok || got != line {
		t.Fatalf("it says %q, want %q", got, line)
	}
}

func TestWatchPrintsWhatEachRevisionBrings(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	w := watch(t, plane, "a", "--node", "w1")
	w.wants(t, "a  revision 0: 0 rules") // there is no such domain yet
	plane.mustApply(t, oneRule)
	w.wants(t, "a  revision 1: 1 rule")
	w.wants(t, "  + a/x: v1 in shadow with no stable version")
	why := rollout.Why{Who: access.Local("test")}
	if _, err := plane.service.Promote(t.Context(), "a", "x", rules.AllKeys, why); err != nil {
		t.Fatal(err)
	}
	w.wants(t, "a  revision 2: 1 rule")
	w.wants(t, "  ~ a/x: v1 in shadow with no stable version -> v1 stable")
	if _, err := plane.service.Delete(t.Context(), "a", "x", why); err != nil {
		t.Fatal(err)
	}
	w.wants(t, "a  revision 3: 0 rules")
	w.wants(t, "  - a/x: was v1 stable")

	// It counts as a sidecar until it is ended, which is no failure.
	if code, said := run(t.Context(), plane.addr, "", "rollback", "a/x", "--wait").end(); code != 0 || !strings.Contains(said, "✔ a: 1 of 1 sidecar acked revision 4") {
		t.Errorf("while it runs: exit code %d, %q", code, said)
	}
	w.stop()
	if code := <-w.code; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if code, said := run(t.Context(), plane.addr, "", "delete", "a/x", "--yes", "--wait").end(); code != 0 || !strings.Contains(said, "a has no sidecar to wait for (1 gone, not waited for)") {
		t.Errorf("after it: exit code %d, %q", code, said)
	}
}

func TestWatchThatRefusesIsWhatAWaitReports(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	w := watch(t, plane, "a", "--node", "w1", "--nack", "x=no such key source")
	w.wants(t, "a  revision 0: 0 rules")
	plane.mustApply(t, oneRule)
	w.wants(t, "a  revision 1: 0 rules")
	code, said := run(t.Context(), plane.addr, "", "promote", "a/x", "--to", "1%", "--wait").end()
	if code != 6 || !strings.Contains(said, "w1     ✖ Nacked") || !strings.Contains(said, "no such key source") {
		t.Errorf("exit code %d, %q", code, said)
	}
}
