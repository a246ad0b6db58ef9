package enforce_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// BenchmarkDecide is a decision over n rules with counters in memory: what the engine itself costs.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			var list []*rules.Rule
			for i := range n {
				key, err := rules.ParseKeySource("header:x-api-key")
				if err != nil {
					b.Fatal(err)
				}
				r := rules.Rate{Amount: 1 << 30, Window: time.Second, Burst: 1 << 30}
				list = append(list, &rules.Rule{
					Domain: "d", Name: fmt.Sprintf("r%d", i), UID: fmt.Sprintf("uid-%d", i),
					Stable: &rules.Version{Number: 1, Spec: rules.Spec{
						Key: []rules.KeySource{key}, Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: r}},
					}},
				})
			}
			engine := enforce.NewEngine(memlimit.New(), nobody{}, slog.New(slog.DiscardHandler))
			engine.Swap(rules.NewIndex(rules.Domain{Name: "d"}, list))
			req := request("k")
			b.ReportAllocs()
			for b.Loop() {
				if d := engine.Decide(context.Background(), req); !d.Allowed {
					b.Fatal("refused")
				}
			}
		})
	}
}
