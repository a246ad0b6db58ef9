package redislimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/test/harness"
)

// fault is one mistake in decide.lua, made by replacing text that must stand there exactly once.
type fault struct {
	name, right, wrong string
}

// faults are mistakes that were made in such scripts before, or are easy to make in this one.
var faults = []fault{
	// The arithmetic of the token bucket.
	{"a bucket is empty a tick early", "return ceil(s / max(1, c.amount))", "return floor(s / max(1, c.amount))"},
	{"an amount of 0 forgets what other plans spent", "return ceil(s / max(1, c.amount))", "return c.amount == 0 and 0 or ceil(s / c.amount)"},
	{"a begun token is left over", "return floor(max(0, c.burst * c.window - used", "return ceil(max(0, c.burst * c.window - used"},
	{"the level is not cut to the ceiling", "  s = min(s, ceiling * c.window)\n", ""},
	{"the level is cut to the burst of one plan", "  s = min(s, ceiling * c.window)\n", "  s = min(s, c.burst * c.window)\n"},
	{"what both sides of a cohort spend is cut to the owner's ceiling", "before[c.actual], time[c.actual], c.keep)", "before[c.actual], time[c.actual])"},
	{"half a token counts as one", "t - c.now + ceil((s + c.cost", "t - c.now + floor(0.5 + (s + c.cost"},
	{"what is given back makes room beyond empty", "return max(0, min(s + max(min(c.cost", "return (min(s + max(min(c.cost"},
	{"giving back needs room", "(c.cost < 0 or used", "(used"},
	{"an amount of 0 has something left", "  if c.amount == 0 then return 0 end\n  return floor(max", "  return floor(max"},
	{"a cost above the capacity drains", "and c.cost <= c.burst\n    and (c.cost < 0 or ", "and (c.cost < 0 or c.cost > c.burst or "},
	{"a cost above the capacity is told to wait", "or c.cost > c.burst then return -1", "then return -1"},
	{"the level is rounded to tokens", "return max(0, min(s + max(min(c.cost", "return max(0, min(floor(s / c.window) * c.window + max(min(c.cost"},
	// That of the sliding window.
	{"the window before counts a tick less", "b * (c.window - t % c.window)", "b * (c.window - t % c.window - 1)"},
	{"the wait is a tick short", "c.window - floor(room * c.window / previous)", "c.window - ceil(room * c.window / previous)"},
	{"the window before is forgotten", "s, b = 0, s", "s, b = 0, 0"},
	{"only the last window's count is cut to the ceiling", "s, b = min(s, ceiling), min(b, ceiling)", "s = min(s, ceiling)"},
	{"the wait ends with the window", "return start + c.window + passed(c, s, c.amount - c.cost) - c.now", "return start + c.window - c.now"},
	// The clock.
	{"time runs backwards", "local at = max(c.now, t)", "local at = c.now"},
	{"a state one window ahead is stale", "t > c.now + c.window", "t >= c.now + c.window"},
	{"a state from another clock is kept", "if t > c.now + c.window then return 0, 0, c.now, 1 end", ""},
	{"the server's clock is read in milliseconds", "t[1] * 1000000 + t[2]", "t[1] * 1000 + t[2] / 1000"},
	// Who is charged for what.
	{"a refused request is charged", "local admitted = refusals == 0", "local admitted = true"},
	{"limits that refuse are counted, not rules", "if not c.whatif and not refusing[c.rule] then", "if not c.whatif then"},
	{"a version is judged by each limit alone", "unfit[c.version] = true", "unfit[i] = true"},
	{"a what-if version refuses", "if not c.whatif and not refusing[c.rule] then", "if not refusing[c.rule] then"},
	{"a what-if version is charged although another rule refuses", " and (refusals == 0 or refusals == 1 and refusing[c.rule])", ""},
	{"a what-if version is not charged where its own rule refuses", "or refusals == 1 and refusing[c.rule])", ")"},
	{"the first copy is not kept when refused", " or (c.first and spent[c.actual])", ""},
	{"a what-if counter starts empty", "c.first, c.from = true, c.actual", "c.first = true"},
	{"the binding version owns, whoever decides by the counter", "owns = flags % 4 >= 2", "owns = flags % 2 == 0"},
	{"what is left is told from before the call", "if c.decides == c.actual then tell(i, c, spend(c, c.s), c.b, c.t) end", ""},
	{"more is told to be left at once", "c.cost = than + 1", "c.cost = than"},
	// Lifetimes.
	{"lifetimes are rounded down", "ceil(ticks * c.tick / 1000)", "floor(ticks * c.tick / 1000)"},
	{"lifetimes are of the owner's numbers only", "expiry(reader, s, b, t)", "expiry(c, s, b, t)"},
	{"a what-if counter does not outlive its copy", "max(expiry(c, s, b, t), expiry(c, actualS, actualB, actualT))", "expiry(c, s, b, t)"},
	{"a what-if counter that is kept on is settled", "if not taken then", "if false then"},
	{"a what-if counter is not kept on", "if taken or admitted or", "if taken or"},
	{"a sliding count lives for its own window only", "return start + 2 * c.window - c.now", "return start + c.window - c.now"},
	{"a lifetime above the ceiling", "  s = min(s, c.ceiling * c.window)\n  if s == 0", "  if s == 0"},
	{"a lifetime of nothing", "max(1, ceil(ticks", "max(0, ceil(ticks"},
	// Memory.
	{"an error beside what binds voids the answer", "set(redis.pcall, ", "set(redis.call, "},
}

// budget is how many generated sequences a fault may survive. Most are caught in the first ten.
const budget = 2_500

func TestEachSeededFaultIsCaught(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if n := strings.Count(decideLua, f.right); n != 1 {
				t.Fatalf("decide.lua has %d times, want once:\n%s", n, f.right)
			}
			server := harness.Redis(t)
			l := New(Options{Addr: server.Addr, Budget: 10 * time.Second})
			t.Cleanup(func() { _ = l.Close() })
			l.script = redis.NewScript(strings.Replace(decideLua, f.right, f.wrong, 1))
			if err := l.script.Load(t.Context(), l.client).Err(); err != nil {
				t.Fatalf("this is no script, so nothing is proved: %v", err)
			}
			err := outOfMemory(t.Context(), l)
			if err == nil {
				err = limittest.Check(t.Context(), l, budget)
			}
			if err == nil {
				t.Fatalf("the suite takes this fault for right:\n%s", f.wrong)
			}
			t.Logf("caught by %v", err)
		})
	}
}

func TestOutOfMemoryVoidsNoBindingVerdict(t *testing.T) {
	t.Parallel()
	l := New(Options{Addr: harness.Redis(t).Addr, Budget: 10 * time.Second})
	t.Cleanup(func() { _ = l.Close() })
	if err := outOfMemory(t.Context(), l); err != nil {
		t.Error(err)
	}
}

// outOfMemory lets Redis run out of memory, where a refusal writes nothing but a what-if counter: the refusal must stand.
// An admission that cannot be written is an error, and the failure mode decides.
func outOfMemory(ctx context.Context, l *Limiter) error {
	stable := limittest.Binding(0, limittest.NewCounter(), 1, 1)
	candidate := limittest.Binding(0, stable.Actual, 10, 10)
	candidate.Version, candidate.WhatIf, candidate.Owns, candidate.Decides = 1, true, false, limittest.NewCounter()
	charges := []enforce.Charge{stable, candidate}
	if _, err := l.DecideAt(ctx, limittest.Start, charges); err != nil {
		return err
	}
	if err := l.client.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		return err
	}
	v, err := l.DecideAt(ctx, limittest.Start, charges)
	if err != nil {
		return fmt.Errorf("a refusal without memory: %w", err)
	}
	if v[0].Fits || !v[1].Fits || v[0].Wait != time.Minute {
		return fmt.Errorf("without memory: got %+v, want the stable refused for a minute, the candidate not", v)
	}
	if _, err = l.DecideAt(ctx, limittest.Start, []enforce.Charge{limittest.Binding(0, limittest.NewCounter(), 1, 1)}); err == nil {
		return errors.New("an admission that could not be written is no error")
	}
	return l.client.ConfigSet(ctx, "maxmemory", "0").Err()
}
