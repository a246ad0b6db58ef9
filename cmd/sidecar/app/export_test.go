package app

import (
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules/rollout"
)

// FreezeDoor is the part of the operations port that freezes, over an engine, and what it reports.
func FreezeDoor(engine *enforce.Engine, path string, changed func(), log *slog.Logger, domains ...string) (http.Handler, func() []rollout.BreakGlass) {
	glass := newBreakGlass(engine, path, log)
	glass.changed = changed
	mux := http.NewServeMux()
	(&freezeDoor{glass: glass, domains: domains}).register(mux)
	return mux, glass.Reports
}

// TracedRequests makes a span for each request of a handler.
func TracedRequests(provider trace.TracerProvider, h http.Handler) http.Handler {
	return newSpans(provider).requests(h)
}

// TracedDecisions makes a span for each decision of an engine.
func TracedDecisions(provider trace.TracerProvider, engine *enforce.Engine) decider {
	return newSpans(provider).decisions(engine)
}

// Profile serves profiles.
var Profile http.HandlerFunc = profile
