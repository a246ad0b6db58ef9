package rls_test

import (
	"context"
	"errors"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

const fuzzRules = header + `
shard: attr:tenant
exempt: [{name: probes, match: {path: /livez}}]
rules:
  - {name: address, key: [ip/64], limit: 3/min, response: {headers: both}}
  - {name: path, key: [attr:tenant, path.id], match: {path: "/v1/{id}"}, limits: [{name: fast, limit: 2/s}, {name: slow, limit: 9/d, algorithm: sliding-window}]}
  - {name: plan, key: [attr:tenant], limit: {by: attr:plan, values: {free: 3/h, internal: unlimited}, default: 5/h}, cost: [{match: {method: POST}, cost: 3}, {cost: 1}]}
  - {name: query, key: [query:a], match: {path: /v1/*}, limit: 4/s, missingKey: refuse, response: {headers: none}}
  - {name: shadow, key: [attr:tenant], limit: 1/d}
  - {name: expression, when: 'attr("x").startsWith("y")', key: [], limit: 0/s, failure: closed}
`

// Whatever the message, the answer is bounded: a status for each descriptor, of which one is over its limit exactly when
// the call is, or an error of the kind invalid.
func FuzzShouldRateLimit(f *testing.F) {
	entries := call(
		descriptor("tenant", "a", "plan", "free", "method", "post", "path", "/v1/a%2Fb?a=1&a=2"),
		descriptor("remote_address", "fe80::1%eth0"), descriptor("x", "y"), descriptor("path", "/livez"),
		limited(1<<31, typev3.RateLimitUnit_YEAR, "tenant", "a"),
	)
	for _, seed := range []*ratelimitv3.RateLimitRequest{entries, call(limited(0, typev3.RateLimitUnit_DAY, "tenant", "")), call(nil), {}} {
		raw, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, false)
		f.Add(raw, true)
	}
	b := setup(f, fuzzRules)
	f.Fuzz(func(t *testing.T, raw []byte, away bool) {
		req := &ratelimitv3.RateLimitRequest{}
		if proto.Unmarshal(raw, req) != nil {
			return // gRPC refuses it
		}
		b.limiter.limiter, b.limiter.away = memlimit.New(), away
		for range 3 {
			response, err := b.door.ShouldRateLimit(context.Background(), req)
			if err != nil {
				if !errors.Is(err, rules.ErrInvalid) || len(err.Error()) > 1000 {
					t.Fatalf("%d bytes of error: %v", len(err.Error()), err)
				}
				continue
			}
			checkResponse(t, req, response)
		}
	})
}

func checkResponse(t *testing.T, req *ratelimitv3.RateLimitRequest, response *ratelimitv3.RateLimitResponse) {
	t.Helper()
	if n := len(req.GetDescriptors()); n != len(response.GetStatuses()) || proto.Size(response) > 1000+200*n {
		t.Fatalf("%d statuses and %d bytes for %d descriptors", len(response.GetStatuses()), proto.Size(response), n)
	}
	over := ratelimitv3.RateLimitResponse_OK
	for _, s := range response.GetStatuses() {
		if s.GetCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
			over = s.GetCode()
		} else if s.GetCode() != ratelimitv3.RateLimitResponse_OK {
			t.Fatalf("status %v", s)
		}
		if l := s.GetCurrentLimit(); l != nil && (l.GetUnit() == 0 || l.GetName() == "" || s.GetDurationUntilReset().AsDuration() < 0) {
			t.Fatalf("status %v", s)
		}
	}
	if response.GetOverallCode() != over {
		t.Fatalf("overall %v, with %v", response.GetOverallCode(), response.GetStatuses())
	}
}
