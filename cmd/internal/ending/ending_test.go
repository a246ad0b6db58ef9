package ending_test

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A closed terminal ended the programs at once: a sidecar said no goodbye, and was waited for ten minutes.
func TestClosedTerminalEndsProgramsAsTheyShould(t *testing.T) {
	t.Parallel()
	t.Run("sidecar", func(t *testing.T) {
		t.Parallel()
		p := harness.Start(t, "sidecar", harness.Build(t, "./cmd/sidecar"), sidecarArgs()...)
		p.WaitLog("sidecar started")
		wantEnd(t, p, 0)
		p.WaitLog("sidecar stopped")
	})
	t.Run("controlplane", func(t *testing.T) {
		t.Parallel()
		p := harness.Start(t, "controlplane", harness.Build(t, "./cmd/controlplane"), "--database-url", filepath.Join(t.TempDir(), "headgate.db"),
			"--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
		p.WaitLog("control plane started")
		wantEnd(t, p, 0)
		p.WaitLog("control plane stopped")
	})
	t.Run("rulectl", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
		p := harness.Start(t, "rulectl", harness.Build(t, "./cmd/rulectl"), "get", "rules", "--server", silent.Addr().String())
		conn, err := silent.Accept() // it waits for an answer now
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		wantEnd(t, p, 129)
		p.WaitLog("rulectl: interrupted")
	})
}

// What nohup started goes on.
func TestProgramThatIgnoresItsTerminalSurvivesIt(t *testing.T) {
	t.Parallel()
	args := append([]string{"-c", `trap "" HUP; exec "$@"`, "sh", harness.Build(t, "./cmd/sidecar")}, sidecarArgs()...)
	p := harness.StartCmd(t, "sidecar", exec.Command("sh", args...))
	p.WaitLog("sidecar started")
	hangUp(t, p)
	if err := p.Interrupt(); err != nil {
		t.Error(err)
	}
	p.WaitLog("sidecar stopped")
}

func sidecarArgs() []string {
	return []string{
		"--domain", "d", "--store", "memory", "--listen", "off", "--rls-listen", "off", "--ops-listen", "127.0.0.1:0", "--controlplane", "127.0.0.1:1",
	}
}

func hangUp(t *testing.T, p *harness.Process) {
	t.Helper()
	if err := syscall.Kill(p.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

func wantEnd(t *testing.T, p *harness.Process, want int) {
	t.Helper()
	hangUp(t, p)
	err, code := p.Wait(), 0
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		code = ended.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
}
