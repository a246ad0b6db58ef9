package faults_test

import (
	"flag"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/test/harness"
)

// Rounds are 100 in all. SQLite has most, since its program is the one that writes the file.
const (
	sqliteRounds   = 70
	postgresRounds = 30
)

// A kill comes after a random number of acknowledgements, below most, and a random time, below longest: so it does not
// matter how fast the machine is.
const (
	most    = 15
	longest = 20 * time.Millisecond
)

var seed = flag.Uint64("seed", rand.Uint64(), "of the random moments at which the control plane is killed")

func TestKilledControlPlaneKeepsWhatItAcknowledgedAndHalvesNothing(t *testing.T) {
	t.Parallel()
	binary := harness.BuildPlain(t, "./cmd/controlplane") // with the race detector a hundred starts would take minutes
	for _, c := range []struct {
		name     string
		database func(*testing.T) string
		rounds   int
	}{
		{"sqlite", func(t *testing.T) string { return filepath.Join(t.TempDir(), "headgate.db") }, sqliteRounds},
		{"postgres", func(t *testing.T) string { return harness.Postgres(t) }, postgresRounds},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("the moments of -args -seed=%d", *seed)
			killAgainAndAgain(t, newPlane(t, binary, c.database(t)), c.rounds)
		})
	}
}

func killAgainAndAgain(t *testing.T, p *plane, rounds int) {
	t.Helper()
	random := rand.New(rand.NewPCG(*seed, 0))
	publishers := []*publisher{
		pair("pair-1"), pair("pair-2"), pair("pair-3"),
		trial("trial-1", rand.New(rand.NewPCG(*seed, 1))), trial("trial-2", rand.New(rand.NewPCG(*seed, 2))),
	}
	read := newTrail(t)
	s := newSidecar(t, p.addr, "beside")
	for range rounds {
		p.start()
		read.follow(p, publishers)
		s.start()
		if read.revision > 0 {
			s.await(read.revision)
		}
		run := publish(p, publishers)
		run.await(t, random.IntN(most))
		<-time.After(time.Duration(random.Int64N(int64(longest))))
		run.kill(p)
		s.stop()
	}
	p.start()
	read.follow(p, publishers)
	read.whole(p)
	s.start()
	s.await(read.revision)
	read.checkSets(s)
	acked, lost, kept := count(publishers)
	t.Logf("%d changes acknowledged in %d rounds, %d cut off: %d of them stored, %d absent", acked, rounds, lost+kept, kept, lost)
	if acked < 2*rounds {
		t.Errorf("only %d changes were acknowledged: nothing was tested", acked)
	}
}

// count says what became of the changes.
func count(publishers []*publisher) (acked, lost, kept int) {
	for _, u := range publishers {
		for _, c := range u.changes {
			switch {
			case c.acked > 0:
				acked++
			case c.revision > 0:
				kept++
			default:
				lost++
			}
		}
	}
	return acked, lost, kept
}

// checkSets looks at all that the sidecar ever had in force: nothing went back, and every set is exactly that of its
// revision, so that two rules changed by one revision never differ.
func (r *trail) checkSets(s *sidecar) {
	r.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	last := int64(0)
	for _, is := range s.seen {
		if is.revision < last {
			r.t.Errorf("the sidecar went from revision %d back to %d", last, is.revision)
		}
		last = is.revision
		for rule := range r.history {
			if want := r.limitAt(rule, is.revision); is.limits[rule] != want {
				r.t.Errorf("at revision %d the sidecar has limit %d for %s, want %d", is.revision, is.limits[rule], rule, want)
			}
		}
		for rule, limit := range is.limits {
			if a, ok := strings.CutSuffix(rule, "-a"); ok && is.limits[a+"-b"] != limit {
				r.t.Errorf("at revision %d the sidecar has half a change: %v", is.revision, is.limits)
			}
		}
	}
	if len(s.seen) == 0 || last != r.revision {
		r.t.Errorf("the sidecar ends with revision %d, want %d", last, r.revision)
	}
	r.t.Logf("the sidecar saw %d sets", len(s.seen))
}
