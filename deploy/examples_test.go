package deploy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caarlos0/env/v11"
	"go.yaml.in/yaml/v3"

	controlplane "github.com/headgate/headgate/cmd/controlplane/app"
	sidecar "github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// checkSettings starts nothing, but reads the environment as the program of that name does.
func checkSettings(program string, environment map[string]string) error {
	var config interface{ Validate() error }
	switch program {
	case "controlplane":
		c := controlplane.DefaultConfig()
		config = &c
	case "sidecar":
		c := sidecar.DefaultConfig()
		config = &c
	default:
		return fmt.Errorf("no program is named %q", program)
	}
	o := env.Options{Prefix: "HEADGATE_", Environment: environment}
	fields, err := env.GetFieldParamsWithOptions(config, o)
	if err != nil {
		return err
	}
	for name := range environment {
		if !slices.ContainsFunc(fields, func(f env.FieldParams) bool { return f.Key == name }) {
			err = errors.Join(err, fmt.Errorf("%s has no setting %s", program, name))
		}
	}
	return errors.Join(err, env.ParseWithOptions(config, o), config.Validate())
}

func TestSettingsOfExamplesAreChecked(t *testing.T) {
	t.Parallel()
	for name, environment := range map[string]map[string]string{
		"unknown": {"HEADGATE_DOMAINS": "a"},
		"not one": {"HEADGATE_DOMAIN": "a", "HEADGATE_STORE_BUDGET": "five"},
		"refused": {"HEADGATE_DOMAIN": "a", "HEADGATE_LISTEN": "0.0.0.0:80"},
		"missing": {},
	} {
		if checkSettings("sidecar", environment) == nil {
			t.Errorf("%s: %v is taken", name, environment)
		}
	}
}

func TestSystemdUnitsAreValidAndConfined(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal("systemd-analyze is not installed. Install it with\n  sudo apt-get install -y --no-install-recommends systemd")
	}
	for _, program := range []string{"controlplane", "sidecar"} {
		if err := checkSettings(program, readEnvironment(t, "examples/systemd/"+program+".env")); err != nil {
			t.Errorf("%s.env: %v", program, err)
		}
		unit := "headgate-" + program + ".service"
		content, err := os.ReadFile("examples/systemd/" + unit)
		if err != nil {
			t.Fatal(err)
		}
		// systemd-analyze wants the program to be there.
		text := strings.ReplaceAll(string(content), "/usr/local/bin/"+program, harness.Build(t, "./cmd/"+program))
		file := filepath.Join(t.TempDir(), unit)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"verify", "--man=no"}, {"security", "--offline=true", "--no-pager", "--threshold=15"}} {
			out, err := exec.CommandContext(t.Context(), analyze, append(args, file)...).CombinedOutput()
			if err != nil || args[0] == "verify" && len(out) > 0 {
				t.Errorf("systemd-analyze %s %s: %v\n%s", args[0], unit, err, out)
			}
		}
	}
}

// readEnvironment reads a file for EnvironmentFile=.
func readEnvironment(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	environment := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, found := strings.Cut(lines.Text(), "=")
		switch {
		case strings.HasPrefix(key, "#"):
		case !found:
			t.Errorf("%s: %q is no setting", name, lines.Text())
		default:
			environment[key] = value
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return environment
}

// compose is what the example needs of Compose's file format, and all that it may say.
type compose struct {
	Name     string
	Services map[string]struct {
		Image string
		Build *struct {
			Context, Dockerfile, Target string
		}
		Environment map[string]string
		Command     []string
		Ports       []string
		Volumes     []string
		NetworkMode string `yaml:"network_mode"`
		DependsOn   any    `yaml:"depends_on"` // names, or names and conditions
		Healthcheck *struct {
			Test     []string
			Interval string
			Retries  int
		}
		ReadOnly bool `yaml:"read_only"`
		Restart  string
	}
	Volumes map[string]struct{}
}

func TestComposeFileFitsThePrograms(t *testing.T) {
	t.Parallel()
	file, err := os.Open("examples/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var c compose
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil {
		t.Fatal(err)
	}
	targets := dockerTargets(t)
	for name, s := range c.Services {
		if s.Build == nil {
			continue
		}
		if s.Build.Dockerfile != "deploy/examples/Dockerfile" || !slices.Contains(targets, s.Build.Target) {
			t.Errorf("%s: built from %+v, which is not in the Dockerfile", name, *s.Build)
		}
		if len(s.Environment) > 0 {
			if err := checkSettings(s.Build.Target, s.Environment); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is published to others, and nobody is asked who they are", name, port)
			}
		}
		var needed []string
		switch list := s.DependsOn.(type) {
		case []any:
			for _, n := range list {
				needed = append(needed, fmt.Sprint(n))
			}
		case map[string]any:
			needed = slices.Collect(maps.Keys(list))
		}
		if other, found := strings.CutPrefix(s.NetworkMode, "service:"); found {
			needed = append(needed, other)
		}
		for _, n := range needed {
			if _, there := c.Services[n]; !there {
				t.Errorf("%s: there is no service %s", name, n)
			}
		}
	}
}

// dockerTargets returns the names of the Dockerfile's stages, and holds them to the programs that are built there.
func dockerTargets(t *testing.T) []string {
	t.Helper()
	file, err := os.Open("examples/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	var stages []string
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 4 && words[0] == "FROM":
			stages = append(stages, words[3])
		case len(words) == 4 && words[0] == "COPY" && words[1] == "--from=build":
			if want := stages[len(stages)-1]; words[2] != "/out/"+want || words[3] != "/"+want {
				t.Errorf("stage %s has %q", want, line)
			}
		case len(words) > 5 && words[0] == "RUN" && slices.Contains(words, "build"):
			for _, pkg := range words {
				if strings.HasPrefix(pkg, "./") {
					buildStatic(t, pkg)
				}
			}
		}
	}
	return stages
}

// buildStatic builds a program as the Dockerfile does: the images have no C library.
func buildStatic(t *testing.T, pkg string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, pkg)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("build %s without C: %v\n%s", pkg, err, out)
	}
}
