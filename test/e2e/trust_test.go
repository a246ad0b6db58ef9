package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/harness"
)

// token makes a credential directly in the database, as the first one is made, and returns the file that holds it.
func (s *system) token(role string, flags ...string) string {
	s.t.Helper()
	args := append([]string{"token", "create", "--database-url", s.database, "--name", "a " + role, "--role", role}, flags...)
	cmd := exec.CommandContext(s.t.Context(), s.binaries["controlplane"], args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10")
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("token create: %v\n%s", err, out)
	}
	file := filepath.Join(s.t.TempDir(), "token")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// With authentication on, everybody is asked who they are, and may do what the role says.
func TestTokens(t *testing.T) {
	t.Parallel()
	s := start(t, "--auth", "token")
	if _, stderr, code := s.rulectl("get", "rules"); code != 4 || !strings.Contains(stderr, "token") {
		t.Errorf("without a token: exit %d, want 4 and how to give one\n%s", code, stderr)
	}
	operator, viewer, other := s.token("operator"), s.token("viewer"), s.token("editor", "--domain", "other")
	file := s.file(rule("2/d"))
	for name, as := range map[string]string{"viewer": viewer, "editor of another domain": other} {
		if _, stderr, code := s.rulectl("apply", "-f", file, "--token-file", as); code != 4 {
			t.Errorf("apply as %s: exit %d, want 4\n%s", name, code, stderr)
		}
	}
	s.must("apply", "-f", file, "--stage", "enforce", "--yes", "--token-file", operator)

	// Sidecars as well, each for its domains.
	c := s.sidecar("one", "d", "--controlplane-token-file", s.token("sidecar", "--domain", "d"))
	harness.Eventually(t, patience, func() error {
		if got := c.revision(); got != 1 {
			return fmt.Errorf("the sidecar has revision %d, want 1", got)
		}
		return nil
	})
	if got := c.allowed("192.0.2.1", 5); got != 2 {
		t.Errorf("%d calls were allowed, want 2", got)
	}
	stranger := harness.FreeAddr(t)
	harness.Start(t, "stranger", s.binaries["sidecar"], "--node-id", "stranger", "--domain", "d", "--controlplane", s.grpc,
		"--store", "memory", "--upstream", s.upstream.URL, "--listen", harness.FreeAddr(t), "--rls-listen", "off", "--ops-listen", stranger,
		"--controlplane-token-file", s.token("sidecar", "--domain", "other"))
	harness.Eventually(t, patience, func() error {
		if status := get(t, "http://"+stranger+"/readyz"); status != http.StatusServiceUnavailable {
			return fmt.Errorf("/readyz of a sidecar that is not let in answers %d", status)
		}
		return nil
	})
	list := s.must("sidecar", "list", "--token-file", viewer)
	if !strings.Contains(list, "one") || strings.Contains(list, "stranger") {
		t.Errorf("the fleet is\n%s", list)
	}
	wantText(t, s.must("audit", "list", "--token-file", viewer), "a operator", "a viewer", "forbidden")
}
