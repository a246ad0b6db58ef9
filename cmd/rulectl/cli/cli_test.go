package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/cmd/rulectl/cli"
	"github.com/headgate/headgate/rules/rollout"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"rulectl": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		code := cli.Run(ctx, os.Args[1:], cli.Standard())
		stop()
		os.Exit(code)
	}})
}

// leakChecked fails a green run that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

type planeKey struct{}

// runScripts runs scripts with rulectl as a program of its own, each against a fresh control plane.
func runScripts(t *testing.T, names ...string) {
	t.Helper()
	params := testscript.Params{
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			plane, err := start(t.TempDir(), doors{})
			if err != nil {
				return err
			}
			env.Defer(plane.stop)
			env.Setenv("RULECTL_SERVER", plane.addr)
			// The race detector makes every program linger a second at its end, for reports that come late.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			env.Values[planeKey{}], env.Values[opsKey{}] = plane, &opsPort{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "node": node, "alert": fire, "target": target, "audit": audit, "normal": normal, "edit": edit, "anchor": anchor, "id": id,
			"secured": secured(t), "sidecar": sidecar, "asked": asked, "store-away": storeAway, "mode": mode, "pushed": pushed, "window": window, "expired": expired, "counted": counted,
		},
	}
	for _, name := range names {
		params.Files = append(params.Files, filepath.Join("testdata", "script", name+".txtar"))
	}
	testscript.Run(t, params)
}

// exits runs a program and demands its exit code: exits 5 rulectl apply -f x.yaml.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// node stores a node: node DOMAIN ID [FACT...].
func node(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: node DOMAIN ID [FACT...]")
	}
	ts.Check(ts.Value(planeKey{}).(*controlPlane).saveNode(context.Background(), args[0], args[1], args[2:]...)) //nolint:errcheck // a panic would name it
}

// fire stores an alert: alert DOMAIN RULE [over].
func fire(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: alert DOMAIN RULE [over]")
	}
	ts.Check(ts.Value(planeKey{}).(*controlPlane).saveAlert(context.Background(), args[0], args[1], len(args) > 2)) //nolint:errcheck // a panic would name it
}

// target gives alerts one more place to go.
func target(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Value(planeKey{}).(*controlPlane).targets.n.Add(1) //nolint:errcheck // a panic would name it
}

// audit prints the audit trail, newest first; the user who runs the tests is "me".
func audit(ts *testscript.TestScript, _ bool, _ []string) {
	store := ts.Value(planeKey{}).(*controlPlane).store //nolint:errcheck // a panic would name it
	records, err := store.Audit(context.Background(), rollout.AuditQuery{Limit: 100})
	ts.Check(err)
	me, err := user.Current()
	ts.Check(err)
	for _, r := range records {
		name := r.Actor.Name
		if name == me.Username {
			name = "me"
		}
		_, err := fmt.Fprintf(ts.Stdout(), "%d %s %s %s verified=%t %q\n", r.Revision, name, r.Action, r.Target, r.Actor.Verified, r.Message)
		ts.Check(err)
	}
}

// mode demands the permissions of a file: mode 600 FILE.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := fmt.Sprintf("%o", info.Mode().Perm()); got != args[0] {
		ts.Fatalf("%s has the mode %s, want %s", args[1], got, args[0])
	}
}

var (
	variable = regexp.MustCompile(`("(?:uid|seen)": )"[^"]*"`)
	yamlUID  = regexp.MustCompile(`(?m)^uid: .*$`)
	ages     = regexp.MustCompile(`\b(\d+m)?\d+s ago`)
)

// normal writes the last output to a file, with what differs from run to run replaced: normal stdout FILE.
func normal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: normal stdout|stderr FILE")
	}
	text := variable.ReplaceAllString(ts.ReadFile(args[0]), `$1"…"`)
	text = yamlUID.ReplaceAllString(text, "uid: …")
	text = ages.ReplaceAllString(text, "0s ago")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "validate", "fmt", "explain", "apply", "refused", "conflict", "get", "promote", "rollback", "sidecars", "wait", "no-server", "usage")
	runScripts(t, "apply-guards", "life", "rollback-domain", "freeze", "breakglass", "override")
	runScripts(t, "domains", "history", "audit", "sidecar-describe", "watch", "token")
	runScripts(t, "rollout", "stats", "lookup", "config", "protected", "login", "output", "diff", "lists", "connection", "describe", "inspect", "doctor", "completion", "man", "alert")
}

func TestC16MisspeltKeyIsNamedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	runScripts(t, "c16")
}

func TestC30AppliedMeansApplied(t *testing.T) {
	t.Parallel()
	runScripts(t, "c30")
}
