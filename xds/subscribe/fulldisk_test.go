//go:build unix

package subscribe_test

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/xds/xdstest"
)

const onFullDisk = "HEADGATE_TEST_FULL_DISK"

// A disk without room: no byte can be written to a file. Saving fails, is logged once and counted; the sidecar goes on.
// The limit is one of a process, so the test is run again in one of its own.
func TestFullDiskHoldsNothingUp(t *testing.T) {
	t.Parallel()
	if os.Getenv(onFullDisk) == "" {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDiskHoldsNothingUp$", "-test.count=1")
		again.Env = append(os.Environ(), onFullDisk+"=1")
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("on a full disk: %v\n%s", err, out)
		}
		return
	}
	file := diskFile(t)
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}); err != nil {
		t.Fatal(err)
	}
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	var log syncedText
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), file: file, log: &log})
	for revision := int64(1); revision < 4; revision++ {
		ledger.WaitNode(t, "n1", "api", xdstest.Acked(revision))
		ledger.Put(t, "api", "61/min", "a")
	}
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(4))
	client.stop()
	if n := client.metric(t, "headgate_config_save_failed_total", ""); n < 1 || n > 4 {
		t.Errorf("headgate_config_save_failed_total %v", n)
	}
	if n := strings.Count(log.String(), "cannot be saved"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}
