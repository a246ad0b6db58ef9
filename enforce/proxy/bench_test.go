package proxy_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/rules"
)

// answers decides everything in one way, and keeps nothing.
type answers enforce.Decision

func (a answers) Decide(context.Context, *rules.Request) enforce.Decision { return enforce.Decision(a) }

func (a answers) Malformed(string, string) enforce.Decision { return enforce.Decision(a) }

// at is a service that answers without a connection.
type at func(*http.Request) (*http.Response, error)

func (f at) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// BenchmarkServeHTTP is what the door costs beside the decision and, where it forwards, the connection to the service.
func BenchmarkServeHTTP(b *testing.B) {
	upstream, err := url.Parse("http://127.0.0.1:9000")
	if err != nil {
		b.Fatal(err)
	}
	for name, decision := range map[string]enforce.Decision{
		"allowed": {Allowed: true},
		"refused": {Rule: "r", Reason: enforce.ReasonOverLimit, Status: http.StatusTooManyRequests},
	} {
		b.Run(name, func(b *testing.B) {
			p := proxy.New(answers(decision), proxy.Options{Domain: "d", Upstream: upstream, Log: slog.New(slog.DiscardHandler)})
			p.SetTransport(at(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
			}))
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/search", nil)
			b.ReportAllocs()
			for b.Loop() {
				p.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
