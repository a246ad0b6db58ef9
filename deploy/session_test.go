package deploy_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/test/harness"
)

// session is a shell in which commands of a page are typed: in a folder of its own, with the programs of this repository,
// and with ports of its own in the place of those that the page names and the programs have by default.
type session struct {
	dir         string
	ports       map[string]string
	environment []string
}

// settingsOf are the settings whose defaults name a port.
var settingsOf = map[string][]string{
	"127.0.0.1:18000": {"RULECTL_SERVER=", "HEADGATE_CONTROLPLANE=", "HEADGATE_GRPC_LISTEN="},
	"127.0.0.1:7070":  {"HEADGATE_HTTP_LISTEN="},
	"127.0.0.1:8080":  {"HEADGATE_LISTEN="},
	"127.0.0.1:8082":  {"HEADGATE_OPS_LISTEN="},
	"127.0.0.1:9000":  {"HEADGATE_UPSTREAM=http://"},
}

func newSession(t *testing.T) *session {
	t.Helper()
	path := os.Getenv("PATH")
	for _, pkg := range []string{"./cmd/controlplane", "./cmd/sidecar", "./cmd/rulectl", "./deploy/examples/go-service"} {
		path = filepath.Dir(harness.Build(t, pkg)) + ":" + path
	}
	s := &session{dir: t.TempDir(), ports: map[string]string{}}
	s.environment = append(os.Environ(), "PATH="+path, "HOME="+s.dir, "EXAMPLES="+absolute(t, "examples"), "HEADGATE_RLS_LISTEN=off",
		"ACCESS_LOG="+absolute(t, "../cmd/rulectl/backtest/testdata/access-public.log"), "GORACE=atexit_sleep_ms=10")
	for port, settings := range settingsOf {
		s.ports[port] = harness.FreeAddr(t)
		for _, setting := range settings {
			s.environment = append(s.environment, setting+s.ports[port])
		}
	}
	return s
}

// run types the script, of which every command must succeed, and returns what it printed. What it leaves in the background
// is stopped.
func (s *session) run(t *testing.T, script string) string {
	t.Helper()
	for _, port := range slices.Collect(maps.Keys(s.ports)) {
		script = strings.ReplaceAll(script, port, s.ports[port])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p)' EXIT\n"+script)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it stops what it started
	cmd.Dir, cmd.Env = s.dir, s.environment
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// typed are the blocks of a page, with what they are, and the commands within its text.
var typed = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$|(`(?:controlplane|sidecar|rulectl|curl|docker|go|kubectl|make|sudo)\\s[^`]*`)")

// retyped says what is typed for what a page says.
type retyped struct{ read, typed string }

// commands returns the commands of a page, from the top to the end: all blocks but those of text, and the commands within
// text, which stand in backquotes, each in a line. What cannot be typed is left out. The page must say all that is named
// here, so that what changes there is seen.
func commands(t *testing.T, page string, untyped map[string]string, other []retyped) (script string) {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range typed.FindAllStringSubmatch(string(content), -1) {
		switch within := strings.Fields(m[3]); {
		case len(within) > 0:
			script += strings.Join(within, " ") + "\n"
		case m[1] != "text":
			script += m[2]
		}
	}
	for command := range untyped {
		other = append(other, retyped{command, ""})
	}
	var pairs []string
	for _, o := range other {
		if !strings.Contains(script, o.read) {
			t.Errorf("%s does not say %q any more", page, o.read)
		}
		pairs = append(pairs, o.read, o.typed)
	}
	return strings.NewReplacer(append(pairs, "`", "")...).Replace(script)
}

// ready waits for a program.
func ready(url string) string {
	return "curl -fsS --retry 30 --retry-delay 1 --retry-connrefused --cacert \"${PKI-}/ca.pem\" " + url + "/readyz\n"
}

// wantInOrder wants the texts, one after the other.
func wantInOrder(t *testing.T, output string, texts ...string) {
	t.Helper()
	rest := output
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Errorf("%q is missing, or not where it should be, in\n%s", text, output)
			return
		}
		rest = after
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
