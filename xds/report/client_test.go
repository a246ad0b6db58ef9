package report

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules/tally"
)

var allowed = tally.BindingCell(tally.Allowed, tally.NoLimit)

func TestWindowsAreAlignedNumberedAndStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		time.Sleep(3500 * time.Millisecond)
		began := time.Now()
		s := p.sidecar(nil)
		defer s.stop()
		s.counts.add("api", "uid-a", 1, allowed, 5)
		s.counts.refuse(time.Now(), 7)
		time.Sleep(5 * time.Second)
		open := p.store.opened()
		if len(open) < 2 || open[len(open)-1].Windows[0].Versions[0].Counts[allowed] != 5 || open[len(open)-1].Windows[0].Number != 1 {
			t.Errorf("totals of the open window after 5 s: %+v", open)
		}
		time.Sleep(7 * time.Second)
		s.counts.add("api", "uid-a", 2, allowed, 2)
		s.stop()
		list := p.store.stored()
		if len(list) != 2 {
			t.Fatalf("stored %d windows, want 2: %+v", len(list), list)
		}
		first, last := list[0], list[1]
		if !first.Start.Equal(began) || !first.End.Equal(began.Truncate(tally.Span).Add(tally.Span)) || first.Number != 1 || first.Last {
			t.Errorf("first window: number %d, %v to %v, last %v", first.Number, first.Start, first.End, first.Last)
		}
		if !last.Start.Equal(first.End) || last.Number != 2 || !last.Last {
			t.Errorf("last window: number %d, %v to %v, last %v", last.Number, last.Start, last.End, last.Last)
		}
		if v := first.Versions[0]; len(v.Keys) != 1 || v.Keys[0].Refused != 1 || v.Distinct.Estimate() != 1 {
			t.Errorf("keys: %+v, %d distinct", v.Keys, v.Distinct.Estimate())
		} else if diff := cmp.Diff(tally.Rates{Level: 3, Keys: []tally.KeyRate{{Key: 7, Calls: 1}}}, v.Rates); diff != "" {
			t.Errorf("rates (-want +got):\n%s", diff)
		}
		if r := first.Refusals; len(r) != 1 || r[0].Node != "n1" || r[0].Path != "/v1/\uFFFD<b>" || r[0].Reference != "r1" {
			t.Errorf("refusals: %+v", r)
		}
		wantExact(t, p.store, s.counts)
		if n := value(t, s.registry, "headgate_report_windows_stored_total"); n != 2 {
			t.Errorf("the client knows of %v stored windows, want 2", n)
		}
	})
}

// The answer to a commit is lost with the stream: the window comes again with its number.
func TestWhatWasStoredBeforeTheStreamBrokeCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		p.start()
		defer p.down()
		s := p.sidecar(nil)
		defer s.stop()
		cuts := 0
		p.store.setMeddle(func(_ context.Context, committed bool) error {
			switch cuts++; cuts {
			case 2, 6: // the stream breaks after the commit, and with it the answer of the database
				p.cut()
				return errAway
			case 3: // the stream breaks during the commit: the client asks what is stored before that ends
				p.cut()
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		for range 6 {
			s.counts.add("api", "uid-a", 1, allowed, 3)
			time.Sleep(10 * time.Second)
		}
		s.stop()
		wantExact(t, p.store, s.counts)
		if p.store.repeats == 0 || cuts < 7 {
			t.Errorf("%d windows were repeated after %d steps: this shows nothing", p.store.repeats, cuts)
		}
	})
}

func TestOutageIsMadeUpFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.sidecar(nil)
		defer s.stop()
		for i := range 3 * 60 {
			s.counts.add("api", "uid-a", 1, allowed, int64(i))
			s.counts.refuse(time.Now(), byte(i))
			time.Sleep(time.Minute)
		}
		if age := value(t, s.registry, "headgate_report_oldest_window_age_seconds"); age != 3*3600 {
			t.Errorf("the oldest window is %v s old, want three hours", age)
		}
		p.start()
		defer p.down()
		time.Sleep(65 * time.Second)
		if n := value(t, s.registry, "headgate_report_windows_waiting"); n != 0 {
			t.Errorf("%v windows wait", n)
		}
		wantExact(t, p.store, s.counts)
		list := p.store.stored()
		if n := len(list); n < 80 || n > 140 {
			t.Errorf("%d windows for three hours", n)
		}
		for i := 1; i < len(list); i++ {
			if !list[i].Start.Equal(list[i-1].End) {
				t.Errorf("window %d begins at %v, the one before ends at %v", list[i].Number, list[i].Start, list[i-1].End)
			}
		}
	})
}

func TestStopWithoutAControlPlaneIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.sidecar(nil)
		time.Sleep(time.Minute)
		at := time.Now()
		s.stop()
		if took := time.Since(at); took > lastWithin {
			t.Errorf("stopped after %v, want at most %v", took, lastWithin)
		}
	})
}

// A client that waits between streams tries again at once when it is stopped.
func TestStopSendsWhatAnOutageLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.sidecar(nil)
		s.counts.add("api", "uid-a", 1, allowed, 3)
		time.Sleep(10 * time.Minute)
		p.start()
		defer p.down()
		s.stop()
		wantExact(t, p.store, s.counts)
	})
}

// Whatever a sidecar's clock shows and does, the windows are stored at the time of the control plane's.
func TestClockThatIsWrongAndSetLosesNothing(t *testing.T) {
	t.Parallel()
	for name, jumps := range map[string][]time.Duration{
		"an hour ahead":          {time.Hour},
		"years behind":           {-20 * 365 * 24 * time.Hour},
		"set forward":            {0, time.Hour, 90 * time.Minute},
		"set back":               {0, -time.Hour, -3 * time.Hour},
		"set by parts of a span": {0, 3500 * time.Millisecond, -7 * time.Second, 13 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t)
				p.start()
				defer p.down()
				began := time.Now()
				var off atomic.Int64
				off.Store(int64(jumps[0]))
				s := p.sidecar(func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
				defer s.stop()
				for round := range 2 {
					for _, jump := range jumps {
						off.Store(int64(jump))
						for range 13 {
							s.counts.add("api", "uid-a", 1, allowed, 1)
							time.Sleep(3 * time.Second)
						}
					}
					if round == 0 {
						p.down() // the next jumps meet windows that wait
						time.AfterFunc(time.Duration(len(jumps))*30*time.Second, p.start)
					}
				}
				time.Sleep(time.Minute)
				s.stop()
				wantExact(t, p.store, s.counts)
				for _, w := range p.store.stored() {
					if w.End.Before(w.Start) || w.Start.Before(began.Add(-tally.Span)) || w.End.After(time.Now().Add(tally.Span)) {
						t.Errorf("window %d: %v to %v, between %v and %v", w.Number, w.Start, w.End, began, time.Now())
					}
				}
			})
		})
	}
}
