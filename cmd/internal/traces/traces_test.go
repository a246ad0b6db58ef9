package traces

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestSamplerIsTheOneOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, arg string
		want      string // what the sampler says of itself, or part of the error
	}{
		{"", "", "ParentBased{root:TraceIDRatioBased{0.01}"},
		{"", "0.5", "ParentBased{root:TraceIDRatioBased{0.5}"},
		{"always_on", "", "AlwaysOnSampler"},
		{"always_off", "", "AlwaysOffSampler"},
		{"traceidratio", "0.25", "TraceIDRatioBased{0.25}"},
		{"traceidratio", "", "TraceIDRatioBased{1}"},
		{"parentbased_always_on", "", "ParentBased{root:AlwaysOnSampler"},
		{"parentbased_always_off", "", "ParentBased{root:AlwaysOffSampler"},
		{"parentbased_traceidratio", "0.25", "ParentBased{root:TraceIDRatioBased{0.25}"},
		// Each of these records everything when the SDK reads it.
		{"parentbased_ratio", "", `OTEL_TRACES_SAMPLER: "parentbased_ratio"`},
		{"traceidratio", "10", `OTEL_TRACES_SAMPLER_ARG: "10"`},
		{"traceidratio", "1%", `OTEL_TRACES_SAMPLER_ARG: "1%"`},
		{"", "NaN", `OTEL_TRACES_SAMPLER_ARG: "NaN"`},
	} {
		sampler, err := newSampler(c.name, c.arg)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = sampler.Description()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%q %q: got %s, want %s", c.name, c.arg, got, c.want)
		}
	}
}

func TestNothingIsMadeUnlessItIsAskedFor(t *testing.T) {
	t.Parallel()
	if p, err := Open(t.Context(), slog.New(slog.DiscardHandler)); p != nil || err != nil {
		t.Errorf("got %v, %v; want nothing", p, err)
	}
}

func TestProtocolThatIsNotKnownIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := newExporter(t.Context(), "udp"); err == nil || !strings.Contains(err.Error(), `OTEL_EXPORTER_OTLP_PROTOCOL: "udp"`) {
		t.Errorf("got %v, want an error that names the variable and its value", err)
	}
}

// hung is a collector that takes a batch and never answers.
type hung struct {
	tracetest.NoopExporter
	spans atomic.Int64
}

func (h *hung) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	h.spans.Add(int64(len(spans)))
	<-ctx.Done()
	return context.Cause(ctx)
}

// The bubble's clock moves only when every goroutine waits, and the test fails if one is left.
func TestCollectorThatHangsHoldsUpNeitherSpansNorTheStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		collector := &hung{}
		p := newProvider(collector, sdk.WithSampler(sdk.AlwaysSample()))
		begun := time.Now()
		for range 20_000 {
			_, span := p.Tracer("t").Start(t.Context(), "s")
			span.End()
			synctest.Wait()
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("spans waited %v for the collector", took)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != closeTime {
			t.Errorf("the stop took %v, want %v", took, closeTime)
		}
		// One batch at the collector, and what the queue holds.
		if n := collector.spans.Load(); n > sdk.DefaultMaxExportBatchSize+sdk.DefaultMaxQueueSize {
			t.Errorf("%d spans were kept for the collector, of at most %d", n, sdk.DefaultMaxExportBatchSize+sdk.DefaultMaxQueueSize)
		}
	})
}

func TestLastSpansAreSentOnStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		collector := tracetest.NewInMemoryExporter()
		p := newProvider(kept{collector}, sdk.WithSampler(sdk.AlwaysSample()))
		_, span := p.Tracer("t").Start(t.Context(), "last")
		span.End()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if got := collector.GetSpans(); len(got) != 1 || got[0].Name != "last" {
			t.Errorf("sent %v, want the last span", got)
		}
	})
}

// kept does not forget at its end what was sent.
type kept struct{ *tracetest.InMemoryExporter }

func (kept) Shutdown(context.Context) error { return nil }

func TestFailuresAreToldOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		told := &trouble{log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 3 * 60 / 5 {
			told.Handle(errors.New("refused " + strings.Repeat("x", 1<<20)))
			time.Sleep(5 * time.Second)
		}
		if n := strings.Count(log.String(), "refused"); n != 3 || log.Len() > 3*1000 {
			t.Errorf("told %d times in three minutes, in %d bytes; want 3 times, and short", n, log.Len())
		}
	})
}

func TestValuesOfSettingsAreNotLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	handler := unread{slog.NewTextHandler(&log, nil)}
	slog.New(handler).Error("parse headers", "input", "authorization Bearer secret")
	slog.New(handler).Info("provider created")
	if got := log.String(); !strings.Contains(got, "parse headers") || strings.Contains(got, "secret") || strings.Contains(got, "provider") {
		t.Errorf("logged %q, want that headers cannot be read, and nothing else", got)
	}
}
