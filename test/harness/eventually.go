package harness

import (
	"testing"
	"time"
)

// Eventually calls check until it returns nil, and fails the test with its last error
// when the deadline passes first. It is for what gives no event to wait for, such as a
// number on a metrics page; prefer WaitLog, a channel or a blocking call.
//
// Check runs in the calling goroutine and should return soon.
func Eventually(tb testing.TB, deadline time.Duration, check func() error) {
	tb.Helper()
	late := time.After(deadline)
	pause := 2 * time.Millisecond
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-late:
			tb.Fatalf("not so within %v: %v", deadline, err)
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}
