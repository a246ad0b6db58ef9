package subscribe_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Only the first reason of an outage was logged, so that a revoked token was never named: what is heard first is that the
// stream was ended. And nobody was told when it was over, unless rules came.
func TestEachReasonOfAnOutageIsLoggedOnceAndItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var streams atomic.Int64
		conn, stop := serve(t, func(stream adsStream) error {
			switch n := streams.Add(1); {
			case n == 1:
				return nil
			case n <= 5:
				return grpcstatus.Error(codes.Unauthenticated, "not authenticated: the token is revoked")
			}
			<-stream.Context().Done()
			return nil
		})
		var log syncedText
		client := run(t, settings{conn: conn, log: &log})
		for streams.Load() < 4 {
			time.Sleep(10 * time.Millisecond) // of the bubble
		}
		synctest.Wait()
		if err := client.Trouble(); err == nil || !strings.Contains(err.Error(), "the token is revoked") {
			t.Errorf("the trouble is %v, want the revoked token", err)
		}
		time.Sleep(50 * time.Second) // of the bubble
		if err := client.Trouble(); err != nil {
			t.Errorf("there is still trouble: %v", err)
		}
		client.stop()
		stop()
		for text, want := range map[string]int{
			`err="the control plane ended the stream"`: 1,
			"the token is revoked":                     1,
			`msg="connected to the control plane"`:     1,
			"level=WARN":                               2,
		} {
			if n := strings.Count(log.String(), text); n != want {
				t.Errorf("%q was logged %d times, want %d:\n%s", text, n, want, log.String())
			}
		}
	})
}
