package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage/postgres"
	"github.com/headgate/headgate/test/harness"
)

// What sidecars count is in the database, exactly, though the control plane is killed meanwhile and one of them is stopped.
func TestCountsOfSidecarsAreStoredExactly(t *testing.T) {
	t.Parallel()
	s := start(t)
	fleet := []*sidecar{s.sidecar("one", "d"), s.sidecar("two", "d")}
	s.apply(rule("5/d"))
	s.must("promote", "d/r", "--to", "100%", "--wait")
	calls := func(n int) {
		for i := range n {
			for _, c := range fleet {
				c.call(http.MethodGet, "/", fmt.Sprintf("192.0.2.%d", i%4))
			}
		}
	}
	calls(20)
	s.plane.Kill()
	calls(20)
	s.startPlane()
	calls(10)
	if err := fleet[0].process.Interrupt(); err != nil { // it says its last before it ends
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), s.database, postgres.Options{NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	// Two sidecars, 50 calls each, of four clients that may do five a day. The other's open window counts as well.
	harness.Eventually(t, patience, func() error {
		points, err := store.Series(t.Context(), tally.Query{
			Domain: "d", From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Minute), Step: tally.StepMinute,
		})
		if err != nil {
			return err
		}
		var sum tally.Counts
		for i := range points {
			sum.Add(&points[i].Counts)
		}
		if allowed, refused := sum.Of(tally.Allowed), sum.Of(tally.Refused); allowed != 4*5 || refused != 100-4*5 {
			return fmt.Errorf("%d allowed and %d refused, want 20 and 80", allowed, refused)
		}
		return nil
	})
	missing, err := store.Missing(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil || len(missing) > 0 {
		t.Errorf("missing: %+v, %v", missing, err)
	}
}
