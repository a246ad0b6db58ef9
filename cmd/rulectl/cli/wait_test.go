package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/cmd/rulectl/cli"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/rpcstatus"
)

const oneRule = "apiVersion: headgate/v1\nkind: RuleSet\ndomain: a\nrules: [{name: x, key: [ip], limit: 1/s}]\n"

// running is a rulectl in this process, whose standard error can be read line by line while it runs.
type running struct {
	stdout bytes.Buffer
	lines  *bufio.Scanner
	code   chan int
}

func run(ctx context.Context, addr, stdin string, args ...string) *running {
	r := &running{code: make(chan int, 1)}
	out, in := io.Pipe()
	r.lines = bufio.NewScanner(out)
	go func() {
		r.code <- cli.Run(ctx, args, cli.IO{
			In: strings.NewReader(stdin), Out: &r.stdout, Err: in,
			Getenv: func(key string) string { return map[string]string{"RULECTL_SERVER": addr}[key] },
		})
		_ = in.Close()
	}()
	return r
}

// waitFor reads on until a line contains text, and returns it.
func (r *running) waitFor(t *testing.T, text string) string {
	t.Helper()
	for r.lines.Scan() {
		if strings.Contains(r.lines.Text(), text) {
			return r.lines.Text()
		}
	}
	t.Fatalf("it ended without saying %q", text)
	return ""
}

// end reads the rest and returns the exit code.
func (r *running) end() (code int, rest string) {
	var b strings.Builder
	for r.lines.Scan() {
		b.WriteString(r.lines.Text() + "\n")
	}
	return <-r.code, b.String()
}

func setup(t *testing.T) *controlPlane {
	t.Helper()
	plane, err := start(t.TempDir(), doors{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.stop)
	return plane
}

func (c *controlPlane) mustSave(t *testing.T, id string, facts ...string) {
	t.Helper()
	if err := c.saveNode(t.Context(), "a", id, facts...); err != nil {
		t.Fatal(err)
	}
}

func TestWaitEndsWhenTheLastSidecarAcks(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustSave(t, "n1", "acked=1")
	plane.mustSave(t, "n2")
	r := run(t.Context(), plane.addr, oneRule, "apply", "-f", "-", "--wait")
	if got, want := r.waitFor(t, "waiting"), "waiting for sidecars of a: 1 of 2 sidecars acked; not yet: n2 ◌ Pending"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	plane.mustSave(t, "n2", "sent=1", "acked=1")
	r.waitFor(t, "✔ a: 2 of 2 sidecars acked revision 1 (")
	if code, rest := r.end(); code != 0 || !strings.HasPrefix(rest, "in shadow it counts") {
		t.Errorf("exit code %d, then %q", code, rest)
	}
}

func TestInterruptedWaitSaysThatTheChangeIsStored(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	plane.mustSave(t, "n1")
	ctx, interrupt := context.WithCancel(t.Context())
	r := run(ctx, plane.addr, oneRule, "apply", "-f", "-", "--wait")
	r.waitFor(t, "waiting")
	interrupt()
	r.waitFor(t, "✖ a: 0 of 1 sidecar acked revision 1 when this was interrupted; it is still rolling out; it is stored")
	if code, rest := r.end(); code != 130 || !strings.Contains(rest, "next: rulectl sidecar list -d a") {
		t.Errorf("exit code %d, then %q", code, rest)
	}
	if got := r.stdout.String(); !strings.Contains(got, "a  revision 1") {
		t.Errorf("standard output does not have the outcome: %q", got)
	}
}

// failing is a control plane whose answers are errors, or none.
type failing struct {
	adminpb.UnimplementedAdminServiceServer
	list    error
	await   []error // of the first calls
	hanging bool
}

func (f *failing) ListRules(ctx context.Context, _ *adminpb.ListRulesRequest) (*adminpb.ListRulesResponse, error) {
	if f.hanging {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, f.list
}

func (f *failing) Apply(context.Context, *adminpb.ApplyRequest) (*adminpb.ApplyResponse, error) {
	return &adminpb.ApplyResponse{Outcomes: []*adminpb.Outcome{{Domain: "a", Revision: 7}}}, nil
}

// Await reports one node that lags behind, then fails as it is told, and at last reports that the node has it.
func (f *failing) Await(_ *adminpb.AwaitRequest, stream grpc.ServerStreamingServer[adminpb.AwaitResponse]) error {
	node := &adminpb.Node{Id: "n1", Domain: "a", State: "pending", Wanted: 7}
	if len(f.await) == 0 {
		node.State, node.Acked = "synced", 7
	}
	if err := stream.Send(&adminpb.AwaitResponse{Nodes: []*adminpb.Node{node}}); err != nil {
		return err
	}
	if len(f.await) == 0 {
		return nil
	}
	err := f.await[0]
	f.await = f.await[1:]
	return err
}

func (f *failing) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := discardLog()
	server := grpc.NewServer(grpc.UnaryInterceptor(rpcstatus.UnaryServer(log, rpcstatus.NewRefused())),
		grpc.StreamInterceptor(rpcstatus.StreamServer(log, rpcstatus.NewRefused())))
	adminpb.RegisterAdminServiceServer(server, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener.Addr().String()
}

func TestWaitGoesOnAfterABrokenStream(t *testing.T) {
	t.Parallel()
	f := &failing{await: []error{rules.ErrUnavailable, rules.ErrUnavailable}}
	code, said := run(t.Context(), f.serve(t), oneRule, "apply", "-f", "-", "--wait").end()
	if code != 0 || !strings.Contains(said, "✔ a: 1 of 1 sidecar acked revision 7") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

func TestFailureWhileWaitingIsNotAFailureOfTheChange(t *testing.T) {
	t.Parallel()
	f := &failing{await: []error{rules.ErrInvalid}}
	code, said := run(t.Context(), f.serve(t), oneRule, "apply", "-f", "-", "--wait").end()
	if code != 6 || !strings.Contains(said, "it is stored") || !strings.Contains(said, "the control plane failed") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

func TestExitCodesOfServerErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		plane    *failing
		wantCode int
		wantText string
	}{
		{"forbidden", &failing{list: rules.ErrForbidden}, 4, "forbidden"},
		{"not authenticated", &failing{list: rules.ErrUnauthenticated}, 4, "say who you are: --token-file FILE"},
		{"conflict", &failing{list: rules.ErrConflict}, 5, "conflict"},
		{"guarded", &failing{list: &rules.GuardError{Rule: "a/x", Danger: "too much", Way: "say --yes"}}, 7, "rulectl: a/x: too much: say --yes"},
		{"database away", &failing{list: rules.ErrUnavailable}, 1, "rulectl: unavailable"},
		{"unknown", &failing{list: os.ErrClosed}, 1, "internal error; its cause is in the server's log"},
		{"hanging", &failing{hanging: true}, 1, "did not answer within 50ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, said := run(t.Context(), c.plane.serve(t), "", "get", "rules", "--timeout", map[bool]string{true: "50ms", false: "1m"}[c.plane.hanging]).end()
			if code != c.wantCode || !strings.Contains(said, c.wantText) {
				t.Errorf("exit code %d, %q; want %d and %q", code, said, c.wantCode, c.wantText)
			}
		})
	}
}

func TestInterruptedCallExits130(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	code, said := run(ctx, (&failing{hanging: true}).serve(t), "", "get", "rules").end()
	if code != 130 || said != "rulectl: interrupted\n" {
		t.Errorf("exit code %d, %q", code, said)
	}
}
