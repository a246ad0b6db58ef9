package faults_test

import (
	"flag"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage/postgres"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api/adminpb"
)

// outage is a minute when it counts. The default is until each sidecar has a window that it cannot get stored.
var outage = flag.Duration("outage", tally.Span, "how long the database is away in the test of the tallies")

// Three sidecars under load, and all that may break breaks; nothing is killed that had something to say. In the end every
// number in the database is that of whoever made the calls.
func TestTalliesAreExactWhateverBreaks(t *testing.T) {
	t.Parallel()
	s := newTallied(t)
	cut := harness.NewLink(t, s.plane.addr)
	one, two, three := s.door("one", s.plane.addr), s.door("two", cut.Addr), s.door("three", s.plane.addr)
	l := newLoad(t, 2, one, two, three)

	one.restart()
	s.edit()

	// What two says is stored, and it never hears so.
	cut.SwallowAnswers()
	before := s.stored("two")
	harness.Eventually(t, patience, func() error {
		if now := s.stored("two"); now <= before {
			return fmt.Errorf("of two %d windows are stored, %d were", now, before)
		}
		return nil
	})
	if heard := two.mustMetric("headgate_report_windows_stored_total"); heard >= float64(s.stored("two")) {
		t.Errorf("two knows of %v stored windows: nothing was cut", heard)
	}
	cut.Mend()

	// The database is away, and the control plane is killed with what it was told and could not store.
	s.gate.shut()
	s.awaitWaiting(*outage)
	s.plane.kill()
	s.gate.open()
	s.plane.start()
	s.caughtUp()
	s.edit()

	// It is killed before it has written down what it had just sent.
	if err := s.plane.process.Interrupt(); err != nil {
		t.Error(err)
	}
	s.plane.start()
	two.restart()
	s.edit()
	s.plane.kill()
	s.plane.start()
	s.caughtUp()

	s.wire.Swallow() // the database hangs
	s.awaitWaiting(tally.Span)
	s.wire.Mend()
	s.caughtUp()
	three.restart()

	l.stop()
	for _, d := range s.doors {
		d.stop()
	}
	if diff := cmp.Diff(l.want(), s.counted()); diff != "" {
		t.Errorf("what is stored (-as called +as stored):\n%s", diff)
	}
	if missing := s.missing(); len(missing) > 0 {
		t.Errorf("missing: %+v", missing)
	}
	t.Logf("%v; %d calls met a door that was closed", l.want(), l.unanswered)
}

// tallied is a control plane that may be cut off from its database, with sidecars that count.
type tallied struct {
	t     *testing.T
	plane *plane
	store *postgres.Store // the same database, without what may break
	redis *harness.RedisServer
	gate  *gate         // before the database: shut, it is stopped
	wire  *harness.Link // behind the gate: it may hang
	doors []*door
	notes int
}

// newTallied has the rules of the load in their stages.
func newTallied(t *testing.T) *tallied {
	t.Helper()
	database := harness.Postgres(t)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	s := &tallied{t: t, redis: harness.Redis(t), wire: harness.NewLink(t, u.Host)}
	u.Host = s.wire.Addr
	s.gate = newGate(t, u.String())
	s.gate.open()
	s.plane = newPlane(t, harness.Build(t, "./cmd/controlplane"), s.gate.database)
	s.plane.start()
	if s.store, err = postgres.Open(t.Context(), database, postgres.Options{NoListen: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.store.Close() })
	s.apply(tallyRules(firmLimit, false, 0), true)
	s.edit()
	if _, err := s.plane.admin.Promote(t.Context(), &adminpb.PromoteRequest{Domain: domain, Rule: "half", To: 5000}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *tallied) apply(content string, enforce bool) {
	s.t.Helper()
	_, err := s.plane.admin.Apply(s.t.Context(), &adminpb.ApplyRequest{
		Files: []*adminpb.File{{Name: "rules.yaml", Content: []byte(content)}}, Enforce: enforce, Confirmed: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// edit makes another version of the rule in shadow: what sidecars count of it must be believed as soon as they have it.
func (s *tallied) edit() {
	s.t.Helper()
	s.notes++
	s.apply(tallyRules(firmTry, true, s.notes), false)
}

// door starts a sidecar.
func (s *tallied) door(node, plane string) *door {
	s.t.Helper()
	d := newDoor(s.t, node, plane, s.redis.Addr)
	d.start()
	s.doors = append(s.doors, d)
	return d
}

// progress is how far the windows of a node's present life are stored.
func (s *tallied) progress(node string) tally.Progress {
	s.t.Helper()
	list, err := s.store.Sources(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range list {
		if p.Node == node {
			return p
		}
	}
	return tally.Progress{}
}

func (s *tallied) stored(node string) int64 { s.t.Helper(); return s.progress(node).Stored }

// awaitWaiting returns when each sidecar has a window that has waited as long.
func (s *tallied) awaitWaiting(age time.Duration) {
	s.t.Helper()
	harness.Eventually(s.t, age+patience, func() error {
		for _, d := range s.doors {
			is, err := d.metric("headgate_report_oldest_window_age_seconds")
			if err != nil {
				return err
			}
			if is < age.Seconds() {
				return fmt.Errorf("the oldest window of %s is %v s old", d.node, is)
			}
		}
		return nil
	})
}

// caughtUp returns when no window waits.
func (s *tallied) caughtUp() {
	s.t.Helper()
	harness.Eventually(s.t, 2*patience, func() error {
		for _, d := range s.doors {
			n, err := d.metric("headgate_report_windows_waiting")
			if err != nil {
				return err
			}
			if n > 0 {
				return fmt.Errorf("%v windows of %s wait", n, d.node)
			}
		}
		return nil
	})
}

// counted is what the database says.
func (s *tallied) counted() counts {
	s.t.Helper()
	query := tally.Query{Domain: domain, From: time.Now().Add(-24 * time.Hour), To: time.Now().Add(24 * time.Hour), Step: tally.StepHour}
	points, err := s.store.Series(s.t.Context(), query)
	if err != nil {
		s.t.Fatal(err)
	}
	domains, err := s.store.DomainSeries(s.t.Context(), query)
	if err != nil {
		s.t.Fatal(err)
	}
	var uids []string
	for _, p := range points {
		uids = append(uids, p.UID)
	}
	births, err := s.store.Births(s.t.Context(), uids)
	if err != nil {
		s.t.Fatal(err)
	}
	c := counts{}
	for _, p := range points {
		of := births[p.UID].Rule
		if of != "quiet" {
			of = fmt.Sprintf("%s/%d", of, p.Version)
		}
		for cell, n := range p.Counts {
			c.add(of, tally.Cell(cell), n)
		}
	}
	for _, p := range domains {
		for cell, n := range p.Counts {
			c.add(p.Domain, tally.DomainCell(cell), n)
		}
	}
	return c
}

func (s *tallied) missing() []tally.Missing {
	s.t.Helper()
	list, err := s.store.Missing(s.t.Context(), time.Now().Add(-24*time.Hour), time.Now().Add(24*time.Hour))
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}
