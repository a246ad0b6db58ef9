package enforce_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// What a change of a rule does to its counters, sentence by sentence. The laws say the same of generated histories.

func (s *stage) call(key string) enforce.Decision { return s.again(call{req: request(key)}) }

func (s *stage) calls(key string, n int) (admitted int) {
	for range n {
		if s.call(key).Allowed {
			admitted++
		}
	}
	return admitted
}

// wantLeft spends one call of the key.
func (s *stage) wantLeft(t *testing.T, what string, left int64) {
	t.Helper()
	if d := s.call("k"); !d.Allowed || d.Left != left {
		t.Errorf("%s: allowed %v, %d left; want %d after one more call", what, d.Allowed, d.Left, left)
	}
}

func (s *stage) wantRefused(t *testing.T, what string, wait time.Duration) {
	t.Helper()
	if d := s.call("k"); d.Allowed || d.Wait != wait {
		t.Errorf("%s: allowed %v, wait %v; want a refusal for %v", what, d.Allowed, d.Wait, wait)
	}
}

// half is a rule of which the callers "in" and "out" are on the two sides of the cohort.
func half(t *testing.T, stable, candidate *rules.Version) *rules.Rule {
	r := rule("r", stable, candidate)
	r.Percent = 5_000
	for r.Salt = 1; !r.InCohort(request("in")) || r.InCohort(request("out")); r.Salt++ {
		if r.Salt == 1_000 {
			t.Fatal("no salt tells the callers apart")
		}
	}
	return r
}

func TestAdmittedRequestsAreChargedToAllVersionsWhicheverBinds(t *testing.T) {
	t.Parallel()
	daily, hourly := version(t, 1, "10/d"), version(t, 2, "8/h")
	r := half(t, daily, hourly)
	s := newStage(memlimit.New(), r)
	s.calls("in", 3)
	s.calls("out", 3)
	s.swap(rule("r", daily, nil))
	if d := s.call("in"); d.Left != 6 {
		t.Errorf("rolled back: %d left of 10, want 6 after the 3 that the candidate admitted", d.Left)
	}
	s.swap(rule("r", hourly, nil))
	if d := s.call("out"); d.Left != 4 {
		t.Errorf("promoted: %d left of 8, want 4 after the 3 that the stable admitted", d.Left)
	}
}

func TestLoweredNumberIsCutBeforeItDrains(t *testing.T) {
	t.Parallel()
	s := newStage(memlimit.New(), rule("r", version(t, 1, "100/min"), nil))
	s.calls("k", 100)
	s.swap(rule("r", version(t, 2, "2/min"), nil))
	s.wantRefused(t, "lowered to 2", 30*time.Second) // not the 49 min that 98 calls too many take
	s.swap(rule("r", version(t, 1, "100/min"), nil))
	s.wantRefused(t, "raised again at once", 600*time.Millisecond)
	s.swap(rule("r", version(t, 2, "2/min"), nil))
	s.pass(30 * time.Second)
	s.wantLeft(t, "lowered to 2, half a minute later", 0)
	s.swap(rule("r", version(t, 1, "100/min"), nil))
	s.wantLeft(t, "raised again: the difference, 98, and no more", 97)
}

func TestChangedWindowAlgorithmOrKeyStartsAnew(t *testing.T) {
	t.Parallel()
	sliding := version(t, 2, "2/d")
	sliding.Spec.Limits[0].Algorithm = rules.SlidingWindow
	byAddress := version(t, 2, "2/d")
	byAddress.Spec.Key = []rules.KeySource{source(t, "ip")}
	for what, changed := range map[string]*rules.Version{"window": version(t, 2, "2/h"), "algorithm": sliding, "key": byAddress} {
		s := newStage(memlimit.New(), rule("r", version(t, 1, "2/d"), nil))
		s.calls("k", 2)
		s.swap(rule("r", changed, nil))
		s.wantLeft(t, "another "+what, 1)
		s.swap(rule("r", version(t, 1, "2/d"), nil))
		if s.call("k").Allowed {
			t.Errorf("back from another %s: allowed, want what was spent before to be there still", what)
		}
	}
}

// would returns what the version 2 of the rule says to n calls: "r" would refuse, "a" would not.
func (s *stage) would(n int) (said string) {
	for range n {
		said += refusedBy(s.call("k"), 2, "r")
	}
	return said
}

func TestWhatIfCounterStartsAsACopyAlsoWhenItRefuses(t *testing.T) {
	t.Parallel()
	quick, slow := version(t, 1, "1_000_000/d burst 100"), version(t, 2, "3/d")
	s := newStage(memlimit.New(), rule("r", quick, nil))
	s.calls("k", 50)
	s.swap(rule("r", quick, slow))
	got := []string{s.would(1)} // a copy of the 50, cut to 3
	s.pass(4 * time.Hour)       // when the stable has long forgotten them; a third of 3 a day short of one
	got = append(got, s.would(1))
	s.pass(4 * time.Hour)
	got = append(got, s.would(2))
	if diff := cmp.Diff([]string{"r", "r", "ar"}, got); diff != "" {
		t.Errorf("at once, after 4 hours and after 8 (-want +got):\n%s", diff)
	}
}

func TestWhatIfCounterIsKeptByTextAndStartedAgainByAnAbort(t *testing.T) {
	t.Parallel()
	stable, candidate := version(t, 1, "10/d"), version(t, 2, "12/d")
	r := rule("r", stable, candidate)
	s := newStage(memlimit.New(), r)
	s.would(12) // 10 admitted, 12 would have been
	edited := *r
	edited.Candidate = version(t, 2, "12/d")
	edited.Candidate.Spec.Description = "in other words"
	s.swap(&edited)
	if got := s.would(1); got != "r" {
		t.Errorf("after an edit of text: %s, want r: its 12 are spent", got)
	}
	edited.Epoch = 2
	s.swap(&edited)
	if got := s.would(3); got != "aar" {
		t.Errorf("after an abort: %s, want aar: a copy of the 10 that were admitted", got)
	}
}

func TestActualCounterTakesNothingFromAWhatIfOne(t *testing.T) {
	t.Parallel()
	stable, candidate := version(t, 1, "2/d"), version(t, 2, "100/d")
	s := newStage(memlimit.New(), rule("r", stable, candidate))
	if n := s.calls("k", 10); n != 2 {
		t.Fatalf("%d admitted, want 2", n)
	}
	s.swap(rule("r", candidate, nil))
	s.wantLeft(t, "promoted, with 2 admitted of 10", 97)
}

// byPlan is a version with a limit for each plan.
func byPlan(t *testing.T, number int64, rate string, plans map[string]string) *rules.Version {
	v := version(t, number, rate)
	by := source(t, "header:x-plan").Source
	v.Spec.Limits[0].By, v.Spec.Limits[0].Values = &by, map[string]rules.Rate{}
	for plan, text := range plans {
		r, err := rules.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		v.Spec.Limits[0].Values[plan] = r
	}
	return v
}

func (s *stage) callAs(plan string) enforce.Decision {
	req := request("k")
	req.Header["X-Plan"] = []string{plan}
	return s.again(call{req: req})
}

func TestChangeOfPlanGivesNoFreshBudget(t *testing.T) {
	t.Parallel()
	v := byPlan(t, 1, "5/d", map[string]string{"pro": "10/d", "blocked": "0/d", "internal": "unlimited"})
	s := newStage(memlimit.New(), rule("r", v, nil))
	s.calls("k", 5)
	for i, want := range []struct {
		plan    string
		allowed bool
	}{{"", false}, {"pro", true}, {"blocked", false}, {"", false}, {"internal", true}, {"pro", true}} {
		if d := s.callAs(want.plan); d.Allowed != want.allowed {
			t.Errorf("call %d, as %q: allowed %v, want %v", i+1, want.plan, d.Allowed, want.allowed)
		}
	}
	if d := s.callAs("pro"); d.Left != 2 {
		t.Errorf("%d left of 10, want 2", d.Left)
	}
}

// A plan of 0 read the level as empty, and so wiped what other plans had spent, where it was only judged.
func TestPlanOfZeroForgetsNothing(t *testing.T) {
	t.Parallel()
	v := byPlan(t, 2, "2/d", map[string]string{"blocked": "0/d"})
	s := newStage(memlimit.New(), rule("r", nil, v))
	s.calls("k", 2)
	s.pass(time.Second)
	s.callAs("blocked")
	if got := s.would(1); got != "r" {
		t.Errorf("after a call by a plan of 0: %s, want r: 2 of 2 are spent", got)
	}
	s.swap(rule("r", v, nil))
	if s.call("k").Allowed {
		t.Error("promoted: allowed, want a refusal: more than 2 were admitted")
	}
}

// A what-if counter that was only kept on was drained by the numbers of the request that it refused.
func TestRefusedRequestDoesNotDrainAWhatIfCounter(t *testing.T) {
	t.Parallel()
	v := byPlan(t, 2, "1/d", map[string]string{"pro": "24/d burst 1"})
	s := newStage(memlimit.New(), rule("r", version(t, 1, "100/d"), v))
	s.callAs("pro")
	s.pass(time.Hour - time.Millisecond)
	s.callAs("")
	s.pass(time.Second)
	if got := refusedBy(s.callAs("pro"), 2, "r"); got != "a" {
		t.Errorf("an hour after the only call of an hour: %s, want a, whatever was refused between", got)
	}
}

// The candidate spent the stable's counter for a caller that is unlimited to the stable.
func TestWhatIfTouchesNoCounterThatIsUnlimitedForThisRequest(t *testing.T) {
	t.Parallel()
	stable := byPlan(t, 1, "3/d", map[string]string{"internal": "unlimited"})
	s := newStage(memlimit.New(), rule("r", stable, version(t, 2, "3/d")))
	for range 3 {
		s.callAs("internal")
	}
	s.wantLeft(t, "after 3 unlimited calls", 2)
}
