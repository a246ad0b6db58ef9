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

// watched runs a list with --watch, and returns its lines and how it ended.
func watched(ctx context.Context, plane *controlPlane, args ...string) (lines *bufio.Scanner, code chan int) {
	out, in := io.Pipe()
	code = make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, append(args, "--watch"), cli.IO{
			In: strings.NewReader(""), Out: in, Err: io.Discard,
			Getenv: func(key string) string { return map[string]string{"RULECTL_SERVER": plane.addr}[key] },
		})
		_ = in.Close()
	}()
	return bufio.NewScanner(out), code
}

func next(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	if !lines.Scan() {
		t.Fatal("it ended")
	}
	return lines.Text()
}

func TestListThatIsWatchedPrintsOnlyWhatChanges(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustApply(t, strings.Replace(oneRule, "rules: [", "rules: [{name: steady, key: [ip], limit: 2/s}, ", 1))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	table, tableCode := watched(ctx, plane, "get", "rules")
	events, eventsCode := watched(ctx, plane, "get", "rules", "--jq", `"\(.event) \(.id) \(.item.state)"`)
	for _, want := range []string{"NAME", "a/steady", "a/x"} {
		if got := next(t, table); !strings.HasPrefix(got, want+" ") {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	for _, want := range []string{"added a/steady v1 in shadow with no stable version", "added a/x v1 in shadow with no stable version"} {
		if got := next(t, events); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	why := rollout.Why{Who: access.Local("somebody")}
	if _, err := plane.service.Promote(t.Context(), "a", "x", rules.AllKeys, why); err != nil {
		t.Fatal(err)
	}
	if got := next(t, table); !strings.HasPrefix(got, "a/x        stable ") {
		t.Errorf("got %q, want the promoted rule below the other rows", got)
	}
	if got := next(t, events); got != "changed a/x v1 stable" {
		t.Errorf("got %q", got)
	}
	if _, err := plane.service.Delete(t.Context(), "a", "x", why); err != nil {
		t.Fatal(err)
	}
	if got := next(t, table); got != "✖ gone: a/x" {
		t.Errorf("got %q", got)
	}
	if got := next(t, events); got != "gone a/x null" {
		t.Errorf("got %q", got)
	}
	interrupt()
	for _, code := range []chan int{tableCode, eventsCode} {
		if got := <-code; got != 130 {
			t.Errorf("interrupted: exit code %d, want 130", got)
		}
	}
}

func TestWatchWaitsForAControlPlaneThatWasThere(t *testing.T) {
	t.Parallel()
	plane, err := start(t.TempDir(), doors{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	r := run(ctx, plane.addr, "", "get", "rules", "-w")
	r.waitFor(t, "no rules; make one with")
	plane.stop()
	r.waitFor(t, plane.addr+" does not answer, and is asked again: ")
	interrupt()
	if code, rest := r.end(); code != 130 || rest != "" {
		t.Errorf("exit code %d, %q", code, rest)
	}
}

func TestHeartbeatsAreNoChangeOfASidecar(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustSave(t, "n1", "acked=1")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	lines, code := watched(ctx, plane, "sidecar", "list", "--jq", `"\(.event) \(.item.acked)"`)
	if got := next(t, lines); got != "added 1" {
		t.Errorf("got %q", got)
	}
	plane.mustSave(t, "n1", "acked=1", "seen=-1s")
	plane.mustSave(t, "n2", "acked=7")
	if got := next(t, lines); got != "added 7" {
		t.Errorf("got %q, want the other sidecar", got)
	}
	interrupt()
	<-code
}
