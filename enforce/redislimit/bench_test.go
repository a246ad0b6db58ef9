package redislimit_test

import (
	"testing"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/test/harness"
)

// BenchmarkDecide is a decision by a healthy Redis on loopback: what a breaker and a bound on time may not make slower.
func BenchmarkDecide(b *testing.B) {
	l := open(b, harness.Redis(b).Addr)
	charges := []enforce.Charge{limittest.Binding(0, limittest.NewCounter(), 1<<30, 1<<30)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Decide(b.Context(), charges); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecideParallel is many callers at once.
func BenchmarkDecideParallel(b *testing.B) {
	l := open(b, harness.Redis(b).Addr)
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		charges := []enforce.Charge{limittest.Binding(0, limittest.NewCounter(), 1<<30, 1<<30)}
		for pb.Next() {
			if _, err := l.Decide(b.Context(), charges); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
