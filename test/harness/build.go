package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// builds keeps the binaries of this test process, by name.
var builds struct {
	mu    sync.Mutex
	dir   string
	paths map[string]string
}

// Build compiles the main package pkg and returns the path of its binary. The package is
// named as from the top of the repository ("./cmd/sidecar") or by its import path. It is
// built once per test process, with the race detector where the test has it.
func Build(tb testing.TB, pkg string) string { tb.Helper(); return build(tb, pkg, raceEnabled) }

// BuildPlain is Build without the race detector, for tests that would take minutes with it.
func BuildPlain(tb testing.TB, pkg string) string { tb.Helper(); return build(tb, pkg, false) }

func build(tb testing.TB, pkg string, race bool) string {
	tb.Helper()
	needMain(tb)
	name := path.Base(pkg)
	if raceEnabled && !race {
		name += "-plain"
	}
	builds.mu.Lock()
	defer builds.mu.Unlock()
	if binary, ok := builds.paths[name]; ok {
		return binary
	}
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "headgate-build-") //nolint:usetesting // outlives the test: the next one uses the binary again
		if err != nil {
			tb.Fatalf("make a folder for binaries: %v", err)
		}
		releaseAtEnd(func() { _ = os.RemoveAll(dir) })
		builds.dir, builds.paths = dir, map[string]string{}
	}
	binary := filepath.Join(builds.dir, name)
	if err := goBuild(binary, pkg, race); err != nil {
		tb.Fatal(err)
	}
	builds.paths[name] = binary
	return binary
}

func goBuild(binary, pkg string, race bool) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	args := []string{"build", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// moduleRoot returns the folder of the nearest go.mod above the working directory, which
// for a test is the folder of its package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}
