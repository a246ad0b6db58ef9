package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/headgate/headgate/rules/rollout/access"
)

// A seat is somebody in front of a terminal of 80 columns, in which rulectl runs as a program of its own.
type seat struct {
	t      *testing.T
	keys   *os.File
	cmd    *exec.Cmd
	screen strings.Builder // all that was ever written
}

func sit(t *testing.T, env map[string]string, args ...string) *seat {
	t.Helper()
	return program(t, env, append([]string{"rulectl"}, args...)...)
}

func program(t *testing.T, env map[string]string, args ...string) *seat {
	t.Helper()
	s := &seat{t: t, cmd: exec.CommandContext(t.Context(), args[0], args[1:]...)}
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm", "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=10", "NO_COLOR=1"}
	for key, value := range env {
		s.cmd.Env = append(s.cmd.Env, key+"="+value)
	}
	var err error
	if s.keys, err = pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.keys.Close() })
	return s
}

// sees waits until a text is on the screen.
func (s *seat) sees(text string) {
	s.t.Helper()
	for !strings.Contains(s.screen.String(), text) {
		if !s.read() {
			s.t.Fatalf("it ended without showing %q: %q", text, s.screen.String())
		}
	}
}

// read reports false at the end.
func (s *seat) read() bool {
	b := make([]byte, 4096)
	n, err := s.keys.Read(b)
	s.screen.Write(b[:n])
	return err == nil
}

func (s *seat) types(text string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// leaves waits for the end, and returns the exit code with all that was on the screen.
func (s *seat) leaves() (code int, screen string) {
	for s.read() {
	}
	_ = s.cmd.Wait() // its exit code is looked at
	return s.cmd.ProcessState.ExitCode(), strings.ReplaceAll(s.screen.String(), "\r\n", "\n")
}

const enter, ctrlC, ctrlD = "\r", "\x03", "\x04"

// guarded is a control plane that asks for tokens, with a context of it and an admin's token.
func guarded(t *testing.T) (env map[string]string, token string) {
	t.Helper()
	plane, err := start(t.TempDir(), doors{auth: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.stop)
	if token, err = plane.token(context.Background(), access.Admin); err != nil {
		t.Fatal(err)
	}
	env = map[string]string{"RULECTL_CONFIG": filepath.Join(t.TempDir(), "config.yaml")}
	goldenRun(t, env, 0, "config", "set-context", "prod", "--server", plane.addr, "--protected")
	return env, token
}

func TestTokenThatIsTypedIsNotShown(t *testing.T) {
	t.Parallel()
	env, token := guarded(t)
	s := sit(t, env, "login")
	s.sees("token for prod (it is not shown): ")
	s.types(token + enter)
	code, screen := s.leaves()
	_, secret, _ := strings.Cut(strings.TrimPrefix(token, "hg_"), "_")
	if code != 0 || !strings.Contains(screen, "✔ prod: you are admin@test, admin") || strings.Contains(screen, secret[:8]) { // a line may be wrapped
		t.Fatalf("exit code %d: %q", code, screen)
	}
	path := filepath.Join(filepath.Dir(env["RULECTL_CONFIG"]), "tokens", "prod")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token file: %v, %v, want the mode 600", info, err)
	}
	if out := goldenRun(t, env, 0, "whoami"); !strings.Contains(out, "admin@test\n") {
		t.Errorf("the next command is nobody's: %q", out)
	}
	// In the protected context its name is typed.
	file := write(t, "a.yaml", []byte(oneRule))
	goldenRun(t, env, 0, "apply", "-f", file, "--yes=prod")
	for _, c := range []struct {
		keys string
		want int
	}{{"yes" + enter, 7}, {"dev" + enter, 7}, {enter, 7}, {ctrlD, 7}, {ctrlC, 130}, {"prod" + enter, 0}} {
		s := sit(t, env, "promote", "a/x", "--to", "1%")
		s.sees("promote a/x to 1%, in the protected context prod? Type its name to go on: ")
		if history := goldenRun(t, env, 0, "history", "a/x", "-o", "json"); strings.Count(history, `"revision"`) != 1 {
			t.Errorf("something was changed before an answer: %q", history)
		}
		s.types(c.keys)
		if code, screen := s.leaves(); code != c.want || c.want == 7 && !strings.Contains(screen, "rulectl: nothing was changed") {
			t.Errorf("typed %q: exit code %d, want %d: %q", c.keys, code, c.want, screen)
		}
	}
}

func TestTerminalIsAsItWasAfterAnInterruptedLogin(t *testing.T) {
	t.Parallel()
	env, _ := guarded(t)
	for _, keys := range []string{"half" + ctrlC, ctrlD} {
		s := program(t, env, "sh", "-c", "rulectl login; echo ended with $?; stty -a")
		s.sees("(it is not shown): ")
		s.types(keys)
		_, screen := s.leaves()
		if !strings.Contains(screen, "ended with 130\n") || strings.Contains(screen, "half") {
			t.Errorf("%q: %q", keys, screen)
		}
		if !strings.Contains(screen, " icanon") || !strings.Contains(screen, " echo ") {
			t.Errorf("%q: what is typed next is not seen: %q", keys, screen)
		}
	}
}

func TestTablesFitATerminal(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	long := strings.Repeat("long-", 2)
	plane.mustApply(t, strings.NewReplacer("name: x", "name: "+long+"x, owner: team-with-a-long-name", "key: [ip]", "key: [header:x-a-long-header-of-a-team, ip]", "1/s", "100/s burst 2000").Replace(oneRule))
	s := sit(t, map[string]string{"RULECTL_SERVER": plane.addr}, "get", "rules")
	code, screen := s.leaves()
	if code != 0 || !strings.Contains(screen, "a/"+long+"x") || !strings.Contains(screen, "…") {
		t.Errorf("exit code %d: %q", code, screen)
	}
	for line := range strings.Lines(screen) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	// Nothing is cut for a program.
	if out := goldenRun(t, map[string]string{"RULECTL_SERVER": plane.addr}, 0, "get", "rules"); strings.Contains(out, "…") {
		t.Errorf("cut: %q", out)
	}
}

// On a terminal the counts stand in one place; what was there is written over.
func TestStatsAreRedrawnOnATerminal(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	env := map[string]string{"RULECTL_SERVER": plane.addr}
	plane.mustApply(t, oneRule)
	count := func(cell string) {
		t.Helper()
		if err := plane.window(t.Context(), "a/x", 1, cell); err != nil {
			t.Fatal(err)
		}
	}
	count("would_allow_none=4100041")
	s := sit(t, env, "stats", "a/x", "-w")
	s.sees("4,100,041")
	count("would_allow_none=1")
	s.sees("4,100,042")
	s.types(ctrlC)
	code, screen := s.leaves()
	if code != 130 || !regexp.MustCompile(`\x1b\[\d+A\x1b\[J(?s:.*)4,100,042`).MatchString(screen) {
		t.Errorf("exit code %d, %q", code, screen)
	}
}
