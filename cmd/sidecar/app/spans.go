package app

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/enforce/rls"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// spans makes the spans of a sidecar: one for each request of a door, and in it one for the decision. Nothing in them comes
// from the caller but the method. A nil *spans makes none, and hands on what it is given as it is.
type spans struct {
	provider trace.TracerProvider
	tracer   trace.Tracer
	context  propagation.TraceContext // the headers traceparent and tracestate
}

func newSpans(provider trace.TracerProvider) *spans {
	return &spans{provider: provider, tracer: provider.Tracer("github.com/headgate/headgate/cmd/sidecar")}
}

// requests makes a span for each request of a handler. The request has it as its own parent then, for a service behind.
//
// Otelhttp would do the same, but its spans have the caller's address, path and user agent, which no option leaves out.
func (s *spans) requests(next http.Handler) http.Handler {
	if s == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method, header := knownMethod(r.Method), propagation.HeaderCarrier(r.Header)
		name, attributes := method, []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(method)}
		if r.Pattern != "" {
			name, attributes = method+" "+r.Pattern, append(attributes, semconv.HTTPRoute(r.Pattern))
		}
		ctx, span := s.tracer.Start(s.context.Extract(r.Context(), header), name,
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
		r.Header.Del("Tracestate") // goes with the parent that was replaced, and is written again where that was one
		s.context.Inject(ctx, header)
		seen := &seenStatus{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			span.SetAttributes(semconv.HTTPResponseStatusCode(seen.status))
			if seen.status >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}()
		next.ServeHTTP(seen, r.WithContext(ctx))
	})
}

// knownMethod is the method, or what OpenTelemetry calls those that no standard has: a caller can make up any.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "_OTHER"
}

// seenStatus remembers the status of an answer. What else the writer can do, [http.ResponseController] finds.
type seenStatus struct {
	http.ResponseWriter
	status int
}

func (s *seenStatus) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *seenStatus) WriteHeader(status int) {
	s.status = status // informational ones come before the one that counts
	s.ResponseWriter.WriteHeader(status)
}

// Hijack is how an upgrade gets its connection, and its answer past WriteHeader.
func (s *seenStatus) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	s.status = http.StatusSwitchingProtocols
	return http.NewResponseController(s.ResponseWriter).Hijack()
}

// calls makes a span for each call of the rate limit service, and none for its health and reflection.
func (s *spans) calls() []grpc.ServerOption {
	if s == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(s.provider), otelgrpc.WithPropagators(s.context),
		otelgrpc.WithFilter(func(call *stats.RPCTagInfo) bool {
			return call.FullMethodName == ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName
		}),
	))}
}

// decider is what the doors ask.
type decider interface {
	proxy.Decider
	rls.Decider
}

// decisions makes a span for each decision of the engine.
func (s *spans) decisions(engine *enforce.Engine) decider {
	if s == nil {
		return engine
	}
	return tracedEngine{engine, s.tracer}
}

type tracedEngine struct {
	*enforce.Engine
	tracer trace.Tracer
}

// The attributes of a decision. The time of the store is missing where it was not asked, or counts in the process.
const (
	attrDomain    = attribute.Key("headgate.domain")
	attrDecision  = attribute.Key("headgate.decision")
	attrRevision  = attribute.Key("headgate.revision")
	attrRule      = attribute.Key("headgate.rule")
	attrVersion   = attribute.Key("headgate.version")
	attrReason    = attribute.Key("headgate.reason")
	attrReference = attribute.Key("headgate.reference")
	attrStore     = attribute.Key("headgate.store.seconds")
)

func (t tracedEngine) Decide(ctx context.Context, req *rules.Request) enforce.Decision {
	ctx, span := t.tracer.Start(ctx, "headgate.decide")
	defer span.End()
	d := t.Engine.Decide(ctx, req)
	describe(span, req.Domain, &d)
	return d
}

func (t tracedEngine) DecideEach(ctx context.Context, reqs []*rules.Request, statuses []enforce.Status) enforce.Decision {
	ctx, span := t.tracer.Start(ctx, "headgate.decide")
	defer span.End()
	d := t.Engine.DecideEach(ctx, reqs, statuses)
	describe(span, reqs[0].Domain, &d)
	return d
}

func describe(span trace.Span, domain string, d *enforce.Decision) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attrDomain.String(domain), attrDecision.String(d.Label()), attrRevision.Int64(d.Revision))
	if d.Rule != "" {
		span.SetAttributes(attrRule.String(enforce.PolicyName(d.Rule, d.Limit)), attrVersion.String("v"+strconv.FormatInt(d.Version, 10)))
	}
	reason := d.Reason
	if reason == "" && slices.ContainsFunc(d.Outcomes, withoutStore) {
		reason = enforce.ReasonStoreUnavailable
	}
	if reason != "" {
		span.SetAttributes(attrReason.String(string(reason)))
	}
	if d.Reference != "" {
		span.SetAttributes(attrReference.String(d.Reference))
	}
}

// withoutStore reports whether the store did not answer for a version.
func withoutStore(o enforce.VersionOutcome) bool {
	switch o.Outcome {
	case tally.FailedOpen, tally.FailedClosed, tally.LocalAllowed, tally.LocalRefused, tally.Unknown:
		return true
	}
	return false
}

// store notes in the span of a decision how long Redis took.
func (s *spans) store(limiter *redislimit.Limiter) enforce.Limiter {
	if s == nil {
		return limiter
	}
	return tracedStore{limiter}
}

type tracedStore struct{ *redislimit.Limiter }

func (t tracedStore) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	begun := time.Now()
	verdicts, err := t.Limiter.Decide(ctx, charges)
	trace.SpanFromContext(ctx).SetAttributes(attrStore.Float64(time.Since(begun).Seconds()))
	return verdicts, err
}
