package push

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
)

func TestPositionComesBackAsText(t *testing.T) {
	t.Parallel()
	for _, want := range []position{
		{}, {absent: true}, {lineage: "l", revision: 5}, {lineage: "l", revision: 5, rule: "login"}, {lineage: "a@b#c", revision: 1, rule: "x"},
	} {
		if got := parsePosition(want.String()); got != want {
			t.Errorf("%q came back as %+v, want %+v", want.String(), got, want)
		}
	}
	for _, text := range []string{"", "l", "l@", "l@0", "@1", "l@x#y", "#@"} {
		if got := parsePosition(text); got != (position{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// Whatever changes between the parts of whatever size, a client that adds up what it is sent holds exactly the head when
// the domain's resource arrives.
func TestPropertyStepsAddUpToTheHead(t *testing.T) {
	t.Parallel()
	spec := rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: 1e9, Burst: 1}}}}
	rapid.Check(t, func(t *rapid.T) {
		s := &state{}
		truth := map[string]string{}
		change := func() {
			revision := s.head + 1
			changes := rollout.Changes{Head: revision, Lineage: "l", Domains: []rules.Domain{{Name: "d", Revision: revision}}}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), 1, 6, rapid.ID).Draw(t, "touched") {
				changes.Rules = append(changes.Rules, rules.Rule{
					Domain: "d", Name: name, UID: "u", Revision: revision, Stable: &rules.Version{Number: revision, Spec: spec},
				})
			}
			next, err := s.after(changes)
			if err != nil {
				t.Fatal(err)
			}
			s = next
			truth = map[string]string{}
			for _, r := range s.domains["d"].resources {
				truth[r.GetName()] = r.GetVersion()
			}
		}
		change()
		at, holds, collected := position{}, map[string]string{}, map[string]string{}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			if rapid.Bool().Draw(t, "head moves") {
				change()
			}
			d := s.domains["d"]
			if !d.lags(at) {
				if !maps.Equal(holds, truth) {
					t.Fatalf("client at %s holds %v, the head is %v", at, holds, truth)
				}
				continue
			}
			part, next := d.step(at, rapid.IntRange(1, 600).Draw(t, "limit"))
			if len(part) == 0 {
				t.Fatal("an empty part")
			}
			for _, r := range part {
				collected[r.GetName()] = r.GetVersion()
			}
			at = parsePosition(next.String())
			if _, rule := xds.SplitName(part[len(part)-1].GetName()); rule == "" {
				maps.Copy(holds, collected)
				clear(collected)
				if !maps.Equal(holds, truth) {
					t.Fatalf("committed %v, the head is %v", holds, truth)
				}
			}
		}
	})
}
