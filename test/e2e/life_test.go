package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/subscribe"
)

// sliding is a rule file of one rule that counts in a sliding window, and of what else is given.
func sliding(limit string, more ...string) string {
	return "apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n  - {name: r, key: [ip], algorithm: sliding-window, limit: " + limit + "}\n" +
		strings.Join(more, "")
}

// allowed calls until the first refusal, at most most times, and returns how many were allowed.
func (c *sidecar) allowed(client string, most int) int {
	c.system.t.Helper()
	for n := range most {
		if c.call(http.MethodGet, "/", client).status != http.StatusOK {
			return n
		}
	}
	return most
}

// apache/apisix#187, hookaido#239, with a day for the minute, so that no window ends during the test: (a) a changed number
// works at once, and going back keeps what was used; (b) a push of another rule refills nothing.
func TestC18SlidingWindowKeepsWhatWasUsed(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.sidecar("one", "d")
	const client = "192.0.2.18"
	enforce := func(limit string, more ...string) {
		t.Helper()
		s.must("apply", "-f", s.file(sliding(limit, more...)), "--stage", "enforce", "--yes", "--wait")
	}
	enforce("100/d")
	if got := c.allowed(client, 10); got != 10 {
		t.Fatalf("%d of 10 calls were allowed", got)
	}
	enforce("2/d")
	if got := c.allowed(client, 1); got != 0 {
		t.Error("10 were used, and a call was allowed by a limit of 2")
	}
	enforce("1500/d")
	if got := c.allowed(client, 1); got != 1 {
		t.Error("10 were used, and a limit of 1500 refused")
	}
	s.must("rollback", "d/r", "--to", "v1", "--wait")
	// 11 are used; after one more, 88 remain.
	if got := c.allowed(client, 200); got != 89 {
		t.Errorf("after the way back %d calls were allowed, want 89 of the 100", got)
	}
	enforce("100/d", "  - {name: q, match: {path: /other}, key: [ip], limit: 5/min}\n")
	if got := c.allowed(client, 1); got != 0 {
		t.Error("a push of another rule refilled this one")
	}
}

// A freeze lets everything pass at once, counts what passes, and ends by itself with nobody's help.
func TestFreezeEndsByItself(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.sidecar("one", "d")
	s.must("apply", "-f", s.file(rule("2/d")), "--stage", "enforce", "--yes", "--wait")
	const client = "192.0.2.1"
	if got := c.allowed(client, 5); got != 2 {
		t.Fatalf("%d calls were allowed, want 2", got)
	}
	wantText(t, s.must("freeze", "d", "--for", "4s", "-m", "everybody is refused", "--wait"), "frozen until")
	if got := c.call(http.MethodGet, "/", client).status; got != http.StatusOK {
		t.Errorf("frozen, and a call got %d", got)
	}
	wantText(t, s.must("get", "rules"), "FROZEN")
	s.plane.Kill() // it ends without the control plane
	harness.Eventually(t, patience, func() error {
		if got := c.call(http.MethodGet, "/", client).status; got != http.StatusTooManyRequests {
			return fmt.Errorf("after the freeze a call got %d", got)
		}
		return nil
	})
}

// The control plane is gone and a rule refuses everybody: the sidecar is frozen at its own port, and says so later.
func TestBreakGlassIsReportedWhenTheControlPlaneReturns(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.sidecar("one", "d")
	s.must("apply", "-f", s.file(rule("1/d")), "--stage", "enforce", "--yes", "--wait")
	const client = "192.0.2.1"
	if got := c.allowed(client, 3); got != 1 {
		t.Fatalf("%d calls were allowed, want 1", got)
	}
	s.plane.Kill()
	s.must("freeze", "d/r", "--for", "15m", "--sidecar", c.ops)
	if got := c.allowed(client, 3); got != 3 {
		t.Errorf("frozen, and only %d of 3 calls passed", got)
	}
	c.process.Kill() // it survives a restart
	c.start()
	if got := c.allowed(client, 3); got != 3 {
		t.Errorf("after a restart only %d of 3 calls passed", got)
	}
	s.startPlane()
	harness.Eventually(t, patience, func() error {
		trail, list := s.must("audit", "list"), s.must("sidecar", "list")
		if !containsAll(trail, "break-glass", "d/r") || !strings.Contains(list, "frozen until") {
			return fmt.Errorf("the trail is\n%s\nand the fleet\n%s", trail, list)
		}
		return nil
	})
	s.must("unfreeze", "d/r", "--sidecar", c.ops)
	if got := c.call(http.MethodGet, "/", client).status; got != http.StatusTooManyRequests {
		t.Errorf("after unfreeze a call got %d", got)
	}
	if n := strings.Count(s.must("audit", "list"), "break-glass"); n > 2 {
		t.Errorf("two things were done at the sidecar, and %d are recorded", n)
	}
	wantText(t, s.must("audit", "verify"), "records")
}

func TestExemptionsAndOverridesTakeEffectAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.sidecar("one", "d")
	s.must("apply", "-f", s.file(rule("2/d")+"exempt: [{name: health, match: {path: /livez}}]\n"), "--stage", "enforce", "--yes", "--wait")
	for range 5 {
		if got := c.call(http.MethodGet, "/livez", "192.0.2.1").status; got != http.StatusOK {
			t.Errorf("an exempt call got %d", got)
		}
	}
	if got := c.allowed("192.0.2.1", 5); got != 2 {
		t.Errorf("%d calls were allowed, want 2", got)
	}
	s.must("override", "set", "d/r", "--key", "192.0.2.1", "--limit", "6/d", "--for", "1h", "--wait")
	if got := c.allowed("192.0.2.1", 9); got != 4 {
		t.Errorf("with an override to 6, and 2 used, %d calls were allowed", got)
	}
	if got := c.allowed("192.0.2.2", 9); got != 2 {
		t.Errorf("of another key %d calls were allowed, want 2", got)
	}
	wantText(t, s.must("override", "list", "d/r", "--key", "192.0.2.1"), "6/d")
	s.must("override", "delete", "d/r", "--key", "192.0.2.1", "--wait")
	if got := c.allowed("192.0.2.1", 1); got != 0 {
		t.Error("the end of an override handed out a budget")
	}
}

// One command brings a whole domain back, exemptions and all, in one revision.
func TestDomainIsRolledBackWithOneCommand(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.sidecar("one", "d")
	s.must("apply", "-f", s.file(rule("2/d")), "--stage", "enforce", "--yes", "--wait") // revision 1
	s.must("apply", "-f", s.file(rule("1/d")+"exempt: [{name: all, match: {path: /*}}]\n"), "--stage", "enforce", "--yes", "--wait")
	if got := c.allowed("192.0.2.1", 5); got != 5 {
		t.Fatalf("of exempt calls %d of 5 were allowed", got)
	}
	wantText(t, s.must("rollback", "-d", "d", "--to-revision", "1", "--wait"), "revision 3", "1 of 1 sidecar acked")
	if got := c.allowed("192.0.2.1", 5); got != 2 {
		t.Errorf("%d calls were allowed, want 2", got)
	}
}

// fussy takes only versions up to a number.
type fussy struct {
	most int64
	got  chan string
}

func (f fussy) Check(r *rules.Rule) error {
	if r.Stable != nil && r.Stable.Number > f.most {
		return errors.New("this node is fussy")
	}
	return nil
}

func (f fussy) Apply(u subscribe.Update) {
	var text strings.Builder
	for _, r := range u.Rules {
		text.WriteString(r.Name + " v" + strconv.FormatInt(r.Stable.Number, 10) + " ")
	}
	f.got <- strings.TrimSpace(text.String())
}

// fussy connects a node that takes only versions up to most, and returns what it puts in force.
func (s *system) fussy(name string, most int64) <-chan string {
	s.t.Helper()
	conn, err := subscribe.Dial(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	sink := fussy{most: most, got: make(chan string, 9)}
	client, err := subscribe.New(subscribe.Options{Conn: conn, Node: name, Domains: []string{"d"}, Sink: sink})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, conn.Close()); err != nil {
			s.t.Error(err)
		}
	})
	return sink.got
}

// comes waits until a node has put in force what is wanted.
func comes(t *testing.T, got <-chan string, want string) {
	t.Helper()
	late, last := time.After(patience), ""
	for last != want {
		select {
		case last = <-got:
		case <-late:
			t.Fatalf("the node has %q in force, want %q", last, want)
		}
	}
}

// Kuadrant/kuadrant-operator#140: pods that started while the newest version was bad came up with no limits.
func TestC30NewcomerGetsTheLastGoodVersion(t *testing.T) {
	t.Parallel()
	s := start(t)
	old := s.fussy("old", 1)
	s.must("apply", "-f", s.file(rule("5/d")), "--stage", "enforce", "--yes", "--wait")
	comes(t, old, "r v1")
	if _, _, code := s.rulectl("apply", "-f", s.file(rule("6/d")), "--stage", "enforce", "--yes", "--wait", "--timeout", "2s"); code != 6 {
		t.Errorf("a version that no sidecar takes: exit %d, want 6", code)
	}
	comes(t, s.fussy("new", 1), "r v1")
	wantText(t, s.must("sidecar", "list"), "✖ Nacked", "this node is fussy")
	out, _, code := s.rulectl("sidecar", "diff", "new")
	if code != 1 || !strings.Contains(out, "d/r") {
		t.Errorf("sidecar diff of a node that lacks a rule: exit %d\n%s", code, out)
	}
}

// A mistaken database must not change what a fleet enforces.
func TestEmptyControlPlaneWipesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.sidecar("one", "d")
	s.must("apply", "-f", s.file(rule("2/d")), "--stage", "enforce", "--yes", "--wait")
	s.plane.Kill()
	s.database = harness.Postgres(t) // an empty one
	s.startPlane()
	s.must("apply", "-f", s.file(rule("100/d")), "--stage", "enforce", "--yes")
	var list string
	harness.Eventually(t, patience, func() error {
		if list = s.must("sidecar", "list"); !strings.Contains(list, "Foreign") {
			return fmt.Errorf("the fleet is\n%s", list)
		}
		return nil
	})
	if got := c.allowed("192.0.2.1", 5); got != 2 {
		t.Errorf("behind another database %d calls were allowed, want the 2 of the rules in force", got)
	}
	_, lineage, found := strings.Cut(list, "sidecar adopt ")
	if !found {
		t.Fatalf("the list does not say what to do:\n%s", list)
	}
	lineage = strings.FieldsFunc(lineage, func(r rune) bool { return r == ' ' || r == '\n' || r == '`' || r == '"' })[0]
	s.must("sidecar", "adopt", lineage, "--yes", "-m", "the database was lost")
	harness.Eventually(t, patience, func() error {
		if got := c.allowed("192.0.2.3", 5); got != 5 {
			return fmt.Errorf("%d calls were allowed, want 5 by the limit of 100", got)
		}
		return nil
	})
}

// What support asks when a customer is refused.
func TestInspectSaysWhatOneKeyHasSpent(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.sidecar("one", "d")
	s.must("apply", "-f", s.file(rule("5/d")), "--stage", "enforce", "--yes", "--wait")
	if got := c.allowed("192.0.2.1", 3); got != 3 {
		t.Fatalf("%d calls were allowed, want 3", got)
	}
	before := s.must("inspect", "d/r", "--key", "192.0.2.1", "--sidecar", c.ops)
	wantText(t, before, "5/d", "3", "2")
	if after := s.must("inspect", "d/r", "--key", "192.0.2.1", "--sidecar", c.ops, "-o", "json"); strings.Contains(after, "192.0.2.1") {
		t.Errorf("the answer holds the key:\n%s", after)
	}
	if got := c.allowed("192.0.2.1", 9); got != 2 {
		t.Errorf("after looking, %d calls were allowed, want the 2 that were left", got)
	}
}
