package answer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/answer"
	"github.com/headgate/headgate/rules"
)

// drawRules draws up to three rules with up to three limits, that tell callers about them.
func drawRules(t *rapid.T) []*rules.Rule {
	limit := func(name string) rules.Limit {
		l := rules.Limit{Name: name, Algorithm: rapid.SampledFrom([]rules.Algorithm{rules.TokenBucket, rules.SlidingWindow}).Draw(t, "algorithm")}
		l.Rate.Window = rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, time.Minute, 3 * time.Hour}).Draw(t, "window")
		l.Rate.Amount = rapid.Int64Range(0, 9).Draw(t, "amount")
		l.Rate.Burst = l.Rate.Amount
		if l.Algorithm == rules.TokenBucket && l.Rate.Amount > 0 {
			l.Rate.Burst = rapid.Int64Range(1, 12).Draw(t, "burst")
		}
		return l
	}
	var list []*rules.Rule
	for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
		var spec rules.Spec
		names := rapid.SampledFrom([][]string{{""}, {""}, {"one", "two"}, {"one", "two", "three"}}).Draw(t, "limits")
		for _, name := range names {
			spec.Limits = append(spec.Limits, limit(name))
		}
		spec.Cost = []rules.Cost{{Cost: rapid.Int64Range(1, 3).Draw(t, "cost")}}
		spec.Response.Headers = rapid.SampledFrom([]rules.Headers{rules.HeadersStandard, rules.HeadersBoth}).Draw(t, "headers")
		name := fmt.Sprintf("rule-%d", i)
		list = append(list, &rules.Rule{Domain: "d", Name: name, UID: name, Stable: &rules.Version{Number: 1, Spec: spec}})
	}
	return list
}

// calls plays generated calls, some time apart.
func calls(t *rapid.T, w *world, each func(hits int64, d enforce.Decision)) {
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		w.pass(rapid.SampledFrom([]time.Duration{
			0, 0, 0, time.Microsecond, 333 * time.Millisecond, time.Second, 2500 * time.Millisecond, 40 * time.Second, time.Hour,
		}).Draw(t, "after"))
		hits := rapid.Int64Range(1, 3).Draw(t, "hits")
		each(hits, w.call(hits))
	}
}

// Repeating a refused call after Retry-After, with no other traffic, passes; one second earlier it does not. Where there
// is no Retry-After, no wait makes it pass.
func TestRetryAfterIsAPromise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(drawRules(rt)...)
		calls(rt, w, func(hits int64, d enforce.Decision) {
			if d.Allowed {
				return
			}
			is, limited := read(t, &d)
			if !limited || is.T != is.RetryAfter {
				rt.Fatalf("refused by %s/%s, and told %+v: want t as in Retry-After", d.Rule, d.Limit, is)
			}
			if is.RetryAfter == -1 {
				was := w.now
				w.pass(300 * 24 * time.Hour)
				if w.call(hits).Allowed {
					rt.Fatalf("no Retry-After, and the call passes later: %+v", d)
				}
				w.now = was
				return
			}
			w.pass(time.Duration(is.RetryAfter-1) * time.Second)
			if w.call(hits).Allowed {
				rt.Fatalf("Retry-After: %d, and the call passes a second earlier: %+v", is.RetryAfter, d)
			}
			w.pass(time.Second)
			if again := w.call(hits); !again.Allowed {
				rt.Fatalf("Retry-After: %d, and the call does not pass then: %+v", is.RetryAfter, again)
			}
		})
	})
}

// An allowed call is told the limit with the fewest left, how many, and in how many seconds there are more.
func TestAllowedIsToldWhenMoreIsLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := drawRules(rt)[0]
		r.Stable.Spec.Limits = r.Stable.Spec.Limits[:1]
		w := newWorld(r)
		limit := r.Stable.Spec.Limits[0]
		calls(rt, w, func(_ int64, d enforce.Decision) {
			if !d.Allowed {
				return
			}
			is, _ := read(t, &d)
			want := told{
				Policy: enforce.PolicyName(r.Name, limit.Name), Q: limit.Rate.Amount, W: int64(limit.Rate.Window / time.Second),
				R: d.Left, T: is.T, RetryAfter: -1,
			}
			if limit.Rate.Burst != limit.Rate.Amount {
				want.Burst = limit.Rate.Burst
			}
			if diff := cmp.Diff(want, is); diff != "" {
				rt.Fatalf("headers (-want +got):\n%s", diff)
			}
			if is.T < 1 { // what was spent comes back
				rt.Fatalf("spent, and told t=%d", is.T)
			}
			w.pass(time.Duration(is.T-1) * time.Second)
			if d := w.call(0); d.Left > is.R && is.T > 1 {
				rt.Fatalf("told r=%d;t=%d, and %d are left a second earlier", is.R, is.T, d.Left)
			}
			w.pass(time.Second)
			if d := w.call(0); d.Left <= is.R {
				rt.Fatalf("told r=%d;t=%d, and %d are left then", is.R, is.T, d.Left)
			}
		})
	})
}

// Losant/redis-gcra#3: told 10 s, a call passed at 5 s.
func TestC12RetryAfterIsAPromiseAndNotHalfOfOne(t *testing.T) {
	t.Parallel()
	w := newWorld(rule(t, "r", "6/min"))
	for left := int64(5); left >= 0; left-- {
		d := w.call(1)
		if is, _ := read(t, &d); !d.Allowed || is.R != left {
			t.Errorf("allowed %v with %d left, want %d left", d.Allowed, is.R, left)
		}
	}
	var at time.Duration
	for _, m := range []struct {
		at   time.Duration
		want int64 // Retry-After; -1 passes
	}{{0, 10}, {5100 * time.Millisecond, 5}, {9900 * time.Millisecond, 1}, {10 * time.Second, -1}} {
		w.pass(m.at - at)
		at = m.at
		d := w.call(1)
		if is, _ := read(t, &d); is.RetryAfter != m.want || d.Allowed != (m.want == -1) {
			t.Errorf("at %v: allowed %v, Retry-After %d; want %d", m.at, d.Allowed, is.RetryAfter, m.want)
		}
	}
}

// agentgateway/agentgateway#3328: refused by an hourly budget, and told of the minute's 56 left and 12 s to go.
func TestC13RefusalDescribesTheLimitThatRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(rule(t, "r", "minute=60/min", "budget=~64/h"))
	for range 60 {
		w.call(1)
	}
	w.pass(10 * time.Minute)
	for left := int64(3); left >= 0; left-- {
		d := w.call(1)
		if is, _ := read(t, &d); is.Policy != "r/budget" || is.R != left {
			t.Errorf("told %+v, want the budget's %d, the fewest left", is, left)
		}
	}
	d := w.call(1)
	is, _ := read(t, &d)
	// 3,000 s until the hour ends, and 1/64 of the next for one of its 64 to leave the sliding window.
	want := told{Policy: "r/budget", Q: 64, W: 3600, R: 0, T: 3057, RetryAfter: 3057}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

// Of limits with as many left, the one that is longer without more speaks.
func TestOfTheFewestLeftTheLongerWaitSpeaks(t *testing.T) {
	t.Parallel()
	d := newWorld(rule(t, "r", "a-second=5/s", "day=5/d", "minute=5/min")).call(1)
	if is, _ := read(t, &d); is.Policy != "r/day" || is.T != 17280 {
		t.Errorf("told %+v, want the day's, with more after 24 h / 5", is)
	}
}

func TestHeadersAreThoseOfTheRule(t *testing.T) {
	t.Parallel()
	standard := []answer.Field{{"RateLimit-Policy", `"r";q=2;w=60;headgate-burst=3`}, {"RateLimit", `"r";r=0;t=30`}}
	legacy := []answer.Field{{"X-RateLimit-Limit", "2"}, {"X-RateLimit-Remaining", "0"}, {"X-RateLimit-Reset", "30"}}
	retry := answer.Field{"Retry-After", "30"}
	for headers, want := range map[rules.Headers]struct{ allowed, refused []answer.Field }{
		rules.HeadersStandard: {standard, append([]answer.Field{retry}, standard...)},
		rules.HeadersLegacy:   {legacy, append([]answer.Field{retry}, legacy...)},
		rules.HeadersBoth:     {append(standard[:2:2], legacy...), append([]answer.Field{retry}, append(standard[:2:2], legacy...)...)},
		rules.HeadersNone:     {nil, nil},
	} {
		r := rule(t, "r", "2/min burst 3")
		r.Stable.Spec.Response.Headers = headers
		w := newWorld(r)
		for range 2 {
			w.call(1)
		}
		allowed, refused := w.call(1), w.call(1)
		if diff := cmp.Diff(want.allowed, answer.Fields(nil, &allowed)); diff != "" {
			t.Errorf("%q, allowed (-want +got):\n%s", headers, diff)
		}
		if diff := cmp.Diff(want.refused, answer.Fields(nil, &refused)); diff != "" {
			t.Errorf("%q, refused (-want +got):\n%s", headers, diff)
		}
	}
}

func TestNothingIsToldWhereNoLimitSpeaks(t *testing.T) {
	t.Parallel()
	open := rule(t, "open", "2/min")
	w := newWorld(open)
	w.down = true
	failedOpen := w.call(1)
	unlimited := newWorld(rule(t, "free", "unlimited")).call(1)
	unmatched := newWorld().call(1)
	for _, d := range []enforce.Decision{failedOpen, unlimited, unmatched} {
		if got := answer.Fields(nil, &d); !d.Allowed || got != nil {
			t.Errorf("allowed %v, told %v", d.Allowed, got)
		}
	}
}

// A full limit has no more to come.
func TestLookAtAFullLimitHasNoTime(t *testing.T) {
	t.Parallel()
	d := newWorld(rule(t, "r", "6/min")).call(0)
	if is, _ := read(t, &d); is.R != 6 || is.T != -1 {
		t.Errorf("told %+v, want r=6 without t", is)
	}
}
