package redislimit_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func open(t testing.TB, addr string) *redislimit.Limiter {
	l := redislimit.New(redislimit.Options{Addr: addr, Budget: time.Second})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func client(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	addr := harness.RedisAddr(t)
	limittest.Run(t, func(t *testing.T) limittest.Limiter { return open(t, addr) })
}

// threeRulesFourLimits is a request over three rules with four limits, one of them what-if. A token takes a minute to
// drain, so that the keys are still there to be looked at.
func threeRulesFourLimits() []enforce.Charge {
	charges := []enforce.Charge{
		limittest.Binding(0, limittest.NewCounter(), 1, 100),
		limittest.Binding(1, limittest.NewCounter(), 1, 100),
		limittest.Binding(1, limittest.NewCounter(), 1, 200),
		limittest.Binding(2, limittest.NewCounter(), 1, 100),
	}
	charges[3].WhatIf, charges[3].Decides = true, limittest.NewCounter()
	return charges
}

// nobody records nothing.
type nobody struct{}

func (nobody) Record(string, *enforce.Decision) {}

// A decision over three rules and four limits, a candidate beside one of them, is exactly one EVALSHA.
func TestDecisionIsOneScriptCall(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	c := client(t, server.Addr)
	l := open(t, server.Addr)
	l.StopKeeping() // it asks by itself
	engine := enforce.NewEngine(l, nobody{}, slog.New(slog.DiscardHandler))
	minute := func(names ...string) *rules.Version {
		v := &rules.Version{Number: 1}
		for _, name := range names {
			v.Spec.Limits = append(v.Spec.Limits, rules.Limit{
				Name: name, Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 100, Window: time.Minute, Burst: 100},
			})
		}
		return v
	}
	engine.Swap(rules.NewIndex(rules.Domain{Name: "d"}, []*rules.Rule{
		{Domain: "d", Name: "one", UID: "1", Stable: minute("")},
		{Domain: "d", Name: "two", UID: "2", Stable: minute("burst", "sustained")},
		{Domain: "d", Name: "three", UID: "3", Stable: minute(""), Candidate: minute("")},
	}))
	req := &rules.Request{Domain: "d", Method: "GET", Path: "/"}
	engine.Decide(t.Context(), req) // loads the script
	if err := c.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if d := engine.Decide(t.Context(), req); !d.Allowed || len(d.Outcomes) != 4 {
		t.Fatalf("got %+v, want allowed with the outcomes of four versions", d)
	}
	stats, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stats, "cmdstat_evalsha:calls=1,") {
		t.Errorf("one decision is not one EVALSHA:\n%s", stats)
	}
	// What the script calls is counted too: TIME, MGET and SET. Nothing else may appear beside this test's own commands.
	for line := range strings.Lines(stats) {
		command, _, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		switch strings.TrimSpace(command) {
		case "# Commandstats", "", "evalsha", "time", "mget", "set", "config|resetstat", "hello", "client|setinfo", "script|load", "info":
		default:
			t.Errorf("a decision used %s", line)
		}
	}
}

func TestKeysHaveAFixedFormAndAlwaysExpire(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	l, c := open(t, server.Addr), client(t, server.Addr)
	if _, err := l.Decide(t.Context(), threeRulesFourLimits()); err != nil {
		t.Fatal(err)
	}
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 5 {
		t.Errorf("%d keys, want 5: four actual counters and a what-if one", len(keys))
	}
	for _, key := range keys {
		if len(key) != 50 || !strings.HasPrefix(key, "hg:{") || key[26:28] != "}:" {
			t.Errorf("key %q is not hg:{tag}:id with 22 characters each", key)
		}
		if ttl := c.PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("key %q has the lifetime %v", key, ttl)
		}
		if size := c.MemoryUsage(t.Context(), key).Val(); size > 136 {
			t.Errorf("key %q uses %d bytes, want at most 136", key, size)
		}
	}
}

// brandur/redis-cell#50: a lifetime was rounded down to nothing (CASES C10 c).
func TestC10LifetimesAreRoundedUp(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	l, c := open(t, server.Addr), client(t, server.Addr)
	charge := limittest.Binding(0, limittest.NewCounter(), 1_000_000, 1_000_000)
	charge.Tick, charge.Limit.Window = time.Microsecond, 1_000_000 // a token drains each microsecond
	// The instant is given, so that the key is still there to be looked at.
	if _, err := l.DecideAt(t.Context(), limittest.Start, []enforce.Charge{charge}); err != nil {
		t.Fatal(err)
	}
	keys := c.Keys(t.Context(), "*").Val()
	if len(keys) != 1 {
		t.Fatalf("keys %q, want one", keys)
	}
	if ttl := c.PTTL(t.Context(), keys[0]).Val(); ttl <= 0 {
		t.Errorf("lifetime %v, want a positive one", ttl)
	}
}

// Redis forgets scripts when it restarts; counters are lost with it, decisions are not.
func TestScriptIsLoadedAgainAfterRestart(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	l := open(t, server.Addr)
	charges := threeRulesFourLimits()
	if _, err := l.Decide(t.Context(), charges); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if _, err := l.Decide(t.Context(), charges); err == nil {
		t.Error("a decision without Redis succeeded")
	}
	server.Restart()
	harness.Eventually(t, 10*time.Second, func() error {
		v, err := l.Decide(t.Context(), charges)
		if err == nil && v[0].Left != 99 {
			err = fmt.Errorf("left %d, want 99 of an empty Redis", v[0].Left)
		}
		return err
	})
}

// A Redis that hangs is an error once the budget is spent, not a wait.
func TestC20BudgetBoundsAHungRedis(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	l := redislimit.New(redislimit.Options{Addr: server.Addr, Budget: 50 * time.Millisecond})
	t.Cleanup(func() { _ = l.Close() })
	server.Pause()
	defer server.Resume()
	done := make(chan error, 1)
	go func() {
		_, err := l.Decide(t.Context(), threeRulesFourLimits())
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a decision of a hung Redis succeeded")
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer after 10 s with a budget of 50 ms")
	}
}
