package faults_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/test/harness"
)

// A control plane that is new, with an empty database, must not wipe the rules of a fleet: it has another history, and
// sidecars follow that when an admin says so.
func TestEmptyControlPlaneBehindAFullFleetWipesNothing(t *testing.T) {
	t.Parallel()
	binary := harness.Build(t, "./cmd/controlplane")
	old := newPlane(t, binary, filepath.Join(t.TempDir(), "old.db"))
	old.start()
	old.mustApply(4, "one", "two")
	revision := old.mustApply(5, "one", "two")
	fleet := make([]*sidecar, 5)
	updates := make([]int, len(fleet))
	for i := range fleet {
		fleet[i] = newSidecar(t, old.addr, fmt.Sprintf("node-%d", i))
		fleet[i].start()
		fleet[i].await(revision)
		_, updates[i] = fleet[i].has()
	}
	lineage := old.lineage()
	old.kill()

	p := newPlane(t, binary, filepath.Join(t.TempDir(), "new.db"))
	p.addr = old.addr
	p.start()
	p.awaitNodes(len(fleet), "")
	wantUntouched(t, fleet, updates)

	// The new history knows the domain, with one other rule.
	renewed := p.mustApply(7, "three")
	p.awaitNodes(len(fleet), "foreign")
	wantUntouched(t, fleet, updates)

	p.replaceLineage(lineage)
	for _, s := range fleet {
		s.await(renewed)
		if limits, _ := s.has(); len(limits) != 1 || limits["three"] != 7 {
			t.Errorf("%s follows the new history, and has %v", s.node, limits)
		}
	}
}

// wantUntouched fails unless every sidecar has what it had, and was given nothing since.
func wantUntouched(t *testing.T, fleet []*sidecar, updates []int) {
	t.Helper()
	for i, s := range fleet {
		limits, since := s.has()
		if since != updates[i] || len(limits) != 2 || limits["one"] != 5 || limits["two"] != 5 {
			t.Errorf("%s has %v after %d updates; want what it had after %d", s.node, limits, since, updates[i])
		}
	}
}
