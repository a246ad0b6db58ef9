package app

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"

	"github.com/headgate/headgate/cmd/internal/traces"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *App) openTraces(ctx context.Context, log *slog.Logger) (err error) {
	a.traces, err = traces.Open(ctx, log, semconv.ServiceName("headgate-controlplane"), semconv.ServiceVersion(Version()))
	if a.traces != nil {
		a.release = append(a.release, a.traces.Close)
	}
	return err
}

// calls makes a span for each call of the admin API that gets one answer. Streams have none, neither its own nor those of
// xDS: a span that lasts as long as a sidecar runs says nothing until it ends.
func calls(provider trace.TracerProvider) stats.Handler {
	traced := map[string]bool{}
	service := &adminpb.AdminService_ServiceDesc
	for _, m := range service.Methods {
		traced["/"+service.ServiceName+"/"+m.MethodName] = true
	}
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(provider), otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(func(call *stats.RPCTagInfo) bool { return traced[call.FullMethodName] }),
	)
}
