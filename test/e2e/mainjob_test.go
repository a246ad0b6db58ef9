package e2e_test

import (
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/test/harness"
)

// Nothing drains within the test: 5 a day give a token back every five hours.
const mainJobRules = `
apiVersion: headgate/v1
kind: RuleSet
domain: public
rules:
  - name: by-address
    key: [ip]
    limit: 5/d
  - name: guard
    match: {path: /internal/*}
    key: [ip]
    limit: 1_000_000/h
  - name: login
    match: {path: /login}
    key: [ip]
    limit: 1_000_000/h
    failure: closed
`

const amount = 5

// TestMainJob is the main job on a real access log: shadow, a quarter of the keys, all of them, and back; then the loss
// of Redis and of the control plane.
func TestMainJob(t *testing.T) {
	t.Parallel()
	s := start(t)
	fleet := []*sidecar{s.sidecar("one", "public", "--store-budget", "1s"), s.sidecar("two", "public", "--store-budget", "1s")}
	wantText(t, s.apply(mainJobRules), "2 of 2 sidecars acked")
	for _, rule := range []string{"public/guard", "public/login"} {
		s.must("promote", rule, "--to", "100%", "--wait")
	}
	log := readLog(t)
	budget := newBudget(log)

	// In shadow every call is answered by the upstream, and the would-be refusals are counted.
	refused := log.replay(t, fleet)
	if n := total(refused); n != 0 {
		t.Fatalf("%d calls were refused in shadow", n)
	}
	if got := int(s.upstream.requests.Load()); got != len(log) {
		t.Errorf("%d calls reached the upstream, want %d", got, len(log))
	}
	wouldRefuse := 0
	for _, c := range fleet {
		wouldRefuse += c.outcomes("by-address")["would_refuse"]
	}
	if _, want := budget.pass(func(string) bool { return false }); wouldRefuse != want {
		t.Errorf("%d would-be refusals, want %d", wouldRefuse, want)
	}

	// At 25 % only keys of the cohort are refused, on both sidecars alike.
	wantText(t, s.must("promote", "public/by-address", "--to", "25%", "--wait"), "2 of 2 sidecars acked")
	refused = log.replay(t, fleet)
	inCohort := cohort(t, log, refused, budget)
	if want, _ := budget.pass(func(key string) bool { return inCohort[key] }); total(refused) != want {
		t.Errorf("%d calls refused at 25%%, want %d", total(refused), want)
	}

	// At 100 % the rest is refused too.
	wantText(t, s.must("promote", "public/by-address", "--to", "100%", "--wait"), "2 of 2 sidecars acked")
	refused = log.replay(t, fleet)
	if want, _ := budget.pass(func(string) bool { return true }); total(refused) != want {
		t.Errorf("%d calls refused at 100%%, want %d", total(refused), want)
	}

	// One command ends it everywhere.
	wantText(t, s.must("rollback", "public/by-address", "--wait"), "2 of 2 sidecars acked")
	if n := total(log.replay(t, fleet)); n != 0 {
		t.Errorf("%d calls were refused after the rollback", n)
	}
	for _, c := range fleet {
		if failed := c.outcomes("by-address")["failed_open"]; failed != 0 {
			t.Errorf("%s: %d decisions failed open while Redis was there", c.name, failed)
		}
	}
	loseRedis(t, s, fleet)
	loseControlPlane(t, s, fleet)
}

// loseRedis: decisions go on by failure mode, and are made again when it is back.
func loseRedis(t *testing.T, s *system, fleet []*sidecar) {
	s.redisFailed = true
	s.redis.Kill()
	for _, c := range fleet {
		if got := c.call(http.MethodGet, "/internal/x", "192.0.2.1").status; got != http.StatusOK {
			t.Errorf("%s without Redis: %d of a rule that fails open, want 200", c.name, got)
		}
		if got := c.call(http.MethodGet, "/login", "192.0.2.1").status; got != http.StatusServiceUnavailable {
			t.Errorf("%s without Redis: %d of a rule that fails closed, want 503", c.name, got)
		}
		if n := c.outcomes("guard")["failed_open"]; n != 1 {
			t.Errorf("%s: failed_open is %d, want 1", c.name, n)
		}
		if n := c.outcomes("login")["failed_closed"]; n != 1 {
			t.Errorf("%s: failed_closed is %d, want 1", c.name, n)
		}
	}
	s.redis.Restart()
	for _, c := range fleet {
		harness.Eventually(t, patience, func() error {
			if got := c.call(http.MethodGet, "/login", "192.0.2.1").status; got != http.StatusOK {
				return fmt.Errorf("%s with Redis back: %d, want 200", c.name, got)
			}
			return nil
		})
	}
}

// loseControlPlane: sidecars go on, one restarts from disk, and both follow again when it is back.
func loseControlPlane(t *testing.T, s *system, fleet []*sidecar) {
	s.must("promote", "public/by-address", "--to", "100%", "--wait")
	s.plane.Kill()
	fleet[1].process.Kill()
	fleet[1].start() // ready without the control plane
	const client = "192.0.2.77"
	for i := range amount {
		if got := fleet[i%2].call(http.MethodGet, "/", client).status; got != http.StatusOK {
			t.Errorf("call %d without the control plane: %d, want 200", i+1, got)
		}
	}
	for _, c := range fleet {
		resp := c.call(http.MethodGet, "/", client)
		if resp.status != http.StatusTooManyRequests {
			t.Errorf("%s without the control plane: %d after %d calls, want 429", c.name, resp.status, amount)
		}
		if resp.retryAfter == "" {
			t.Errorf("%s: the refusal has no Retry-After", c.name)
		}
	}
	s.startPlane()
	wantText(t, s.must("rollback", "public/by-address", "--wait"), "2 of 2 sidecars acked")
	for _, c := range fleet {
		if got := c.call(http.MethodGet, "/", client).status; got != http.StatusOK {
			t.Errorf("%s after the control plane came back and the rule was rolled back: %d, want 200", c.name, got)
		}
	}
	wantText(t, s.must("sidecar", "list"), "one", "two", "Synced")
}

// accessLog is the calls of the log, in its order.
type accessLog []struct{ client, method, path string }

func readLog(t *testing.T) accessLog {
	t.Helper()
	f, err := os.Open("testdata/access.log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var log accessLog
	for lines := bufio.NewScanner(f); lines.Scan(); {
		client, _, _ := strings.Cut(lines.Text(), " ")
		_, request, _ := strings.Cut(lines.Text(), `"`)
		fields := strings.Fields(request)
		if len(fields) < 2 {
			t.Fatalf("not a line of the combined format: %s", lines.Text())
		}
		log = append(log, struct{ client, method, path string }{client, fields[0], fields[1]})
	}
	return log
}

// refusals counts refused calls by client and sidecar.
type refusals map[string]*[2]int

func total(r refusals) (n int) {
	for _, v := range r {
		n += v[0] + v[1]
	}
	return n
}

// replay sends the log, odd lines through one sidecar and even ones through the other, both at the same time.
func (l accessLog) replay(t *testing.T, fleet []*sidecar) refusals {
	t.Helper()
	var mu sync.Mutex
	refused := refusals{}
	var wg sync.WaitGroup
	for side, c := range fleet {
		wg.Go(func() {
			for i := side; i < len(l); i += len(fleet) {
				status := c.call(l[i].method, l[i].path, l[i].client).status
				switch status {
				case http.StatusOK:
				case http.StatusTooManyRequests:
					mu.Lock()
					if refused[l[i].client] == nil {
						refused[l[i].client] = &[2]int{}
					}
					refused[l[i].client][side]++
					mu.Unlock()
				default:
					t.Errorf("line %d through %s: status %d", i+1, c.name, status)
				}
			}
		})
	}
	wg.Wait()
	return refused
}

// budget is what by-address must count: how much each client has spent.
type budget struct {
	calls map[string]int // of each client in one replay
	spent map[string]int
}

func newBudget(l accessLog) *budget {
	b := &budget{calls: map[string]int{}, spent: map[string]int{}}
	for _, c := range l {
		b.calls[c.client]++
	}
	return b
}

// over is how many calls of a client one replay has above what is left of the limit.
func (b *budget) over(client string) int {
	return max(0, b.calls[client]-max(0, amount-b.spent[client]))
}

// pass replays the log: clients for which binding is true are held to the limit, the others only judged. It returns the
// refusals of the first and the would-be ones of the others.
func (b *budget) pass(binding func(client string) bool) (refused, would int) {
	for client, n := range b.calls {
		over := b.over(client)
		if binding(client) {
			refused += over
			b.spent[client] += n - over
		} else {
			would += over
			b.spent[client] += n
		}
	}
	return refused, would
}

// cohort returns the clients that were refused, and checks that each was held to the limit on both sidecars alike: one
// with nothing left is refused every time on both, or never on either.
func cohort(t *testing.T, l accessLog, refused refusals, b *budget) map[string]bool {
	t.Helper()
	sent := map[string]*[2]int{}
	for i, c := range l {
		if sent[c.client] == nil {
			sent[c.client] = &[2]int{}
		}
		sent[c.client][i%2]++
	}
	inside, outside := map[string]bool{}, map[string]bool{}
	for client, n := range sent {
		r := refused[client]
		if r != nil {
			inside[client] = true
		} else if b.over(client) > 0 {
			outside[client] = true
		}
		if r != nil && b.spent[client] >= amount && *r != *n {
			t.Errorf("%s: %v of %v calls refused on the two sidecars: not one and the same cohort", client, *r, *n)
		}
	}
	if len(inside) == 0 || len(outside) == 0 {
		t.Errorf("at 25%% %d clients were refused and %d were not though over the limit", len(inside), len(outside))
	}
	t.Logf("at 25%%: %d clients in the cohort refused, %d outside not", len(inside), len(outside))
	return maps.Clone(inside)
}
