package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// record returns a provider, and the spans that it makes.
func record() (*sdk.TracerProvider, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), spans
}

// said is what the attributes of a span say, but for what is random.
func said(s sdk.ReadOnlySpan) (list []string) {
	for _, a := range s.Attributes() {
		if a.Key != "headgate.reference" {
			list = append(list, fmt.Sprintf("%s=%v", a.Key, a.Value.AsInterface()))
		}
	}
	slices.Sort(list)
	return list
}

// away is a store that does not answer.
type away struct{}

func (away) Decide(context.Context, []enforce.Charge) ([]enforce.Verdict, error) {
	return nil, errors.New("away")
}

// limited has versions of 1 a day and of 0, keyed on the API key; in shadow, the second is only judged.
func limited(t *testing.T, percent rules.Percent, failure rules.FailureMode) *rules.Rule {
	t.Helper()
	key, err := rules.ParseKeySource("header:x-api-key")
	if err != nil {
		t.Fatal(err)
	}
	version := func(number int64, text string) *rules.Version {
		rate, err := rules.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		return &rules.Version{Number: number, Spec: rules.Spec{
			Key: []rules.KeySource{key}, Failure: rules.Failure{Mode: failure},
			Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rate}},
		}}
	}
	return &rules.Rule{Domain: "d", Name: "r", UID: "u", Stable: version(1, "1/d"), Candidate: version(2, "0/s"), Percent: percent}
}

func TestSpanOfADecisionSaysWhatWasDecidedAndWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		store   enforce.Limiter
		rules   []*rules.Rule
		want    string
		refused bool
	}{
		{"allowed", memlimit.New(), []*rules.Rule{limited(t, 0, rules.FailOpen)}, "decision=allowed revision=4 rule=r version=v1", false},
		{"refused by the candidate", memlimit.New(), []*rules.Rule{limited(t, rules.AllKeys, rules.FailOpen)}, "decision=refused reason=over_limit revision=4 rule=r version=v2", true},
		{"unmatched", memlimit.New(), nil, "decision=unmatched revision=4", false},
		{"failed open", away{}, []*rules.Rule{limited(t, 0, rules.FailOpen)}, "decision=allowed reason=store_unavailable revision=4", false},
		{"failed closed", away{}, []*rules.Rule{limited(t, 0, rules.FailClosed)}, "decision=refused reason=store_unavailable revision=4 rule=r version=v1", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			engine := enforce.NewEngine(c.store, nobody{}, slog.New(slog.DiscardHandler))
			engine.Swap(rules.NewIndex(rules.Domain{Name: "d", Revision: 4}, c.rules))
			provider, spans := record()
			decider := app.TracedDecisions(provider, engine)
			req := &rules.Request{Domain: "d", Method: "GET", Path: "/secret", Header: http.Header{"X-Api-Key": {"secret"}}, Hits: 1}
			var want []string
			for field := range strings.FieldsSeq("domain=d " + c.want) {
				want = append(want, "headgate."+field)
			}
			slices.Sort(want)
			first := decider.Decide(t.Context(), req)
			if first.Allowed == c.refused {
				t.Errorf("decided %+v", first)
			}
			ended := spans.Ended()
			if len(ended) != 1 || ended[0].Name() != "headgate.decide" {
				t.Fatalf("%d spans, want one", len(ended))
			}
			if diff := cmp.Diff(want, said(ended[0])); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if c.refused && !slices.ContainsFunc(ended[0].Attributes(), func(a attribute.KeyValue) bool { return a.Value.AsString() == first.Reference }) {
				t.Errorf("the reference %s is not among %v", first.Reference, ended[0].Attributes())
			}
			decider.DecideEach(t.Context(), []*rules.Request{req}, make([]enforce.Status, 1))
			if n := len(spans.Ended()); n != 2 {
				t.Errorf("%d spans after a call with descriptors, want 2", n)
			}
		})
	}
}

func TestSpanOfARequestContinuesTheCallersTrace(t *testing.T) {
	t.Parallel()
	const trace1, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, c := range []struct {
		name   string
		header http.Header
		want   string // the trace, the parent, the state that is handed on
	}{
		{"sampled", http.Header{"Traceparent": {"00-" + trace1 + "-" + parent + "-01"}, "Tracestate": {"a=1"}}, trace1 + " " + parent + " a=1"},
		{"none", nil, "new 0000000000000000 "},
		{"unreadable", http.Header{"Traceparent": {"garbage"}, "Tracestate": {"a=1"}}, "new 0000000000000000 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			provider, spans := record()
			var inner trace.SpanContext
			var handedOn, state string
			h := app.TracedRequests(provider, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				inner, handedOn, state = trace.SpanContextFromContext(r.Context()), r.Header.Get("Traceparent"), r.Header.Get("Tracestate")
			}))
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/secret?token=secret", nil)
			if c.header != nil {
				r.Header = c.header
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			s := spans.Ended()[0]
			id := s.SpanContext().TraceID().String()
			if c.header == nil || c.name == "unreadable" {
				id = "new"
			}
			if got := fmt.Sprint(id, " ", s.Parent().SpanID(), " ", state); got != c.want {
				t.Errorf("the span is of %q, want %q", got, c.want)
			}
			if want := fmt.Sprintf("00-%s-%s-01", s.SpanContext().TraceID(), s.SpanContext().SpanID()); handedOn != want || !inner.Equal(s.SpanContext()) {
				t.Errorf("handed on %q in the span %v, want %q", handedOn, inner, want)
			}
		})
	}
}

func TestSpanOfARequestHasItsMethodAndStatusAndNothingElseOfTheCaller(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		answer http.HandlerFunc
		want   string
		failed bool
	}{
		{"GET", func(http.ResponseWriter, *http.Request) {}, "GET: http.request.method=GET http.response.status_code=200", false},
		{"POST", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, "POST: http.request.method=POST http.response.status_code=429", false},
		{"SECRET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "_OTHER: http.request.method=_OTHER http.response.status_code=503", true},
		{"GET", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		}, "GET: http.request.method=GET http.response.status_code=418", false},
		{"GET", func(w http.ResponseWriter, _ *http.Request) { upgrade(t, w) }, "GET: http.request.method=GET http.response.status_code=101", false},
	} {
		provider, spans := record()
		done := make(chan struct{}) // an upgraded connection tells the caller before the handler returns
		traced := app.TracedRequests(provider, c.answer)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(done)
			traced.ServeHTTP(w, r)
		}))
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "%s /secret?token=secret HTTP/1.1\r\nHost: secret\r\nUser-Agent: secret\r\nX-Forwarded-For: 192.0.2.1\r\nConnection: close\r\n\r\n", c.method); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		<-done
		server.Close()
		s := spans.Ended()[0]
		if got := s.Name() + ": " + strings.Join(said(s), " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.method, got, c.want)
		}
		if failed := s.Status().Code == codes.Error; failed != c.failed || s.SpanKind() != trace.SpanKindServer {
			t.Errorf("%s: failed %t and of kind %v, want %t and a server's", c.method, failed, s.SpanKind(), c.failed)
		}
	}
}

// upgrade answers as a service does that goes on in another protocol.
func upgrade(t *testing.T, w http.ResponseWriter) {
	t.Helper()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	_ = conn.Close()
}
