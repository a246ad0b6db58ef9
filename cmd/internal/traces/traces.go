// Package traces sends a program's traces to an OpenTelemetry collector, where its environment asks for them.
//
// Everything is set by OpenTelemetry's own variables. OTEL_TRACES_EXPORTER=otlp switches traces on: without it [Open]
// returns nil, nothing is dialled, and no span is ever made. Unless OTEL_TRACES_SAMPLER says otherwise, a trace that a
// caller has begun is continued as the caller chose, and of the others one in a hundred is begun.
//
// Who ends a span never waits. Spans are queued and sent in batches; what does not fit into the queue
// (OTEL_BSP_MAX_QUEUE_SIZE, 2048 by default) is dropped, and so is what the collector does not take.
package traces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Help says to people how a program that uses this package is told to send traces.
const Help = "OTEL_TRACES_EXPORTER=otlp sends OpenTelemetry traces, which are off otherwise. Its own variables say where to and which:\n" +
	"OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL (grpc, http/protobuf), OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER. By\n" +
	"default a trace that a caller has begun is continued, and of the others one in a hundred is begun (always_on: each)."

// Provider makes spans, and sends them.
type Provider struct {
	*sdk.TracerProvider
	cut context.CancelFunc // breaks off what is being sent
}

// Open returns a provider, or nil where the environment asks for no traces. It does not wait for the collector. About is
// what the program says of itself; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME have the last word.
func Open(ctx context.Context, log *slog.Logger, about ...attribute.KeyValue) (*Provider, error) {
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "", "none":
		return nil, nil
	case "otlp":
	default:
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is neither otlp nor none", exporter)
	}
	log = log.With("component", "traces")
	tellOfTrouble(log)
	sampler, err := newSampler(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return nil, err
	}
	self, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(about...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	exporter, err := newExporter(ctx, protocol)
	if err != nil {
		return nil, err
	}
	log.Info("traces are sent", "protocol", protocol, "sampler", sampler.Description())
	return newProvider(exporter, sdk.WithSampler(sampler), sdk.WithResource(self)), nil
}

func newExporter(ctx context.Context, protocol string) (exporter sdk.SpanExporter, err error) {
	switch protocol {
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	case "http/protobuf", "http/json":
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is none of grpc, http/protobuf, http/json", protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_*: %w", err)
	}
	return exporter, nil
}

// ratio is the share of traces that begin here and are recorded, where nothing is said.
const ratio = 0.01

// newSampler reads what the SDK would read itself, but with another default, and strictly: where the SDK cannot read a
// setting, it records everything.
func newSampler(name, arg string) (sdk.Sampler, error) {
	share := 1.0
	if name == "" {
		name, share = "parentbased_traceidratio", ratio
	}
	if arg != "" {
		var err error
		if share, err = strconv.ParseFloat(arg, 64); err != nil || !(share >= 0 && share <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: %q is not a number from 0 to 1", arg)
		}
	}
	switch name {
	case "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "traceidratio":
		return sdk.TraceIDRatioBased(share), nil
	case "parentbased_always_on":
		return sdk.ParentBased(sdk.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdk.ParentBased(sdk.NeverSample()), nil
	case "parentbased_traceidratio":
		return sdk.ParentBased(sdk.TraceIDRatioBased(share)), nil
	}
	return nil, fmt.Errorf("OTEL_TRACES_SAMPLER: %q is none of always_on, always_off, traceidratio, and these after parentbased_", name)
}

func newProvider(to sdk.SpanExporter, options ...sdk.TracerProviderOption) *Provider {
	cut, end := context.WithCancel(context.Background())
	return &Provider{sdk.NewTracerProvider(append(options, sdk.WithBatcher(exporter{to, cut}))...), end}
}

// closeTime is how long the last spans may take to be sent on stop.
const closeTime = 2 * time.Second

// Close sends the spans that are queued. What the collector has not taken within two seconds is dropped.
func (p *Provider) Close() error {
	late := time.AfterFunc(closeTime, p.cut)
	defer late.Stop()
	defer p.cut()
	if err := p.Shutdown(context.Background()); err != nil {
		return fmt.Errorf("stop sending traces: %w", err)
	}
	return nil
}

// exporter is one whose sending can be broken off. The SDK's own limit on its end would leave the sending behind.
type exporter struct {
	sdk.SpanExporter
	cut context.Context
}

var errCut = errors.New("the program stops")

func (e exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(e.cut, func() { end(errCut) })() //nolint:contextcheck // the program's end, beside the batch's own
	return e.SpanExporter.ExportSpans(ctx, spans)
}
