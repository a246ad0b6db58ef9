package faults_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/test/harness"
)

// Kill -9 loses what a sidecar had not sent. It is named when the sidecar is back, and nothing else is lost or counted
// twice.
func TestWhatAKilledSidecarDidNotSendIsNamed(t *testing.T) {
	t.Parallel()
	s := newTallied(t)
	d := s.door("one", s.plane.addr)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	call := func(n int) {
		t.Helper()
		for range n {
			if status, err := d.call(client, "/unmatched", ""); err != nil || status != http.StatusOK {
				t.Fatal(status, err)
			}
		}
	}
	unmatched := func() int64 { return s.counted()[domain][tally.RequestsUnmatched.String()] }

	const first, lost, later = 70, 50, 30
	call(first)
	called := time.Now()
	harness.Eventually(t, patience, func() error {
		if until := s.progress("one").Until; until.Before(called) {
			return fmt.Errorf("windows are stored until %v, the calls were made until %v", until, called)
		}
		return nil
	})
	if n := unmatched(); n != first {
		t.Errorf("%d calls are stored, want %d", n, first)
	}
	began := time.Now()
	call(lost)
	ended := time.Now()
	d.process.Kill()
	client.CloseIdleConnections()
	killed := s.progress("one")

	d.start()
	call(later)
	d.stop()
	if now := s.progress("one"); now.Epoch == killed.Epoch || !now.Stopped {
		t.Fatalf("the last life of the sidecar is %+v, after %+v", now, killed)
	}
	sent := unmatched() - first - later // where a window was closed in between
	if sent < 0 || sent > lost {
		t.Errorf("%d calls are stored, want %d, %d, and of %d those that were sent", unmatched(), first, later, lost)
	}
	list := s.missing()
	if len(list) != 1 {
		t.Fatalf("missing: %+v, want what the killed sidecar did not send", list)
	}
	m := list[0]
	if m.Source != killed.Source || !m.From.Equal(killed.Until) || m.To.Before(ended) || sent == 0 && m.From.After(began) {
		t.Errorf("missing: %+v, want from %v until after %v of %+v", m, killed.Until, ended, killed.Source)
	}
}
