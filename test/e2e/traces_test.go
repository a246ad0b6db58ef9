package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/test/harness"
)

// collector keeps the spans that it is sent, by gRPC or HTTP.
type collector struct {
	coltracepb.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []collected
}

type collected struct {
	*tracepb.Span
	service string // and instance
}

func (c *collector) Export(_ context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range r.GetResourceSpans() {
		about := attributes(from.GetResource().GetAttributes())
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, collected{s, strings.TrimSpace(about["service.name"] + " " + about["service.instance.id"])})
			}
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// ServeHTTP is the collector's door for OTLP over HTTP.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request coltracepb.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = c.Export(r.Context(), &request)
}

// serve returns where the collector takes gRPC, and HTTP.
func (c *collector) serve(t *testing.T) (overGRPC, overHTTP string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	web := httptest.NewServer(c)
	t.Cleanup(web.Close)
	return "http://" + l.Addr().String(), web.URL
}

// of waits for the spans of a trace, by their names, and wants those.
func (c *collector) of(t *testing.T, trace string, names ...string) map[string]collected {
	t.Helper()
	found := map[string]collected{}
	harness.Eventually(t, patience, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if fmt.Sprintf("%x", s.GetTraceId()) == trace {
				found[s.GetName()] = s
			}
		}
		for _, name := range names {
			if _, ok := found[name]; !ok {
				return fmt.Errorf("trace %s has no span %q among %d", trace, name, len(found))
			}
		}
		return nil
	})
	if len(found) != len(names) {
		t.Errorf("trace %s has %d spans, want %d", trace, len(found), len(names))
	}
	return found
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			all[a.GetKey()] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			all[a.GetKey()] = fmt.Sprint(v.DoubleValue)
		}
	}
	return all
}

// callerSpan is the span in which the callers of this test call; the last digit of their trace tells them apart.
const callerSpan = "b7ad6b7169203331"

func traceID(n int) string { return fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02d", n) }

func traceParent(n int) string { return "00-" + traceID(n) + "-" + callerSpan + "-01" }

// The caller's trace goes through the sidecar to the service and to the collector, by each door and each protocol; nothing
// of what the caller is or says goes with it. Where the sampler is not set, those who call decide.
func TestTracesReachTheCollector(t *testing.T) {
	t.Parallel()
	s := start(t)
	got := &collector{}
	overGRPC, overHTTP := got.serve(t)
	fast := "OTEL_BSP_SCHEDULE_DELAY=20"
	if err := s.plane.Interrupt(); err != nil {
		t.Fatal(err)
	}
	s.env = []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + overHTTP, "OTEL_TRACES_SAMPLER=always_on", fast}
	s.startPlane()
	s.env = []string{
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + overGRPC, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_SERVICE_NAME=shop-limits", fast,
	}
	handedOn := make(chan string, 1)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handedOn <- r.Header.Get("Traceparent") }))
	defer service.Close()
	rlsAt := harness.FreeAddr(t)
	c := s.sidecar("one", "d", "--upstream", service.URL, "--rls-listen", rlsAt)
	s.apply(rule("2/d"))
	s.must("promote", "d/r", "--to", "100%", "--wait")

	traced(t, c, "http://"+c.proxy+"/secret?token=secret", 1, http.StatusOK)
	found := got.of(t, traceID(1), "GET", "headgate.decide")
	request, decision := found["GET"], found["headgate.decide"]
	parents := fmt.Sprintf("%x %t", request.GetParentSpanId(), slices.Equal(decision.GetParentSpanId(), request.GetSpanId()))
	if want := callerSpan + " true"; parents != want {
		t.Errorf("the request's parent, and whether it is the decision's: %s, want %s", parents, want)
	}
	if want, is := fmt.Sprintf("00-%s-%x-01", traceID(1), request.GetSpanId()), <-handedOn; is != want {
		t.Errorf("the service got traceparent %q, want %q", is, want)
	}
	if request.service != "shop-limits one" || request.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("the span is of %q and %v, want shop-limits one and a server's", request.service, request.GetKind())
	}
	said := attributes(decision.GetAttributes())
	if said["headgate.store.seconds"] == "" {
		t.Errorf("the decision does not say how long the store took: %v", said)
	}
	delete(said, "headgate.store.seconds")
	want := map[string]string{"headgate.domain": "d", "headgate.decision": "allowed", "headgate.rule": "r", "headgate.version": "v1", "headgate.revision": said["headgate.revision"]}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("the decision says (-want +got):\n%s", diff)
	}

	traced(t, c, "http://"+c.ops+"/check", 2, http.StatusOK)
	got.of(t, traceID(2), "GET /check", "headgate.decide")
	callRLS(t, rlsAt, 3)
	found = got.of(t, traceID(3), "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "headgate.decide")
	if refused := attributes(found["headgate.decide"].GetAttributes()); refused["headgate.decision"] != "refused" || refused["headgate.reason"] != "over_limit" {
		t.Errorf("the third call of two: %v", refused)
	}

	for name, p := range map[string]*harness.Process{"sidecar": c.process, "control plane": s.plane} {
		if err := p.Interrupt(); err != nil {
			t.Errorf("the %s stopped with %v", name, err)
		}
	}
	got.wantOnlyWhatMayBeKnown(t)
}

// wantOnlyWhatMayBeKnown looks at all spans, of which no more come.
func (c *collector) wantOnlyWhatMayBeKnown(t *testing.T) {
	t.Helper()
	admin := map[string]int{}
	for _, s := range c.spans {
		if s.service == "headgate-controlplane" {
			admin[s.GetName()]++
		}
		for _, secret := range []string{"secret", "192.0.2.1"} {
			if strings.Contains(s.String(), secret) {
				t.Errorf("%q is in the span %v", secret, s.Span)
			}
		}
	}
	for name := range admin {
		if !strings.HasPrefix(name, "headgate.admin.v1.AdminService/") || strings.HasSuffix(name, "/Await") {
			t.Errorf("the control plane made a span of %s, which is no call with one answer", name)
		}
	}
	if admin["headgate.admin.v1.AdminService/Apply"] != 1 || admin["headgate.admin.v1.AdminService/Promote"] != 1 {
		t.Errorf("spans of the control plane: %v, want Apply and Promote among them", admin)
	}
}

// traced calls as a client whose trace is recorded.
func traced(t *testing.T, c *sidecar, url string, trace, want int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", traceParent(trace))
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	r.Header.Set("X-Forwarded-Uri", "/secret")
	r.Header.Set("User-Agent", "secret")
	answer, err := c.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != want {
		t.Errorf("%s: %d, want %d", url, answer.StatusCode, want)
	}
}

func callRLS(t *testing.T, address string, trace int) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceParent(trace))
	_, err = ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "d", Descriptors: []*ratelimitcommon.RateLimitDescriptor{{
			Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.1"}, {Key: "token", Value: "secret"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// blackHole takes connections and never says a word; it counts them.
func blackHole(t *testing.T) (address string, taken *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken = &atomic.Int64{}
	var conns []net.Conn
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
			taken.Add(1)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepted
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return l.Addr().String(), taken
}

func TestTracesAreOffUnlessTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	s := start(t)
	address, taken := blackHole(t)
	if err := s.plane.Interrupt(); err != nil {
		t.Fatal(err)
	}
	s.env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + address, "OTEL_TRACES_SAMPLER=always_on", "OTEL_BSP_SCHEDULE_DELAY=1"}
	s.startPlane()
	c := s.sidecar("one", "d")
	s.apply(rule("2/d"))
	traced(t, c, "http://"+c.proxy+"/", 1, http.StatusOK)
	// What is queued is sent on stop at the latest.
	for name, p := range map[string]*harness.Process{"sidecar": c.process, "control plane": s.plane} {
		if err := p.Interrupt(); err != nil {
			t.Errorf("the %s stopped with %v", name, err)
		}
	}
	if n := taken.Load(); n != 0 {
		t.Errorf("the collector was called %d times", n)
	}
}

// Requests pass while nobody takes their spans, many more than the queue holds, and the program stops.
func TestCollectorThatDoesNotAnswerFailsNoRequest(t *testing.T) {
	t.Parallel()
	s := start(t)
	address, taken := blackHole(t)
	s.env = []string{
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + address, "OTEL_TRACES_SAMPLER=always_on",
		"OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BSP_MAX_QUEUE_SIZE=4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=2", "OTEL_EXPORTER_OTLP_TIMEOUT=3600000",
	}
	c := s.sidecar("one", "d")
	s.apply(rule("1_000/d"))
	s.must("promote", "d/r", "--to", "100%", "--wait")
	harness.Eventually(t, patience, func() error {
		traced(t, c, "http://"+c.proxy+"/", 1, http.StatusOK)
		if taken.Load() == 0 {
			return fmt.Errorf("the collector has not been called")
		}
		return nil
	})
	for range 100 {
		traced(t, c, "http://"+c.proxy+"/", 1, http.StatusOK)
	}
	if got := c.outcomes("r")["failed_open"]; got != 0 {
		t.Errorf("%d decisions failed open", got)
	}
	if err := c.process.Interrupt(); err != nil {
		t.Errorf("the sidecar stopped with %v", err)
	}
}
