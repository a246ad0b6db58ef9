package enforce_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// asked keeps the tag of each charge's counter.
type asked struct{ tags [][16]byte }

func (a *asked) Decide(_ context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	for i := range charges {
		a.tags = append(a.tags, charges[i].Decides.Tag)
	}
	return make([]enforce.Verdict, len(charges)), nil
}

// A rule that a revision leaves alone keeps what was made of it, but for what the domain says.
func TestSwapOfTheSameRulesHeedsTheShard(t *testing.T) {
	t.Parallel()
	limiter := &asked{}
	engine := enforce.NewEngine(limiter, counts{}, slog.New(slog.DiscardHandler))
	pair := version(t, 1, "60/min")
	pair.Spec.Key = append(pair.Spec.Key, source(t, "method"))
	list := []*rules.Rule{rule("a", pair, nil), rule("b", version(t, 1, "60/min"), nil)}
	shard, other := source(t, "header:x-api-key").Source, source(t, "method").Source
	seen := map[[16]byte]int{}
	var order []int
	for _, s := range []*rules.Source{nil, &shard, &shard, &other, nil} {
		engine.Swap(rules.NewIndex(rules.Domain{Name: "d", Revision: 7, Shard: s}, list))
		limiter.tags = nil
		engine.Decide(t.Context(), request("k"))
		tag := limiter.tags[0]
		if _, ok := seen[tag]; !ok {
			seen[tag] = len(seen)
		}
		order = append(order, seen[tag])
	}
	if diff := cmp.Diff([]int{0, 1, 1, 2, 0}, order); diff != "" {
		t.Errorf("tags of a counter (-want +got):\n%s", diff)
	}
}
