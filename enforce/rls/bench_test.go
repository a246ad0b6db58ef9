package rls_test

import (
	"context"
	"fmt"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// BenchmarkShouldRateLimit is what the door and the engine cost, with counters in memory and without gRPC's transport.
func BenchmarkShouldRateLimit(b *testing.B) {
	const plenty = 1_000_000_000
	all := call(
		descriptor("tenant", "a", "path", "/v1/search"),
		descriptor("remote_address", "192.0.2.1"),
		descriptor("user", "u-1", "plan", "pro"),
	)
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("descriptors=%d", n), func(b *testing.B) {
			door := setup(b, fmt.Sprintf(header+`
rules:
  - {name: tenant, key: [attr:tenant], limit: %[1]d/s}
  - {name: address, key: [ip], limit: %[1]d/s}
  - {name: user, key: [attr:user], limit: %[1]d/s}
`, int64(plenty))).door
			req := &ratelimitv3.RateLimitRequest{Domain: all.GetDomain(), Descriptors: all.GetDescriptors()[:n]}
			b.ReportAllocs()
			for b.Loop() {
				response, err := door.ShouldRateLimit(context.Background(), req)
				if err != nil || response.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
					b.Fatal(response, err)
				}
			}
		})
	}
}
