package ui_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/ui"
)

func TestVersionsShowWhatTheyWereAndHowTwoDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-ip, key: [ip], limit: 60/min, description: one}")
	w.promote("api", "per-ip", 10_000)
	w.apply("api", `{name: per-ip, key: [ip], limit: 30/min, description: "<b>two"}`)
	page := w.page("/d/api/r/per-ip?tab=versions")
	wants(t, page, "30 calls a minute", "60 calls a minute", `<td class="text removed"><span class="sr">removed: </span>    limit: 60/min</td>`,
		`<span class="sr">added: </span>    limit: 30/min</td>`, "&#43;    description: &#34;&lt;b&gt;two", "<li>stable ", "<li>shadow ")
	if strings.Contains(page, "do/rollback?to=") {
		t.Error("a rollback is offered to the version that is in force, or to one that never was")
	}
	wants(t, w.page("/d/api/r/per-ip?tab=versions&a=2&b=2"), "Pick two versions")
	if status, body := w.get("/d/api/r/per-ip?tab=versions&a=7"); status != http.StatusNotFound || !strings.Contains(body, "no version 7") {
		t.Errorf("a version that is not there: %d\n%s", status, body)
	}
	if status, _ := w.get("/d/api/r/per-ip?tab=versions&b=x"); status != http.StatusBadRequest {
		t.Errorf("a version that is no number: %d", status)
	}
	if _, err := w.api.Delete(w.as(), &adminpb.DeleteRequest{Domain: "api", Rule: "per-ip"}); err != nil {
		t.Fatal(err)
	}
	wants(t, w.page("/d/api/r/per-ip?tab=versions"), "do/rollback?to=1", "deleted")
	wants(t, w.page("/d/api/r/per-ip?tab=definition"), "The rule is deleted")
}

func TestDefinitionCanBeCopiedAndTried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked *rules.Spec
	dashboard, err := ui.New(ui.Options{API: w.api, Answers: func(_ context.Context, _ string, spec *rules.Spec) (allowed, refused *ui.Answer, err error) {
		asked = spec
		return &ui.Answer{Status: http.StatusOK, Header: http.Header{"RateLimit": {`"plan";r=59`}}}, &ui.Answer{Status: http.StatusTooManyRequests, Body: []byte(`{"status":429}`)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.ui = dashboard
	w.apply("api", `{name: plan, match: {method: POST, path: "/v1/{id}/it's/*", header: {x-debug: {present: true}}}, key: [header:x-api-key, cookie:sid], limit: {by: header:x-plan, values: {free: 60/min, pro: unlimited}, default: unlimited}}`)
	wants(t, w.page("/d/api/r/plan?tab=definition"), "apiVersion: headgate/v1", `href="/d/api/r/plan/do/delete"`, "<li><code>    key: [header:x-api-key, cookie:sid]</code></li>",
		"HTTP/1.1 200 OK\nRateLimit: &#34;plan&#34;;r=59", "HTTP/1.1 429 Too Many Requests", "with the rate of the plan free",
		`curl -i -X POST -H &#39;x-debug: 1&#39; -H &#39;x-api-key: YOUR-API-KEY&#39; -H &#39;x-plan: YOUR-PLAN&#39; -b &#39;sid=YOUR-SID&#39; &#39;http://SIDECAR:8080/v1/1/it&#39;\&#39;&#39;s/1&#39;`)
	if asked == nil || asked.Limits[0].Rate.Amount != 60 || len(asked.Key) > 0 {
		t.Errorf("answers were asked of %+v", asked)
	}
}
