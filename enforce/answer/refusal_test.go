package answer_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/enforce/answer"
	"github.com/headgate/headgate/rules"
)

const (
	quota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	capacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// body reads a problem. Each reference is another one, so it is only noted that there is one.
func body(t *testing.T, resp *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	for name, want := range map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store"} {
		if got := resp.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var got map[string]any
	if err := json.Unmarshal(resp.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if reference, _ := got["reference"].(string); len(reference) == 13 {
		got["reference"] = "some"
	}
	return got
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	busy := rule(t, "global", "0/s")
	busy.Stable.Spec.Response = rules.Response{Status: http.StatusServiceUnavailable, Title: "Busy"}
	hidden := rule(t, "login", "0/s")
	hidden.Stable.Spec.Response.Headers = rules.HeadersNone
	closed := rule(t, "closed", "1/s")
	closed.Stable.Spec.Failure.Mode = rules.FailClosed
	keyed := rule(t, "keyed", "1/s")
	key, err := rules.ParseKeySource("header:x-api-key")
	if err != nil {
		t.Fatal(err)
	}
	keyed.Stable.Spec.Key, keyed.Stable.Spec.MissingKey = []rules.KeySource{key}, rules.MissingRefuse
	for name, c := range map[string]struct {
		rules []*rules.Rule
		hits  int64
		down  bool
		want  map[string]any
	}{
		"over one limit of several": {
			rules: []*rules.Rule{rule(t, "plan", "second=9/s", "minute=6/min"), rule(t, "other", "7/min")}, hits: 4,
			want: map[string]any{
				"type": quota, "title": "Too many requests", "status": 429.0, "detail": "Retry in 20 seconds.",
				"violated-policies": []any{"other", "plan/minute"},
			},
		},
		"above what a limit holds": {
			rules: []*rules.Rule{rule(t, "plan", "3/s")}, hits: 4,
			want: map[string]any{
				"type": quota, "title": "Too many requests", "status": 429.0, "violated-policies": []any{"plan"},
				"detail": "Waiting does not help: the request costs more than the limit can ever hold.",
			},
		},
		"the rule's own words": {
			rules: []*rules.Rule{busy}, hits: 1,
			want: map[string]any{
				"type": capacity, "title": "Busy", "status": 503.0, "detail": "Waiting does not help.", "violated-policies": []any{"global"},
			},
		},
		"hidden": {
			rules: []*rules.Rule{hidden}, hits: 1,
			want: map[string]any{"type": quota, "title": "Too many requests", "status": 429.0},
		},
		"the store is away": {
			rules: []*rules.Rule{closed}, hits: 1, down: true,
			want: map[string]any{
				"type": capacity, "title": "Temporarily unavailable", "status": 503.0, "detail": "Retry in 1 second.",
				"violated-policies": []any{"closed"},
			},
		},
		"no key": {
			rules: []*rules.Rule{keyed}, hits: 1,
			want: map[string]any{
				"type": "about:blank", "title": "Bad request", "status": 400.0, "detail": "A value that identifies the caller is missing.",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(c.rules...)
			w.down = c.down
			w.call(c.hits)
			d := w.call(c.hits)
			c.want["reference"] = "some"
			resp := refusal(&d)
			if diff := cmp.Diff(c.want, body(t, resp)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if float64(resp.Code) != c.want["status"] {
				t.Errorf("status %d, want %v", resp.Code, c.want["status"])
			}
		})
	}
}

func TestMalformedIsCountedAndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	d := newWorld().engine.Malformed("d", "The target is not a path.")
	want := map[string]any{
		"type": "about:blank", "title": "Bad request", "status": 400.0, "detail": "The target is not a path.", "reference": "some",
	}
	if diff := cmp.Diff(want, body(t, refusal(&d))); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestGRPCRefusalIsAStatusInHeaders(t *testing.T) {
	t.Parallel()
	titled := rule(t, "r", "6/min")
	titled.Stable.Spec.Response.Title = "Zu viel, 100 %"
	closed := rule(t, "closed", "1/s")
	closed.Stable.Spec.Failure.Mode = rules.FailClosed
	for name, c := range map[string]struct {
		rule    *rules.Rule
		down    bool
		code    int32
		message string
		retry   int64
	}{
		"resource exhausted": {titled, false, 8, "Zu viel, 100 %: Retry in 10 seconds.", 10},
		"unavailable":        {closed, true, 14, "Temporarily unavailable: Retry in 1 second.", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(c.rule)
			w.down = c.down
			w.call(6)
			d := w.call(1)
			rec := httptest.NewRecorder()
			answer.RefuseGRPC(rec, &d)
			h := rec.Header()
			raw, err := base64.RawStdEncoding.DecodeString(h.Get("Grpc-Status-Details-Bin"))
			if err != nil {
				t.Fatal(err)
			}
			var s status.Status
			if err := proto.Unmarshal(raw, &s); err != nil {
				t.Fatal(err)
			}
			message, err := url.PathUnescape(h.Get("Grpc-Message"))
			if err != nil || message != c.message || s.GetMessage() != c.message || s.GetCode() != c.code {
				t.Errorf("header %q, status %d %q; want %d %q", message, s.GetCode(), s.GetMessage(), c.code, c.message)
			}
			var retry errdetails.RetryInfo
			var request errdetails.RequestInfo
			if err := s.GetDetails()[0].UnmarshalTo(&retry); err != nil || retry.GetRetryDelay().GetSeconds() != c.retry {
				t.Errorf("retry after %v, want %d s", retry.GetRetryDelay(), c.retry)
			}
			if err := s.GetDetails()[1].UnmarshalTo(&request); err != nil || request.GetRequestId() != d.Reference {
				t.Errorf("reference %q, want %q", request.GetRequestId(), d.Reference)
			}
			if rec.Code != http.StatusOK || rec.Body.Len() > 0 {
				t.Errorf("status %d, %d bytes; want headers alone", rec.Code, rec.Body.Len())
			}
		})
	}
}

// A service behind the door may have limits of its own: the lists are joined, the older headers are ours.
func TestHeadersOfTheServiceStayBesideOurs(t *testing.T) {
	t.Parallel()
	r := rule(t, "r", "6/min")
	r.Stable.Spec.Response.Headers = rules.HeadersBoth
	d := newWorld(r).call(1)
	h := http.Header{"Ratelimit": {`"own";r=1`}, "X-Ratelimit-Limit": {"1"}}
	answer.Add(h, &d)
	want := http.Header{
		"Ratelimit": {`"own";r=1`}, "RateLimit": {`"r";r=5;t=10`}, "RateLimit-Policy": {`"r";q=6;w=60`},
		"X-RateLimit-Limit": {"6"}, "X-RateLimit-Remaining": {"5"}, "X-RateLimit-Reset": {"10"},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// What every allowed answer costs.
func BenchmarkFields(b *testing.B) {
	d := newWorld(rule(b, "api-key-plan", "600/min burst 1200")).call(1)
	var buffer [6]answer.Field
	b.ReportAllocs()
	for b.Loop() {
		if len(answer.Fields(buffer[:0], &d)) != 2 {
			b.Fatal("not the standard headers")
		}
	}
}
