package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/test/harness"
)

const outageRules = `
apiVersion: headgate/v1
kind: RuleSet
domain: d
rules:
  - {name: open, match: {path: /open}, key: [ip], limit: 1_000_000/h}
  - {name: closed, match: {path: /closed}, key: [ip], limit: 1_000_000/h, failure: closed}
  - {name: local, match: {path: /local}, key: [ip], limit: 1_000_000/h, failure: local 5/d}
`

// envoyproxy/ratelimit#462, #978, Kong/kong#2382: without its store a limiter took seconds for each call though failing
// open, grew, or answered 500. Here with the budget of 5 ms that sidecars have by default.
func TestC20OutageOfRedis(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ begin, end func(*harness.RedisServer) }{
		"hung":   {(*harness.RedisServer).Pause, (*harness.RedisServer).Resume},
		"killed": {(*harness.RedisServer).Kill, (*harness.RedisServer).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.redisFailed = true
			c := s.sidecar("one", "d", "--store-budget", "5ms")
			s.apply(outageRules)
			for _, rule := range []string{"open", "closed", "local"} {
				s.must("promote", "d/"+rule, "--to", "100%", "--wait")
			}
			c.storeAnswers(t)
			fault.begin(s.redis)
			harness.Eventually(t, patience, func() error {
				if got := c.call(http.MethodGet, "/open", "192.0.2.1").status; got != http.StatusOK {
					t.Errorf("%d of a rule that fails open, want 200", got)
				}
				if c.gauge("headgate_store_up") != 0 {
					return fmt.Errorf("the store is said to be up")
				}
				return nil
			})
			duringOutage(t, c)
			fault.end(s.redis)
			c.storeAnswers(t)
			if n := c.gauge("headgate_store_up"); n != 1 {
				t.Errorf("headgate_store_up is %v after the outage, want 1", n)
			}
		})
	}
}

// storeAnswers waits until decisions are made by Redis.
func (c *sidecar) storeAnswers(t *testing.T) {
	t.Helper()
	harness.Eventually(t, patience, func() error {
		if got := c.call(http.MethodGet, "/closed", "192.0.2.1").status; got != http.StatusOK {
			return fmt.Errorf("%d of a rule that fails closed, want 200", got)
		}
		if c.gauge("headgate_store_up") != 1 {
			return fmt.Errorf("the store is said to be away")
		}
		return nil
	})
}

func (c *sidecar) gauge(name string) (value float64) {
	c.system.t.Helper()
	c.metric(name, func(_ map[string]string, m *dto.Metric) { value = m.GetGauge().GetValue() })
	return value
}

func duringOutage(t *testing.T, c *sidecar) {
	t.Helper()
	c.burst(t, 1_000) // what a sidecar under way needs
	goroutines, heap := c.gauge("go_goroutines"), c.gauge("go_memstats_heap_sys_bytes")
	took := c.burst(t, 10_000)
	t.Logf("10,000 calls: p50 %v, p99 %v, longest %v", took[5_000], took[9_900], took[9_999])
	if took[9_900] > time.Second {
		t.Errorf("one call in a hundred takes %v or more: it waits for the store", took[9_900])
	}
	more := c.gauge("go_goroutines") - goroutines
	grown := c.gauge("go_memstats_heap_sys_bytes") - heap
	t.Logf("goroutines %+.0f on %.0f, heap %+.1f MB", more, goroutines, grown/(1<<20))
	if more > 50 || grown > 32<<20 {
		t.Errorf("10,000 calls left %.0f goroutines and %.0f bytes more", more, grown)
	}
	if got := c.call(http.MethodGet, "/closed", "192.0.2.1"); got.status != http.StatusServiceUnavailable || got.retryAfter == "" {
		t.Errorf("%+v of a rule that fails closed, want 503 with Retry-After", got)
	}
	local := map[int]int{}
	for range 7 {
		local[c.call(http.MethodGet, "/local", "192.0.2.1").status]++
	}
	if want := map[int]int{http.StatusOK: 5, http.StatusTooManyRequests: 2}; !maps.Equal(local, want) {
		t.Errorf("statuses %v of a rule with a local limit of 5, want %v", local, want)
	}
	if got := c.outcomes("open"); got["failed_open"] < 11_000 || got["failed_closed"] != 0 {
		t.Errorf("outcomes %v, want 11,000 that failed open", got)
	}
}

// burst sends calls of several clients at once, all of which must pass, and returns their times in order.
func (c *sidecar) burst(t *testing.T, calls int) []time.Duration {
	t.Helper()
	const clients = 4
	took := make([]time.Duration, calls)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := client; i < calls; i += clients {
				begun := time.Now()
				if got := c.call(http.MethodGet, "/open", fmt.Sprintf("192.0.2.%d", client+1)).status; got != http.StatusOK {
					t.Errorf("call %d: %d of a rule that fails open, want 200", i, got)
				}
				took[i] = time.Since(begun)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}
