package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage/postgres"
	"github.com/headgate/headgate/test/harness"
)

// What a limit without refill would refuse is all but its amount, one for one, however many sidecars judge it together.
func TestWouldBeRefusalsAreAllButTheLimit(t *testing.T) {
	t.Parallel()
	const calls, limit = 100_000, 1000
	s := start(t)
	// With the race detector the calls would take minutes.
	s.binaries["sidecar"] = harness.BuildPlain(t, "./cmd/sidecar")
	s.apply(fmt.Sprintf(`apiVersion: headgate/v1
kind: RuleSet
domain: d
rules:
  - {name: by-one, match: {path: /by-one}, key: [], limit: %d/366d}
  - {name: by-five, match: {path: /by-five}, key: [], limit: %d/366d}
`, limit, limit))
	var fleet []*sidecar
	for i := range 5 {
		fleet = append(fleet, s.sidecar(fmt.Sprint("n", i), "d"))
	}
	for path, by := range map[string][]*sidecar{"/by-one": fleet[:1], "/by-five": fleet} {
		began := time.Now()
		var group errgroup.Group
		const conns = 10
		for i := range conns {
			group.Go(func() error {
				return pipeline(by[i%len(by)].ops, path, slices.Repeat([]string{"192.0.2.1"}, calls/conns))
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d calls of %s in %v", calls, path, time.Since(began))
	}
	for _, c := range fleet {
		if err := c.process.Interrupt(); err != nil {
			t.Error(err)
		}
	}
	store, err := postgres.Open(t.Context(), s.database, postgres.Options{NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	points, err := store.Series(t.Context(), tally.Query{
		Domain: "d", From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(time.Hour), Step: tally.StepHour,
	})
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]*tally.Counts{}
	for i := range points {
		if sums[points[i].UID] == nil {
			sums[points[i].UID] = &tally.Counts{}
		}
		sums[points[i].UID].Add(&points[i].Counts)
	}
	if len(sums) != 2 {
		t.Errorf("there are counts of %d rules, want 2", len(sums))
	}
	for uid, sum := range sums {
		all, alone := sum.WouldRefuse()
		if all != calls-limit || alone != all || sum.Of(tally.WouldAllow) != limit || sum.Matched() != calls {
			t.Errorf("rule %s would refuse %d of %d and allow %d, want %d and %d", uid, all, sum.Matched(), sum.Of(tally.WouldAllow), calls-limit, limit)
		}
	}
}

// pipeline asks a check door about a path, once for each client, on one connection and without waiting for each answer: so
// asking costs little. All must pass.
func pipeline(ops, path string, clients []string) (err error) {
	conn, err := net.Dial("tcp", ops)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	answers := bufio.NewReader(conn)
	for now := range slices.Chunk(clients, 50) {
		var questions strings.Builder
		for _, client := range now {
			fmt.Fprintf(&questions, "GET /check HTTP/1.1\r\nHost: h\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: %s\r\nX-Forwarded-For: %s\r\n\r\n", path, client)
		}
		if _, err := io.WriteString(conn, questions.String()); err != nil {
			return err
		}
		for ended := 0; ended < len(now); { // no answer has a body
			line, err := answers.ReadString('\n')
			switch {
			case err != nil:
				return err
			case strings.HasPrefix(line, "HTTP/") && !strings.HasPrefix(line, "HTTP/1.1 200 "):
				return fmt.Errorf("a check of %s is answered with %s", path, line)
			case line == "\r\n":
				ended++
			}
		}
	}
	return nil
}
