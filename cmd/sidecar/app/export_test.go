package app

import (
	"log/slog"
	"net/http"

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

// Profile serves profiles.
var Profile http.HandlerFunc = profile
