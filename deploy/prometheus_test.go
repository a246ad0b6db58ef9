package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// promtool runs Prometheus' own checker.
func promtool(t *testing.T, arguments ...string) {
	t.Helper()
	binary, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not installed. Install it with\n  sudo apt-get install -y --no-install-recommends prometheus")
	}
	out, err := exec.CommandContext(t.Context(), binary, arguments...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}

func TestPrometheusRulesAreValidAndFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", "prometheus/rules.yaml")
	promtool(t, "test", "rules", "prometheus/rules.test.yaml")
}

// expressionsOf returns every "expr" of a JSON document.
func expressionsOf(document any) (list []string) {
	switch d := document.(type) {
	case map[string]any:
		for key, value := range d {
			if text, ok := value.(string); ok && key == "expr" {
				list = append(list, text)
			}
			list = append(list, expressionsOf(value)...)
		}
	case []any:
		for _, value := range d {
			list = append(list, expressionsOf(value)...)
		}
	}
	return list
}

func TestGrafanaDashboardHasExpressionsThatPrometheusTakes(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("grafana/headgate.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard any
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	expressions := expressionsOf(dashboard)
	if len(expressions) < 10 {
		t.Fatalf("%d expressions: %q", len(expressions), expressions)
	}
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	type group struct {
		Name  string   `yaml:"name"`
		Rules []record `yaml:"rules"`
	}
	g := group{Name: "dashboard"}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$domain", ".*", "$rule", ".*")
	for i, e := range expressions {
		g.Rules = append(g.Rules, record{fmt.Sprintf("dashboard:expression%d", i), variables.Replace(e)})
	}
	file, err := yaml.Marshal(map[string][]group{"groups": {g}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}

// A metric that was renamed would leave an alert that never fires, and an empty panel.
func TestRulesAndDashboardNameOnlyMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	page, ruleFile := read("reference/metrics.md"), read("prometheus/rules.yaml")
	recorded := regexp.MustCompile(`record: (\S+)`).FindAllStringSubmatch(ruleFile, -1)
	for _, path := range []string{"prometheus/rules.yaml", "grafana/headgate.json"} {
		found := 0
		for _, name := range regexp.MustCompile(`[a-z_:]*headgate_[a-z0-9_:]+`).FindAllString(read(path), -1) {
			found++
			isRecorded := slices.ContainsFunc(recorded, func(m []string) bool { return m[1] == name })
			if !isRecorded && !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%s names %s, which neither program has and no rule records", path, name)
			}
		}
		if found == 0 {
			t.Errorf("%s names no metric", path)
		}
	}
}
