package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/rules/rollout"
)

// A fan-out ends with a few batches of acknowledgements.
func BenchmarkSaveNodes(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			store, err := Open(b.Context(), filepath.Join(b.TempDir(), "db"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			nodes := make([]rollout.Node, n)
			for b.Loop() {
				for i := range nodes {
					nodes[i] = rollout.Node{
						ID: fmt.Sprintf("node-%05d", i), Domain: "api", Program: "sidecar 0.1", Level: 1, Connected: true, Stream: 1,
						Seen: time.Now(), Lineage: "0123456789abcdef", Sent: nodes[i].Sent + 1, Acked: nodes[i].Acked + 1,
					}
				}
				if err := store.SaveNodes(b.Context(), nodes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/node")
		})
	}
}
