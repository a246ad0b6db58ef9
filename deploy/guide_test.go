package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/test/harness"
)

// The guide's blocks that begin with ```sh are one session in a shell, typed from the top to the end; the job for pull
// requests comes after it, where the guide ends. Blocks of ```shell need what a test has not: root's systemd, a cluster,
// Envoy.
func TestGuideWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("guide.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "trap 'kill $(jobs -p)' EXIT\n"
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(content), -1) {
		script += block[1]
	}
	script += strings.Join(jobSteps(t), "")
	script = strings.ReplaceAll(script, "/var/log/nginx/access.log", absolute(t, "../cmd/rulectl/backtest/testdata/access-public.log"))

	path := os.Getenv("PATH")
	for _, pkg := range []string{"./cmd/controlplane", "./cmd/sidecar", "./cmd/rulectl", "./deploy/examples/go-service"} {
		path = filepath.Dir(harness.Build(t, pkg)) + ":" + path
	}
	dir := t.TempDir()
	environment := append(os.Environ(), "PATH="+path, "EXAMPLES="+absolute(t, "examples"), "HOME="+dir, "HEADGATE_RLS_LISTEN=off",
		"GORACE=atexit_sleep_ms=10")
	// Ports of our own, where the guide names them and where the programs have them by default.
	for _, p := range []struct{ port, setting string }{
		{"127.0.0.1:18000", "RULECTL_SERVER=%s HEADGATE_CONTROLPLANE=%s HEADGATE_GRPC_LISTEN=%s"},
		{"127.0.0.1:7070", "HEADGATE_HTTP_LISTEN=%s"},
		{"127.0.0.1:8080", "HEADGATE_LISTEN=%s"},
		{"127.0.0.1:8082", "HEADGATE_OPS_LISTEN=%s"},
		{"127.0.0.1:9000", "HEADGATE_UPSTREAM=http://%s"},
	} {
		free := harness.FreeAddr(t)
		script = strings.ReplaceAll(script, p.port, free)
		environment = append(environment, strings.Fields(strings.ReplaceAll(p.setting, "%s", free))...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it stops what it started
	cmd.Dir, cmd.Env = dir, environment
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantInOrder(t, string(out), "200 200 200 200 200 200 200", "429 Too Many Requests", "200 OK", "per-client")
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

// jobSteps returns what the job for pull requests runs, but for what it installs.
func jobSteps(t *testing.T) (steps []string) {
	t.Helper()
	content, err := os.ReadFile("examples/github-actions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	if err := yaml.Unmarshal(content, &job); err != nil {
		t.Fatal(err)
	}
	for _, s := range job.Jobs["rules"].Steps {
		if s.Name != "" {
			steps = append(steps, regexp.MustCompile(`\$\{\{.*?\}\}`).ReplaceAllString(s.Run, "a1b2c3")+"\n")
		}
	}
	return steps
}

func TestGuideNamesFilesThatAreThere(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("guide.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range regexp.MustCompile(`\]\(([a-z][^)#]*)\)|\$(EXAMPLES/\S+)`).FindAllStringSubmatch(string(content), -1) {
		file := link[1] + strings.Replace(link[2], "EXAMPLES", "examples", 1)
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
