package push

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

func BenchmarkHeadMovesByOneRule(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			spec := rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: 1e9, Burst: 1}}}}
			changes := rollout.Changes{Lineage: "l", Head: 1, Domains: []rules.Domain{{Name: "d", Revision: 1}}}
			for i := range n {
				changes.Rules = append(changes.Rules, rules.Rule{
					Domain: "d", Name: fmt.Sprintf("rule-%05d", i), UID: "u", Revision: 1, Stable: &rules.Version{Number: 1, Spec: spec},
				})
			}
			s, err := (&state{}).after(changes)
			if err != nil {
				b.Fatal(err)
			}
			changes.Rules = changes.Rules[n/2 : n/2+1]
			b.ReportAllocs()
			for b.Loop() {
				changes.Head++
				changes.Domains[0].Revision, changes.Rules[0].Revision = changes.Head, changes.Head
				if s, err = s.after(changes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
