package load

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
)

// What a sidecar does with a revision of one changed rule, before it acknowledges: see inForce of cmd/sidecar/app.
func BenchmarkSidecarPutsOneRuleInForce(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		specs, err := decode(ruleFile(n))
		if err != nil {
			b.Fatal(err)
		}
		list := make([]*rules.Rule, n)
		for i, s := range specs {
			list[i] = &rules.Rule{Domain: Domain, Name: s.Name, UID: fmt.Sprint(i), Revision: 1, Stable: &rules.Version{Number: 1, Spec: s.Spec}}
		}
		counts := meter.New(prometheus.NewRegistry())
		engine := enforce.NewEngine(memlimit.New(), counts, slog.New(slog.DiscardHandler))
		revision := int64(1)
		next := func() *rules.Index {
			revision++
			list = slices.Clone(list)
			changed := *list[n/2]
			changed.Revision, changed.Percent = revision, rules.Percent(revision%100)
			changed.Stable = &rules.Version{Number: 1, Spec: changed.Stable.Spec}
			list[n/2] = &changed
			return rules.NewIndex(rules.Domain{Name: Domain, Revision: revision}, list)
		}
		all := func(b *testing.B) {
			for b.Loop() {
				index := next()
				counts.Install(index)
				engine.Swap(index)
				counts.Retire(Domain)
			}
		}
		index := next()
		for what, run := range map[string]func(b *testing.B){
			"all": all,
			"index": func(b *testing.B) {
				for b.Loop() {
					next()
				}
			},
			"meter": func(b *testing.B) {
				for b.Loop() {
					counts.Install(index)
					counts.Retire(Domain)
				}
			},
			"swap": func(b *testing.B) {
				for b.Loop() {
					engine.Swap(index)
				}
			},
		} {
			b.Run(fmt.Sprintf("%s/rules=%d", what, n), run)
		}
	}
}
