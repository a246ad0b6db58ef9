package redislimit_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/test/harness"
)

// patience bounds waits for what is expected within seconds.
const patience = 30 * time.Second

// outage is a limiter with the usual budget before a Redis that can fail.
type outage struct {
	server *harness.RedisServer
	link   *harness.Link
	*redislimit.Limiter
	changes chan bool // as it tells them
}

// setupOutage starts a Redis, has it do a command, if any, and a limiter.
func setupOutage(t *testing.T, o redislimit.Options, before ...any) *outage {
	t.Helper()
	s := &outage{server: harness.Redis(t), changes: make(chan bool, 100)}
	if len(before) > 0 {
		s.config(t, before...)
	}
	s.link = harness.NewLink(t, s.server.Addr)
	o.Addr = s.link.Addr
	s.Limiter = redislimit.New(o)
	t.Cleanup(func() { _ = s.Close() })
	s.Watch(func(up bool, cause error) {
		if !up && cause == nil {
			t.Error("an outage has no cause")
		}
		s.changes <- up
	})
	return s
}

func (s *outage) call(ctx context.Context) error {
	_, err := s.Decide(ctx, []enforce.Charge{limittest.Binding(0, limittest.NewCounter(), 100, 100)})
	return err
}

// until waits for the next change that is told, and calls meanwhile.
func (s *outage) until(t *testing.T, up bool) {
	t.Helper()
	harness.Eventually(t, patience, func() error {
		_ = s.call(t.Context())
		select {
		case got := <-s.changes:
			if got != up {
				t.Errorf("told that the store is up: %v, want %v", got, up)
			}
			return nil
		default:
			return fmt.Errorf("not told that the store is up: %v", up)
		}
	})
}

func (s *outage) config(t *testing.T, args ...any) {
	t.Helper()
	if err := client(t, s.server.Addr).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// In each way in which Redis can fail, a few calls find out, the others cost nothing, and it is asked again soon after it
// is back.
func TestC20OutageCostsNothingOnceTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ begin, end func(*testing.T, *outage) }{
		"refused": {
			func(_ *testing.T, s *outage) { s.server.Kill() },
			func(_ *testing.T, s *outage) { s.server.Restart() },
		},
		"hung": {
			func(_ *testing.T, s *outage) { s.server.Pause() },
			func(_ *testing.T, s *outage) { s.server.Resume() },
		},
		"black-holed": {
			func(_ *testing.T, s *outage) { s.link.Swallow() },
			func(_ *testing.T, s *outage) { s.link.Mend() },
		},
		"slow": {
			func(_ *testing.T, s *outage) { s.link.Delay(200 * time.Millisecond) },
			func(_ *testing.T, s *outage) { s.link.Mend() },
		},
		"out of memory": {
			func(t *testing.T, s *outage) { s.config(t, "config", "set", "maxmemory", "1") },
			func(t *testing.T, s *outage) { s.config(t, "config", "set", "maxmemory", "0") },
		},
		"a replica": {
			func(t *testing.T, s *outage) { s.config(t, "replicaof", "127.0.0.1", "1") },
			func(t *testing.T, s *outage) { s.config(t, "replicaof", "no", "one") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setupOutage(t, redislimit.Options{})
			harness.Eventually(t, patience, func() error { return s.call(t.Context()) })
			fault.begin(t, s)
			s.until(t, false)
			took := make([]time.Duration, 10_000)
			for i := range took {
				begun := time.Now()
				if err := s.call(t.Context()); err == nil {
					t.Fatal("a call passes during the outage")
				}
				took[i] = time.Since(begun)
			}
			slices.Sort(took)
			t.Logf("during the outage: p50 %v, p99 %v, longest %v", took[5_000], took[9_900], took[9_999])
			if took[9_900] > 100*time.Millisecond {
				t.Errorf("one call in a hundred takes %v or more: it waits for the store", took[9_900])
			}
			fault.end(t, s)
			s.until(t, true)
			harness.Eventually(t, patience, func() error { return s.call(t.Context()) })
		})
	}
}

// Nobody calls, and yet the limiter knows.
func TestIdleLimiterNoticesAnOutageAndItsEnd(t *testing.T) {
	t.Parallel()
	s := setupOutage(t, redislimit.Options{})
	for _, up := range []bool{false, true} {
		if up {
			s.server.Resume()
		} else {
			s.server.Pause()
		}
		select {
		case got := <-s.changes:
			if got != up {
				t.Errorf("told that the store is up: %v, want %v", got, up)
			}
		case <-time.After(patience):
			t.Fatalf("not told within %v that the store is up: %v", patience, up)
		}
	}
}

func TestLimiterStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	addr := harness.FreeAddr(t)
	l := redislimit.New(redislimit.Options{Addr: addr})
	t.Cleanup(func() { _ = l.Close() })
	if _, err := l.Decide(t.Context(), threeRulesFourLimits()); err == nil {
		t.Error("a decision without Redis succeeded")
	}
}

// A Redis that comes back empty is one fresh budget, no more: nothing is counted twice or remembered elsewhere.
func TestEmptyRedisGivesOneFreshBudget(t *testing.T) {
	t.Parallel()
	s := setupOutage(t, redislimit.Options{Budget: time.Second})
	charges := []enforce.Charge{limittest.Binding(0, limittest.NewCounter(), 3, 3)}
	admitted := func() (n int) {
		for range 5 {
			v, err := s.Decide(t.Context(), charges)
			if err != nil {
				t.Fatal(err)
			}
			if v[0].Fits {
				n++
			}
		}
		return n
	}
	before := admitted()
	s.server.Kill()
	s.until(t, false)
	s.server.Restart()
	s.until(t, true)
	if after := admitted(); before != 3 || after != 3 {
		t.Errorf("%d of 5 calls admitted before and %d after, want the 3 of one budget each time", before, after)
	}
}

func TestDegradedDecisionsAreCountedByReason(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := setupOutage(t, redislimit.Options{Registerer: reg})
	harness.Eventually(t, patience, func() error { return s.call(t.Context()) })
	s.server.Pause()
	s.until(t, false)
	for range 10 {
		_ = s.call(t.Context())
	}
	sums := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + strings.Replace(l.GetValue(), s.link.Addr, "ADDR", 1)
			}
			sums[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if n := sums["headgate_degraded_decisions_total timeout"]; n < 1 {
		t.Errorf("no timeout is counted: %v", sums)
	}
	if n := sums["headgate_degraded_decisions_total breaker"]; n < 1 {
		t.Errorf("no decision is counted that the breaker refused: %v", sums)
	}
	if n := sums["headgate_store_breaker_state ADDR"]; n < 1 {
		t.Errorf("the breaker is said to be closed: %v", sums)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func TestEvictingPolicyIsWarnedAboutOnceAndTold(t *testing.T) {
	t.Parallel()
	log, reg := &lines{}, prometheus.NewRegistry()
	o := redislimit.Options{Budget: time.Second, Log: slog.New(slog.NewTextHandler(log, nil)), Registerer: reg}
	s := setupOutage(t, o, "config", "set", "maxmemory-policy", "allkeys-lru")
	if n := len(policies(t, reg)); n != 10 {
		t.Errorf("%d series from the start, want one for each policy", n)
	}
	warned := func(policy string) {
		t.Helper()
		harness.Eventually(t, patience, func() error {
			if n := log.count("policy=" + policy); n != 1 {
				return fmt.Errorf("warned of %s %d times, want once", policy, n)
			}
			return nil
		})
	}
	told := func(policy string) {
		t.Helper()
		harness.Eventually(t, patience, func() error {
			for p, v := range policies(t, reg) {
				if want := p == policy; (v == 1) != want {
					return fmt.Errorf("the metric of %s is %v, where Redis has %s", p, v, policy)
				}
			}
			return nil
		})
	}
	change := func(policy string) {
		t.Helper()
		s.config(t, "config", "set", "maxmemory-policy", policy)
		s.server.Pause()
		s.until(t, false)
		s.server.Resume() // after an outage it is looked at again
		s.until(t, true)
		told(policy)
	}
	warned("allkeys-lru")
	told("allkeys-lru")
	change("volatile-lru")
	warned("volatile-lru")
	warned("allkeys-lru")
	change("noeviction")
	if n := log.count("policy=noeviction"); n != 0 {
		t.Errorf("warned of noeviction %d times", n)
	}
}

// A user that may not ask for the policy is told so by the metric.
func TestPolicyThatCannotBeAskedIsUnknown(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	if err := client(t, server.Addr).Do(t.Context(), "acl", "setuser", "gate", "on", ">word", "~hg:*", "+@all", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	l := redislimit.New(redislimit.Options{Addr: server.Addr, Username: "gate", Password: "word", Registerer: reg})
	t.Cleanup(func() { _ = l.Close() })
	harness.Eventually(t, patience, func() error {
		stats, err := client(t, server.Addr).Info(t.Context(), "commandstats").Result()
		if err == nil && !regexp.MustCompile(`cmdstat_info:.*rejected_calls=[1-9]`).MatchString(stats) {
			err = errors.New("nobody was refused an INFO yet")
		}
		return err
	})
	if v := policies(t, reg)["unknown"]; v != 1 {
		t.Errorf("the metric of an unknown policy is %v, want 1", v)
	}
}

// policies returns the series of headgate_store_maxmemory_policy.
func policies(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "headgate_store_maxmemory_policy" {
				values[m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return values
}

// The dialer logs in and chooses the database, so that a new connection costs a decision nothing.
func TestConnectionsAreSetUpByTheDialer(t *testing.T) {
	t.Parallel()
	server := harness.Redis(t)
	admin := client(t, server.Addr)
	if err := admin.Do(t.Context(), "acl", "setuser", "gate", "on", ">secret-word", "~hg:*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	l := redislimit.New(redislimit.Options{Addr: server.Addr, Username: "gate", Password: "secret-word", DB: 3, Budget: time.Second})
	t.Cleanup(func() { _ = l.Close() })
	if _, err := l.Decide(t.Context(), threeRulesFourLimits()); err != nil {
		t.Fatal(err)
	}
	info, err := admin.Info(t.Context(), "keyspace").Result()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(info, "db3:keys=5") || strings.Contains(info, "db0:") {
		t.Errorf("counters are not in database 3:\n%s", info)
	}
	wrong := redislimit.New(redislimit.Options{Addr: server.Addr, Username: "gate", Password: "other-word", Budget: time.Second})
	t.Cleanup(func() { _ = wrong.Close() })
	_, err = wrong.Decide(t.Context(), threeRulesFourLimits())
	if err == nil || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "other-word") {
		t.Errorf("with a wrong password: %v, want what Redis says, without the password", err)
	}
}

// A certificate is checked against the host of the address.
func TestDecisionOverTLS(t *testing.T) {
	t.Parallel()
	redis := harness.RedisAddr(t)
	certified := httptest.NewTLSServer(nil) // lends its certificate, of 127.0.0.1
	t.Cleanup(certified.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			encrypted, err := listener.Accept()
			if err != nil {
				return
			}
			plain, err := net.Dial("tcp", redis)
			if err != nil {
				_ = encrypted.Close()
				continue
			}
			go func() { _, _ = io.Copy(plain, encrypted); _ = plain.Close() }()
			go func() { _, _ = io.Copy(encrypted, plain); _ = encrypted.Close() }()
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	for name, want := range map[string]struct {
		roots *x509.CertPool
		ok    bool
	}{"known": {roots, true}, "unknown": {x509.NewCertPool(), false}} {
		l := redislimit.New(redislimit.Options{
			Addr: listener.Addr().String(), TLS: &tls.Config{RootCAs: want.roots, MinVersion: tls.VersionTLS12}, Budget: time.Second,
		})
		if _, err := l.Decide(t.Context(), threeRulesFourLimits()); (err == nil) != want.ok {
			t.Errorf("%s authority: %v, want a decision: %v", name, err, want.ok)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
