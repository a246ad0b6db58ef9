package rls_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/rls"
	"github.com/headgate/headgate/rules"
)

// serve serves the door at an address until the test ends, and returns a connection to it.
func serve(t *testing.T, door *rls.Door, address string) *grpc.ClientConn {
	t.Helper()
	l, err := rls.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	t.Cleanup(func() {
		if err := door.Shutdown(context.Background()); err != nil {
			t.Errorf("shut down: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	target := l.Addr().String()
	if l.Addr().Network() == "unix" {
		target = "unix:" + target
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestServesTCPAndUnixSockets(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	for name, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": "unix:" + socket, "unix with slashes": "unix://" + socket + "2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, header+"rules: [{name: r, key: [attr:tenant], limit: 1/d}]")
			client := ratelimitv3.NewRateLimitServiceClient(serve(t, b.door, address))
			for _, text := range []string{"OK: OK(r 1/DAY left 0 reset 24h0m0s)", "OVER_LIMIT: OVER_LIMIT(r 1/DAY left 0 reset 24h0m0s)"} {
				response, err := client.ShouldRateLimit(t.Context(), call(descriptor("tenant", "a")))
				if err != nil {
					t.Fatal(err)
				}
				want(t, response, text)
			}
		})
	}
}

// A killed process leaves its socket behind; another one's is not taken away.
func TestListenReplacesOnlyAbandonedSockets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	first, err := rls.Listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := rls.Listen(t.Context(), "unix:"+path); err == nil {
		_ = second.Close()
		t.Error("listened where another one does")
	}
	unix, ok := first.(*net.UnixListener)
	if !ok {
		t.Fatalf("%T", first)
	}
	unix.SetUnlinkOnClose(false)
	if err := unix.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := rls.Listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatalf("an abandoned socket: %v", err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
}

func TestHealthTellsWhetherThereAreRules(t *testing.T) {
	t.Parallel()
	b := setup(t, header+"rules: []")
	client := healthpb.NewHealthClient(serve(t, b.door, "127.0.0.1:0"))
	for _, serving := range []bool{false, true, false} {
		b.door.SetServing(serving)
		for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService", "ratelimit"} {
			answer, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.GetStatus() == healthpb.HealthCheckResponse_SERVING; got != serving {
				t.Errorf("%q: %v, want serving %v", service, answer.GetStatus(), serving)
			}
		}
	}
}

func TestReflectionListsTheService(t *testing.T) {
	t.Parallel()
	b := setup(t, header+"rules: []")
	stream, err := reflectionpb.NewServerReflectionClient(serve(t, b.door, "127.0.0.1:0")).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(list); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if !slices.Contains(names, "envoy.service.ratelimit.v3.RateLimitService") || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("services %v", names)
	}
}

// blocked is a limiter that answers when it is told to.
type blocked struct{ asked, goOn chan struct{} }

func (b blocked) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	b.asked <- struct{}{}
	<-b.goOn
	return memlimit.New().Decide(ctx, charges)
}

func blockedDoor(t *testing.T) (blocked, *rls.Door) {
	t.Helper()
	limiter := blocked{asked: make(chan struct{}), goOn: make(chan struct{})}
	engine := enforce.NewEngine(limiter, &records{}, slog.New(slog.DiscardHandler))
	rate := rules.Rate{Amount: 1, Burst: 1, Window: rules.MinWindow}
	engine.Swap(rules.NewIndex(rules.Domain{Name: "edge"}, []*rules.Rule{{
		Domain: "edge", Name: "r", UID: "r",
		Stable: &rules.Version{Number: 1, Spec: rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rate}}}},
	}}))
	return limiter, rls.New(engine, translate, nil)
}

// asyncCall calls on its own goroutine, and returns the code of the answer when there is one.
func asyncCall(t *testing.T, conn *grpc.ClientConn) <-chan codes.Code {
	t.Helper()
	answer := make(chan codes.Code, 1)
	go func() {
		_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), call(descriptor("tenant", "a")))
		answer <- status.Code(err)
	}()
	return answer
}

func TestShutdownWaitsForCallsUnderWay(t *testing.T) {
	t.Parallel()
	limiter, door := blockedDoor(t)
	conn := serve(t, door, "127.0.0.1:0")
	watch := watch(t, conn, "")
	answer := asyncCall(t, conn)
	<-limiter.asked
	ended := make(chan error, 1)
	go func() { ended <- door.Shutdown(context.WithoutCancel(t.Context())) }()
	if _, code := last(watch); code != codes.Canceled {
		t.Errorf("a watch beside the call under way ends with %v, want Canceled", code)
	}
	limiter.goOn <- struct{}{}
	if code := <-answer; code != codes.OK {
		t.Errorf("the call under way: %v", code)
	}
	if err := <-ended; err != nil {
		t.Errorf("shut down: %v", err)
	}
	if code := <-asyncCall(t, conn); code != codes.Unavailable {
		t.Errorf("a call after the end: %v, want Unavailable", code)
	}
}

// watch returns a stream of the health service that was told something.
func watch(t *testing.T, conn *grpc.ClientConn, service string) grpc.ServerStreamingClient[healthpb.HealthCheckResponse] {
	t.Helper()
	stream, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// last waits until a watch ends, and returns what it was told last, if anything, and how it ended.
func last(watch grpc.ServerStreamingClient[healthpb.HealthCheckResponse]) (told healthpb.HealthCheckResponse_ServingStatus, end codes.Code) {
	for {
		answer, err := watch.Recv()
		if err != nil {
			return told, status.Code(err)
		}
		told = answer.GetStatus()
	}
}

// A stream that a client keeps open held the shutdown until its time was up.
func TestShutdownEndsStreamsThatCarryNoCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, header+"rules: []")
	b.door.SetServing(true)
	conn := serve(t, b.door, "127.0.0.1:0")
	serving, unknown := watch(t, conn, "ratelimit"), watch(t, conn, "other")
	reflection, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := reflection.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := reflection.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := b.door.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if told, code := last(serving); told != healthpb.HealthCheckResponse_NOT_SERVING || code != codes.Canceled {
		t.Errorf("a watch was told %v, and ended with %v; want NOT_SERVING, Canceled", told, code)
	}
	if told, code := last(unknown); told != healthpb.HealthCheckResponse_UNKNOWN || code != codes.Canceled {
		t.Errorf("a watch of a service that is not here was told %v, and ended with %v; want nothing, Canceled", told, code)
	}
	if _, err := reflection.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("reflection ended with %v, want Canceled", err)
	}
}

func TestShutdownCutsCallsOffWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	limiter, door := blockedDoor(t)
	answer := asyncCall(t, serve(t, door, "127.0.0.1:0"))
	<-limiter.asked
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- door.Shutdown(ctx) }()
	cancel()
	if code := <-answer; code != codes.Unavailable {
		t.Errorf("the call under way: %v, want Unavailable", code)
	}
	limiter.goOn <- struct{}{}
	if diff := cmp.Diff(context.Canceled.Error(), (<-ended).Error()); diff != "" {
		t.Error(diff)
	}
}

func TestMalformedCallsAreInvalidArguments(t *testing.T) {
	t.Parallel()
	b := setup(t, header+"rules: []")
	client := ratelimitv3.NewRateLimitServiceClient(serve(t, b.door, "127.0.0.1:0"))
	_, err := client.ShouldRateLimit(t.Context(), call())
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want InvalidArgument", err)
	}
}

// bytesCodec sends what is no message.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)   { return []byte(v.(string)), nil } //nolint:errcheck // it is one
func (bytesCodec) Unmarshal(_ []byte, _ any) error { return nil }
func (bytesCodec) Name() string                    { return "proto" }

// gRPC answers by itself what it cannot read, and the door counts it all the same.
func TestMessagesThatCannotBeReadAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, header+"rules: []")
	conn := serve(t, b.door, "127.0.0.1:0")
	for name, message := range map[string]string{"no protobuf": "\xff\xff\xff", "cut off": "\x0a\x7f", "not UTF-8": "\x0a\x02\xff\xfe"} {
		err := conn.Invoke(t.Context(), ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, message, nil, grpc.ForceCodec(bytesCodec{}))
		if status.Code(err) != codes.Internal {
			t.Errorf("%s: got %v, want Internal", name, err)
		}
	}
	b.wantCalls(t, map[string]int{"malformed": 3})
}

// A message beyond the bound is refused before it is read.
func TestLargeMessagesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, header+"rules: []")
	client := ratelimitv3.NewRateLimitServiceClient(serve(t, b.door, "127.0.0.1:0"))
	_, err := client.ShouldRateLimit(t.Context(), call(descriptor("a", string(make([]byte, 300<<10)))))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
}

// A sidecar that was stopped while it started ended with an error.
func TestShutdownBeforeServeIsNoFailure(t *testing.T) {
	t.Parallel()
	_, door := blockedDoor(t)
	if err := door.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener, err := rls.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := door.Serve(listener); err != nil {
		t.Error(err)
	}
}
