package app

import (
	"net/http"

	"github.com/headgate/headgate/enforce"
)

// InspectDoor is the part of the operations port that inspects, over an engine.
func InspectDoor(engine *enforce.Engine, domains ...string) http.Handler {
	mux := http.NewServeMux()
	(&inspectDoor{engine: engine, domains: domains}).register(mux)
	return mux
}
