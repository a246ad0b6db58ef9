package rpcstatus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/rpcstatus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failing answers every call with err. gRPC's own health service has what is needed: a unary call and a stream.
type failing struct {
	healthpb.UnimplementedHealthServer
	err error
}

func (f failing) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{}, f.err
}

func (f failing) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if err := stream.Send(&healthpb.HealthCheckResponse{}); err != nil {
		return err
	}
	return f.err
}

// calls returns what a client gets for err by a unary call and by a stream, and the server's log.
func calls(t *testing.T, err error) (log string, unary, stream error) {
	t.Helper()
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	server := grpc.NewServer(grpc.UnaryInterceptor(rpcstatus.UnaryServer(logger, nil)), grpc.StreamInterceptor(rpcstatus.StreamServer(logger, nil)))
	healthpb.RegisterHealthServer(server, failing{err: err})
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }),
		grpc.WithUnaryInterceptor(rpcstatus.UnaryClient()), grpc.WithStreamInterceptor(rpcstatus.StreamClient()))
	if err != nil {
		t.Fatal(err)
	}
	client := healthpb.NewHealthClient(conn)
	_, unary = client.Check(t.Context(), &healthpb.HealthCheckRequest{})
	watch, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatalf("first message: %v", err)
	}
	_, stream = watch.Recv()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	server.GracefulStop()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	return out.String(), unary, stream
}

func TestEveryKindRoundTrips(t *testing.T) {
	t.Parallel()
	for _, kind := range []error{
		rules.ErrInvalid, rules.ErrNotFound, rules.ErrConflict, rules.ErrForbidden, rules.ErrGuarded, rules.ErrUnauthenticated,
	} {
		t.Run(kind.Error(), func(t *testing.T) {
			t.Parallel()
			log, unary, stream := calls(t, fmt.Errorf("promote a/b: %w", kind))
			for _, got := range []error{unary, stream} {
				if !errors.Is(got, kind) {
					t.Errorf("got %v (%T), want it to be %v", got, got, kind)
				}
				if want := "promote a/b: " + kind.Error(); got.Error() != want {
					t.Errorf("the text is %q, want %q", got, want)
				}
				if !rpcstatus.Answered(got) {
					t.Error("the server's answer is taken for a failure of the connection")
				}
			}
			if log != "" {
				t.Errorf("an error of a known kind is logged: %s", log)
			}
		})
	}
}

// What a driver says names hosts and users. The kind travels, the text stays here.
func TestErrorsOfADatabaseKeepTheirKindAndTheirTextStays(t *testing.T) {
	t.Parallel()
	driver := errors.New("failed to connect to `user=headgate database=rules`: 10.1.2.3:5432 (db.internal)")
	for _, test := range []struct {
		kind error
		text string
	}{
		{rules.ErrUnavailable, "unavailable: the database cannot be asked at the moment; the control plane's log says why, " +
			"and the audit trail whether a change was made"},
		{context.DeadlineExceeded, "context deadline exceeded"},
		{context.Canceled, "context canceled"},
	} {
		t.Run(test.kind.Error(), func(t *testing.T) {
			t.Parallel()
			log, unary, stream := calls(t, fmt.Errorf("read the rules: %w: %w", test.kind, driver))
			for _, got := range []error{unary, stream} {
				if !errors.Is(got, test.kind) || !rpcstatus.Answered(got) {
					t.Errorf("got %v (%T), want the server's %v", got, got, test.kind)
				}
				if text := fmt.Sprint(got, status.Convert(got).Proto()); got.Error() != test.text || strings.Contains(text, "user=") {
					t.Errorf("outside it says %q, want %q", text, test.text)
				}
			}
			if !strings.Contains(log, driver.Error()) {
				t.Errorf("the log does not say why: %s", log)
			}
		})
	}
}

// While the database is away every call fails, and anybody may call; and a caller who gives up is no failure.
func TestOutageIsLoggedOnceASecondAndTheCallersEndIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		unary := rpcstatus.UnaryServer(slog.New(slog.NewTextHandler(&out, nil)), nil)
		call := func(ctx context.Context, err error) {
			t.Helper()
			if _, got := unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { return nil, err }); got == nil {
				t.Error("no error")
			}
		}
		for range 30 {
			call(t.Context(), rules.ErrUnavailable)
			time.Sleep(100 * time.Millisecond) // of the bubble
		}
		if n := strings.Count(out.String(), "\n"); n < 3 || n > 4 {
			t.Errorf("%d lines in 3 s: %s", n, out.String())
		}
		out.Reset()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		call(gone, context.Canceled)
		if out.Len() > 0 {
			t.Errorf("logged: %s", out.String())
		}
	})
}

func TestValidationErrorKeepsEveryProblem(t *testing.T) {
	t.Parallel()
	want := &rules.ValidationError{Problems: []rules.Problem{
		{Code: "HG0103", File: "rules/a.yaml", Line: 14, Column: 12, Path: "rules[3].limit", Message: `limit "100/m": ambiguous`},
		{Code: "HG0007", File: "a:b#c.yaml", Line: 1, Column: 1, Path: "rules[0].name", Message: "zwei\nZeilen"},
		{Code: "HG0102", Path: "match.path[0]", Message: "without a file"},
	}}
	_, unary, stream := calls(t, fmt.Errorf("apply: %w", want))
	for _, got := range []error{unary, stream} {
		var invalid *rules.ValidationError
		if !errors.As(got, &invalid) || !errors.Is(got, rules.ErrInvalid) {
			t.Fatalf("got %v (%T), want a ValidationError", got, got)
		}
		if diff := cmp.Diff(want, invalid); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestValidationErrorCarriesTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	_, unary, _ := calls(t, &rules.ValidationError{Problems: []rules.Problem{{Code: "HG0001", File: "\xff.yaml", Line: 2, Column: 3, Message: "\xfe"}}})
	var invalid *rules.ValidationError
	if !errors.As(unary, &invalid) {
		t.Fatalf("got %v (%T), want a ValidationError", unary, unary)
	}
	want := []rules.Problem{{Code: "HG0001", File: "\uFFFD.yaml", Line: 2, Column: 3, Message: "\uFFFD"}}
	if diff := cmp.Diff(want, invalid.Problems); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestConflictErrorKeepsItsFacts(t *testing.T) {
	t.Parallel()
	want := &rules.ConflictError{Rule: "a/b", State: "v8 at 10% beside stable v7", Hint: "roll it back"}
	_, unary, stream := calls(t, fmt.Errorf("apply a: %w", want))
	for _, got := range []error{unary, stream} {
		var conflict *rules.ConflictError
		if !errors.As(got, &conflict) || !errors.Is(got, rules.ErrConflict) {
			t.Fatalf("got %v (%T), want a ConflictError", got, got)
		}
		if diff := cmp.Diff(want, conflict); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestGuardErrorKeepsItsFacts(t *testing.T) {
	t.Parallel()
	want := &rules.GuardError{Rule: "a/b", Danger: "makes the limit 10 times smaller", Way: "say --yes"}
	_, unary, stream := calls(t, fmt.Errorf("apply a: %w", want))
	for _, got := range []error{unary, stream} {
		var guard *rules.GuardError
		if !errors.As(got, &guard) || !errors.Is(got, rules.ErrGuarded) {
			t.Fatalf("got %v (%T), want a GuardError", got, got)
		}
		if diff := cmp.Diff(want, guard); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestRefusedCallsAreCountedByMethodAndCode(t *testing.T) {
	t.Parallel()
	log, refused := slog.New(slog.DiscardHandler), rpcstatus.NewRefused()
	unary, stream := rpcstatus.UnaryServer(log, refused), rpcstatus.StreamServer(log, refused)
	for _, err := range []error{nil, rules.ErrForbidden, rules.ErrForbidden, rules.ErrGuarded} {
		_, got := unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { return nil, err })
		if (got != nil) != (err != nil) {
			t.Errorf("got %v for %v", got, err)
		}
	}
	if err := stream(nil, contextStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/C"}, func(any, grpc.ServerStream) error {
		return rules.ErrUnauthenticated
	}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v", err)
	}
	want := `
		# HELP headgate_rpc_refused_total Calls that ended with an error, by method and gRPC code.
		# TYPE headgate_rpc_refused_total counter
		headgate_rpc_refused_total{code="FailedPrecondition",method="/a/B"} 1
		headgate_rpc_refused_total{code="PermissionDenied",method="/a/B"} 2
		headgate_rpc_refused_total{code="Unauthenticated",method="/a/C"} 1
	`
	if err := testutil.CollectAndCompare(refused, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// contextStream is a stream on which nothing is sent.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s contextStream) Context() context.Context { return s.ctx }

func TestUnknownErrorSaysNothingOutside(t *testing.T) {
	t.Parallel()
	log, unary, stream := calls(t, errors.New("dial postgres://user:secret@db: refused"))
	for _, got := range []error{unary, stream} {
		if want := "internal error; its cause is in the server's log"; got.Error() != want {
			t.Errorf("outside it says %q, want %q", got, want)
		}
		if status.Code(got) != codes.Internal {
			t.Errorf("code %v, want Internal", status.Code(got))
		}
	}
	for _, want := range []string{"dial postgres://", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not have %q: %s", want, log)
		}
	}
}

func TestStatusOfAHandlerStaysAndSuccessIsNoError(t *testing.T) {
	t.Parallel()
	log, unary, _ := calls(t, status.Error(codes.Unimplemented, "not here"))
	if status.Code(unary) != codes.Unimplemented || rpcstatus.Answered(unary) || log != "" {
		t.Errorf("got %v, log %q", unary, log)
	}
	_, unary, stream := calls(t, nil)
	if unary != nil || !errors.Is(stream, io.EOF) {
		t.Errorf("got %v and %v, want nothing and io.EOF", unary, stream)
	}
}

func TestConnectionFailureIsUnavailableAndNoAnswer(t *testing.T) {
	t.Parallel()
	err := rpcstatus.FromError(status.Error(codes.Unavailable, "connection refused"))
	if !errors.Is(err, rules.ErrUnavailable) || rpcstatus.Answered(err) {
		t.Errorf("got %v (%T), want ErrUnavailable that no server gave", err, err)
	}
	if err := rpcstatus.FromError(status.Error(codes.Unauthenticated, "who are you")); !errors.Is(err, rules.ErrUnauthenticated) {
		t.Errorf("got %v, want ErrUnauthenticated for Unauthenticated", err)
	}
	if err := rpcstatus.FromError(nil); err != nil {
		t.Errorf("got %v for nil", err)
	}
}
