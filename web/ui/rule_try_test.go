package ui_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/ui"
)

// rated is an API that knows how often keys called.
type rated struct {
	adminpb.AdminServiceClient
	resp  *adminpb.KeyRatesResponse
	tried []int64
}

func (r *rated) KeyRates(_ context.Context, in *adminpb.KeyRatesRequest, _ ...grpc.CallOption) (*adminpb.KeyRatesResponse, error) {
	r.tried = in.GetTried()
	return r.resp, nil
}

func TestTryALimitSaysWhatItWouldCatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("api", "{name: per-ip, key: [ip], limit: 3_600/h}")
	r := &rated{AdminServiceClient: w.api, resp: &adminpb.KeyRatesResponse{}}
	var err error
	if w.ui, err = ui.New(ui.Options{API: r}); err != nil {
		t.Fatal(err)
	}
	wants(t, w.page("/d/api/r/per-ip?tab=try"), "No key of this rule was counted")
	r.resp = &adminpb.KeyRatesResponse{
		Version: 1, Keys: 300, Calls: 10_000, Sampled: 300, ShareSampled: 1,
		Steps:     []*adminpb.RateStep{{CallsPerMinute: 1, Keys: 300, Calls: 9_000}, {CallsPerMinute: 1000}},
		Tried:     []*adminpb.RateStep{{CallsPerMinute: 60, Keys: 14, Calls: 210}},
		Histogram: []*adminpb.RateBucket{{From: 1, Below: 2, Keys: 286, Calls: 300}, {From: 100, Below: 200, Keys: 14, Calls: 9_700}},
	}
	page := w.page("/d/api/r/per-ip?tab=try")
	wants(t, page, `data-try="rate">60<`, `data-try="keys">14<`, `data-try="share">2.1%<`, `class="allowed" data-from="1"`, `class="would" data-from="100"`,
		`    limit: <span data-try="yaml">60</span>/min`, "it begins in shadow", "10,000 calls.")
	if strings.Contains(page, "estimate") || len(r.tried) != 1 || r.tried[0] != 60 {
		t.Errorf("asked for %d, and shown as\n%s", r.tried, page)
	}
	r.resp.ShareSampled = 0.25
	wants(t, w.page("/d/api/r/per-ip?tab=try&rate=100/min"), "an estimate from 300 keys, which is 25% of them", `value="100/min"`)
	if r.tried[0] != 100 {
		t.Errorf("asked for %d, want 100", r.tried)
	}
	w.apply("api", "{name: per-ip, key: [ip], limit: 3_600/h burst 4_000}")
	wants(t, w.page("/d/api/r/per-ip?tab=try"), "write <code>burst 4000</code> behind it")
	for _, rate := range []string{"100", "5/s", "unlimited", "0/min", "<b>"} {
		if status, body := w.get("/d/api/r/per-ip?tab=try&rate=" + rate); status != http.StatusBadRequest || !strings.Contains(body, "such as 60/min") {
			t.Errorf("rate=%s: %d", rate, status)
		}
	}
}
