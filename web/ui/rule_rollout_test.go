package ui_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
)

func TestRolloutTabShowsThePlanItsGatesAndWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	w.done("/d/api/r/x/do/promote", form("plan", "shadow 1h, 10% 15m, 100%", "gates", "maxWouldRefuse 2%, minRequests 10"))
	w.count(0, w.judged("x", 2, map[tally.Cell]int64{newly: 3, pass: 997}))
	page := w.page("/d/api/r/x?tab=rollout")
	wants(t, page, `<li class="here" aria-current="step"><strong>shadow</strong>`, "at least 15m", "the end", "Why it waits", "there is no sidecar",
		"Started by ann", `<svg class="gate"`, "maxWouldRefuse 2%", "of 1,000 requests", "✓ passes",
		`href="/d/api/r/x/do/promote?next=1"`, `href="/d/api/r/x/do/abort"`, `id="slider"`, `label="10%" data-to="/d/api/r/x/do/promote?to=10%25" data-share="1000"`)
	w.who.Role = access.Viewer
	page = w.page("/d/api/r/x?tab=rollout")
	wants(t, page, "You cannot promote this rule", "Started by ann")
	if strings.Contains(page, "/do/") || strings.Contains(page, `type="range"`) {
		t.Error("a viewer is offered a change")
	}
}

func TestRolloutTabDoesNotSayThatAStepWhichIsHeldUpIsOver(t *testing.T) {
	t.Parallel()
	for _, holds := range []string{"/d/api/do/freeze", "/d/api/r/x/do/pause"} {
		w := rolling(t)
		w.done("/d/api/r/x/do/promote", form("plan", "10% 15m, 100%", "gates", "maxWouldRefuse 2%"))
		w.done(holds, form("for", "5m"))
		page := w.page("/d/api/r/x?tab=rollout")
		wants(t, page, "15m, anew when it goes on")
		if strings.Contains(page, "15m are over") {
			t.Errorf("after %s no time passes in the step, and it is said to be over", holds)
		}
	}
}

func TestRolloutTabWithoutACandidateSaysWhatBeginsOne(t *testing.T) {
	t.Parallel()
	w := rolling(t)
	page := w.page("/d/api/r/y?tab=rollout")
	wants(t, page, "Nothing is being tried: v1 stable.", "rulectl apply -f rules.yaml")
	if strings.Contains(page, "slider") {
		t.Error("there is a slider, and nothing to promote")
	}
}
