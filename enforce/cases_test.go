package enforce_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// onBothStores runs a case with counters in memory and in Redis.
func onBothStores(t *testing.T, run func(*testing.T, limittest.Limiter)) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		run(t, memlimit.New())
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		run(t, openRedis(t))
	})
}

// moment is a call at an instant, and what comes of it: how many are left, or how long to wait.
type moment struct {
	at   time.Duration
	cost int64
	want string
}

func timeline(t *testing.T, s *stage, moments []moment) {
	t.Helper()
	for i, m := range moments {
		s.now = limittest.Start + m.at.Microseconds()
		req := request("k")
		req.Hits = m.cost
		d := s.again(call{req: req})
		got := fmt.Sprintf("A %d", d.Left)
		switch {
		case d.Reason == enforce.ReasonCostExceedsLimit:
			got = fmt.Sprintf("R %d never", d.Left)
		case !d.Allowed:
			got = fmt.Sprintf("R %d %v", d.Left, d.Wait)
		}
		if got != m.want {
			t.Errorf("call %d, at %v, cost %d: %s, want %s", i+1, m.at, m.cost, got, m.want)
		}
	}
}

func sliding(t *testing.T, number int64, limit string) *rules.Version {
	v := version(t, number, limit)
	v.Spec.Limits[0].Algorithm = rules.SlidingWindow
	return v
}

// kgateway-dev/kgateway#8699: calls that one limit refused counted for another.
func TestC03OrganisationAndIntegrators(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		organisation, integrator := version(t, 1, "10/min"), version(t, 1, "5/min")
		organisation.Spec.Key = []rules.KeySource{source(t, "header:x-org")}
		s := newStage(l, rule("organisation", organisation, nil), rule("integrator", integrator, nil))
		calls := func(org, key string, n int) string {
			var said strings.Builder
			for range n {
				req := request(key)
				req.Header["X-Org"] = []string{org}
				said.WriteString(map[bool]string{true: "A", false: "R"}[s.again(call{req: req}).Allowed])
			}
			return said.String()
		}
		got := []string{calls("one", "integrator-1", 8), calls("one", "integrator-2", 5), calls("one", "integrator-3", 1)}
		if diff := cmp.Diff([]string{"AAAAARRR", "AAAAA", "R"}, got); diff != "" {
			t.Errorf("one after the other (-want +got):\n%s", diff)
		}
		admitted := make(chan string, 100)
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() { admitted <- calls("two", fmt.Sprintf("concurrent-%d", i%20), 2) })
		}
		callers.Wait()
		close(admitted)
		n := 0
		for said := range admitted {
			n += strings.Count(said, "A")
		}
		if n != 10 {
			t.Errorf("%d of 200 concurrent calls admitted, want the organisation's 10", n)
		}
	})
}

// alisaifee/limits#112, redis/redis#15113: a small cost passed after a large one; one above the capacity drained it.
func TestC05CostsOnBothStores(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		timeline(t, newStage(l, rule("r", version(t, 1, "10/d"), nil)), []moment{
			{0, 8, "A 2"}, {0, 4, "R 2 4h48m0s"}, {0, 2, "A 0"}, {0, 1, "R 0 2h24m0s"},
		})
		timeline(t, newStage(l, rule("r", version(t, 1, "1/min burst 6"), nil)), []moment{{0, 10, "R 6 never"}, {0, 1, "A 5"}})
	})
}

// blog.cloudflare.com, "counting things": a fixed window admits 20 around its edge.
func TestC07EdgeOfTheWindow(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("r", sliding(t, 1, "10/min"), nil))
		s.pass(59_900 * time.Millisecond)
		before := s.calls("k", 10)
		s.pass(200 * time.Millisecond)
		if after := s.calls("k", 10); before != 10 || after != 0 {
			t.Errorf("%d at 59.9 s and %d at 60.1 s, want 10 and 0", before, after)
		}
		s.pass(2 * time.Minute)
		s.wantLeft(t, "two whole windows later", 9)
	})
}

// mailgun/gubernator#77: every call reset the drip timer.
func TestC08DripsWhileCallsKeepComing(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		var moments []moment
		for i, left := range []int{9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2} {
			moments = append(moments, moment{time.Duration(i) * time.Second, 1, fmt.Sprintf("A %d", left)})
		}
		timeline(t, newStage(l, rule("r", version(t, 1, "10/30s"), nil)), moments)
	})
}

// brandur/redis-cell#12 and #50: a refill faster than a second was rounded away.
func TestC10RefillFasterThanASecond(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		const ms = time.Millisecond
		timeline(t, newStage(l, rule("r", version(t, 1, "2/s burst 1"), nil)), []moment{
			{259 * ms, 1, "A 0"},
			{533 * ms, 1, "R 0 226ms"},
			{783 * ms, 1, "A 0"},
			{1035 * ms, 1, "R 0 248ms"},
			{1289 * ms, 1, "A 0"},
			{1541 * ms, 1, "R 0 248ms"},
			{1790 * ms, 1, "A 0"},
			{2040 * ms, 1, "R 0 250ms"},
		})
		timeline(t, newStage(l, rule("r", version(t, 1, "1000/min burst 1001"), nil)), []moment{
			{0, 1, "A 1000"}, {1 * ms, 1, "A 999"}, {2 * ms, 1, "A 998"},
		})
	})
}

// Losant/redis-gcra#3, go-redis/redis_rate#42: half a token was rounded up to one.
func TestC12WaitIsAPromise(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		timeline(t, newStage(l, rule("r", version(t, 1, "6/min"), nil)), []moment{
			{0, 1, "A 5"},
			{0, 1, "A 4"},
			{0, 1, "A 3"},
			{0, 1, "A 2"},
			{0, 1, "A 1"},
			{0, 1, "A 0"},
			{0, 1, "R 0 10s"},
			{5100 * time.Millisecond, 1, "R 0 4.9s"},
			{9900 * time.Millisecond, 1, "R 0 100ms"},
			{10 * time.Second, 1, "A 0"},
		})
	})
}

// 3scale/apisonator#54: the reset shown was that of the year.
func TestC13RefusalByTheMinuteIsNotTheYears(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		for wait, minute := range map[time.Duration]*rules.Version{
			12 * time.Second: version(t, 1, "minute=5/min", "year=100_000/365d"),
			72 * time.Second: sliding(t, 1, "minute=5/min"),
		} {
			if len(minute.Spec.Limits) == 1 {
				minute.Spec.Limits = append(minute.Spec.Limits, sliding(t, 1, "year=100_000/365d").Spec.Limits...)
			}
			s := newStage(l, rule("r", minute, nil))
			if n := s.calls("k", 5); n != 5 {
				t.Fatalf("%d admitted, want 5", n)
			}
			if d := s.call("k"); d.Limit != "minute" || d.Wait != wait {
				t.Errorf("refused by %q for %v, want by the minute for %v", d.Limit, d.Wait, wait)
			}
		}
	})
}

// envoyproxy/gateway#8632, Kuadrant/limitador#64: two limits over one selector did not load, or one went missing.
func TestC17TwoLimitsOverTheSameSelector(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		v := version(t, 1, "second=10/s", "day=250/d")
		v.Spec.Limits[1].Algorithm = rules.SlidingWindow
		s := newStage(l, rule("r", v, nil))
		if n := s.calls("k", 12); n != 10 {
			t.Errorf("%d of 12 admitted in the first second, want 10", n)
		}
		admitted := 10
		for range 24 {
			s.pass(time.Second)
			admitted += s.calls("k", 10)
		}
		s.pass(time.Second)
		d := s.call("k")
		if admitted != 250 || d.Allowed || d.Limit != "day" {
			t.Fatalf("%d admitted in 25 seconds, then %+v; want 250, then a refusal by the day", admitted, d)
		}
		s.pass(d.Wait - time.Second)
		if s.call("k").Allowed {
			t.Error("allowed one second before the wait is over")
		}
		s.pass(time.Second)
		if !s.call("k").Allowed {
			t.Error("refused after the wait")
		}
	})
}

// apache/apisix#187 and others: a changed number waited for the counter to expire, or lost it.
func TestC18ChangedSlidingWindow(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("r", sliding(t, 1, "100/min"), nil))
		s.calls("k", 10)
		s.swap(rule("r", sliding(t, 2, "2/min"), nil))
		if d := s.call("k"); d.Allowed || d.Left != 0 {
			t.Errorf("limit 2 with 10 used: %+v, want a refusal with nothing left", d)
		}
		s.swap(rule("r", sliding(t, 3, "1500/min"), nil))
		s.wantLeft(t, "limit 1500 with 10 used", 1489)
		s.swap(rule("r", sliding(t, 1, "100/min"), nil))
		s.wantLeft(t, "rolled back to 100", 88)
	})
}

// hookaido#239: a push of one rule refilled the buckets of all.
func TestC18PushOfAnotherRuleLosesNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		p := rule("p", version(t, 1, "10/min"), nil)
		s := newStage(l, p, rule("q", version(t, 1, "1000/min"), nil))
		s.calls("k", 10)
		s.swap(p, rule("q", version(t, 2, "2000/min"), nil))
		if d := s.call("k"); d.Allowed || d.Rule != "p" {
			t.Errorf("after the push of q: %+v, want a refusal by p", d)
		}
	})
}

// envoyproxy/envoy#46390: of the would-be refusals, those that an enforced rule shares are marked.
func TestC23WouldBeRefusalsThatAnotherRuleShares(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("enforced", version(t, 1, "3/d"), nil), rule("shadow", nil, version(t, 1, "1/d")))
		var got []string
		for range 5 {
			d := s.call("k")
			shadow := d.Outcomes[1]
			got = append(got, fmt.Sprintf("%v %s %v", d.Allowed, shadow.Outcome, shadow.OtherRefused))
		}
		want := []string{
			"true would_allow false", "true would_refuse false", "true would_refuse false",
			"false would_refuse true", "false would_refuse true",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("allowed, the shadow's outcome, and whether another rule refused (-want +got):\n%s", diff)
		}
	})
}
