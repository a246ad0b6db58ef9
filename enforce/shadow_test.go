package enforce_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/rules"
)

// A candidate with a wider match spent the stable's counter with requests that the stable does not match; and the other
// way round inside the cohort.
func TestWhatIfAloneTouchesNoCounterThatBindsElsewhere(t *testing.T) {
	t.Parallel()
	narrow, wide := version(t, 1, "3/d"), version(t, 2, "3/d")
	narrow.Spec.Match.Path = []string{"/a"}
	inside := rule("r", wide, narrow) // the narrow one binds, the wide one is judged
	inside.Percent = 9_999
	for name, r := range map[string]*rules.Rule{"wider candidate in shadow": rule("r", narrow, wide), "wider stable in the cohort": inside} {
		b := setup(r)
		var got strings.Builder
		for _, path := range []string{"/b", "/b", "/b", "/a", "/a", "/a", "/a"} {
			req := request("k")
			req.Path = path
			if b.engine.Decide(t.Context(), req).Allowed {
				got.WriteByte('A')
			} else {
				got.WriteByte('R')
			}
		}
		if got.String() != "AAAAAAR" {
			t.Errorf("%s: got %s, want AAAAAAR: only /a has a limit, of 3", name, got.String())
		}
	}
}

// A candidate that nothing stands beside counts what is admitted, so that its promotion starts with it.
func TestCandidateWithoutAStableCountsWhatIsAdmitted(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "3/d")
	b := setup(rule("r", nil, v))
	b.letters(t, "k", 5)
	b.swap(rule("r", v, nil))
	if got := b.letters(t, "k", 1); got != "R" {
		t.Errorf("after the promotion: got %s, want R", got)
	}
}

// With a counter that both sides of a cohort share, the actual one was cut to the stable's burst: a promotion handed out a
// fresh budget.
func TestSharedCounterKeepsWhatTheCandidateAdmitted(t *testing.T) {
	t.Parallel()
	stable, candidate := version(t, 1, "3/d"), version(t, 2, "100/d")
	half := rule("r", stable, candidate)
	half.Percent = 5_000
	less := *half
	less.Percent, less.Epoch = 4_900, 9 // a lowered percentage starts the what-if counters again
	b := setup(half)
	inside := &rules.Request{Domain: "d", Method: "GET", Path: "/", Hits: 1}
	for host := range byte(250) {
		inside.IP = netip.AddrFrom4([4]byte{192, 0, 2, host})
		if less.InCohort(inside) {
			break
		}
	}
	admitted := func(n int) (count int) {
		for range n {
			if b.engine.Decide(t.Context(), inside).Allowed {
				count++
			}
		}
		return count
	}
	if n := admitted(200); n != 100 {
		t.Errorf("%d admitted at 50%%, want 100", n)
	}
	b.swap(&less)
	if n := admitted(200); n != 0 {
		t.Errorf("%d more after the percentage was lowered, want none", n)
	}
	b.swap(rule("r", candidate, nil))
	if n := admitted(200); n != 0 {
		t.Errorf("%d more after the promotion, want none", n)
	}
}

// Of a call with several keys the what-if version was charged for those that it allowed, though it would have refused the
// call for another: a later call seemed to be refused. At 50 % it binds for the key that it refuses.
func TestWhatIfOfSeveralKeysTakesAllOrNone(t *testing.T) {
	shadow := rule("r", version(t, 1, "99/d"), version(t, 2, "2/d"))
	half := *shadow
	half.Percent = 5_000
	var in, out *rules.Request
	for key := 'a'; in == nil || out == nil; key++ {
		req := request(string(key))
		if half.InCohort(req) {
			in = req
		} else {
			out = req
		}
	}
	calls := [][]*rules.Request{{in}, {in}, {in, out}, {out}, {out}, {out}}
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		for name, r := range map[string]*rules.Rule{"shadow": shadow, "half": &half} {
			s := newStage(l, r)
			var got strings.Builder
			for _, reqs := range calls {
				d := s.engine.DecideAll(t.Context(), reqs)
				letter := "A"
				for _, o := range d.Outcomes {
					if o.Version.Number == 2 && o.Outcome.Affects() {
						letter = "R"
					}
				}
				got.WriteString(letter)
			}
			if got.String() != "AARAAR" {
				t.Errorf("%s: the candidate says %s of in, in, in and out, out, out, out; enforced it says AARAAR", name, got.String())
			}
		}
	})
}
