package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
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
	var script string
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(content), -1) {
		script += block[1]
	}
	script += strings.Join(jobSteps(t), "")
	script = strings.ReplaceAll(script, "/var/log/nginx/access.log", absolute(t, "../cmd/rulectl/backtest/testdata/access-public.log"))
	out := newSession(t).run(t, script)
	wantInOrder(t, out, "200 200 200 200 200 200 200", "429 Too Many Requests", "200 OK", "per-client")
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
