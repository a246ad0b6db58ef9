package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/subscribe"
)

func rule(limit string) string {
	return "apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n  - {name: r, key: [ip], limit: " + limit + "}\n"
}

// apache/apisix#187, hookaido#239: a changed number waited for the counter to expire; any push refilled every bucket.
// Here with a token bucket, applied and promoted.
func TestC18ChangedNumberWorksAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.sidecar("one", "d")
	enforce := func(limit string) {
		t.Helper()
		s.apply(rule(limit))
		s.must("promote", "d/r", "--to", "100%", "--wait")
	}
	call := func(want int) {
		t.Helper()
		if got := c.call(http.MethodGet, "/", "192.0.2.1").status; got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	enforce("100/d")
	for range 10 {
		call(http.StatusOK)
	}
	enforce("2/d")
	call(http.StatusTooManyRequests)
	enforce("12/d")
	call(http.StatusOK) // the 11th
	call(http.StatusOK)
	call(http.StatusTooManyRequests)
	s.must("rollback", "d/r", "--wait")
	call(http.StatusTooManyRequests) // 2 a day, 12 spent
}

// Every replica hears of every change: by notification alone, and by polling alone when notifications are lost.
func TestChangeThroughAnotherReplicaArrives(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"poll off":          {"--poll", "0"},
		"notification lost": {"--no-listen", "--poll", "100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, flags...)
			s.sidecar("one", "d")
			// From here on rulectl talks to a second replica; the sidecar stays with the first.
			s.grpc, s.http = harness.FreeAddr(t), harness.FreeAddr(t)
			s.startPlane(flags...)
			wantText(t, s.apply(rule("5/d")), "1 of 1 sidecar acked")
		})
	}
}

// picky is a node that takes no rule.
type picky struct{}

func (picky) Check(*rules.Rule) error { return errors.New("this node is picky") }
func (picky) Apply(subscribe.Update)  {}

// Kuadrant/kuadrant-operator#140: the object said Ready while the limit was not in force everywhere.
func TestC30AppliedMeansApplied(t *testing.T) {
	t.Parallel()
	s := start(t)
	good, away, hung := s.sidecar("good", "d"), s.sidecar("away", "d"), s.sidecar("hung", "d")
	s.apply(rule("5/d"))
	s.picky("picky")
	away.process.Kill()
	hung.process.Pause() // connected, but never answers
	harness.Eventually(t, patience, func() error {
		if out := s.must("sidecar", "list"); !containsAll(out, "Away", "Nacked") {
			return fmt.Errorf("the fleet is\n%s", out)
		}
		return nil
	})

	stdout, stderr, code := s.rulectl("apply", "-f", s.file(rule("6/d")), "--wait", "--timeout", "3s")
	if code != 6 {
		t.Errorf("exit %d, want 6: stored, but not everywhere\n%s%s", code, stdout, stderr)
	}
	wantText(t, stdout+stderr, "1 of 4 sidecars acked", "away", "Away", "picky", "Nacked", "this node is picky", "hung", "Pending")
	wantText(t, s.must("sidecar", "list"), "✔ Synced", "⚠ Away", "✖ Nacked", "◌ Pending")

	// What was away takes the newest version as soon as it returns.
	hung.process.Resume()
	away.start()
	harness.Eventually(t, patience, func() error {
		for _, c := range []*sidecar{good, away, hung} {
			if got := c.revision(); got != 2 {
				return fmt.Errorf("%s has revision %d, want 2", c.name, got)
			}
		}
		return nil
	})
	wantText(t, s.must("sidecar", "list"), "this node is picky")
}

// With names of pods as node ids, each rollout of a service would leave nodes behind that every wait hangs on.
func TestStoppedSidecarIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.sidecar("stays", "d")
	stopped := s.sidecar("stopped", "d")
	wantText(t, s.apply(rule("5/d")), "2 of 2 sidecars acked")
	if err := stopped.process.Interrupt(); err != nil {
		t.Fatal(err)
	}
	wantText(t, s.apply(rule("6/d")), "1 of 1 sidecar acked")
	wantText(t, s.must("sidecar", "list"), "• Gone")
}

// picky connects a node that refuses every rule.
func (s *system) picky(name string) {
	s.t.Helper()
	conn, err := subscribe.Dial(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := subscribe.New(subscribe.Options{Conn: conn, Node: name, Domains: []string{"d"}, Sink: picky{}})
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
}
