package subscribe

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
)

// steps gives the client n rules, and returns what changes one of them.
func steps(tb testing.TB, c *Client, n int) (change func()) {
	tb.Helper()
	s := &session{client: c, steps: map[string]*step{}}
	revision := int64(0)
	resource := func(r *discovery.Resource, err error) *discovery.Resource {
		if err != nil {
			tb.Fatal(err)
		}
		return r
	}
	rule := func(i int) *discovery.Resource {
		return resource(xds.EncodeRule(&rules.Rule{
			Domain: "api", Name: fmt.Sprintf("rule-%05d", i), UID: fmt.Sprint(i), Revision: revision, Stable: &rules.Version{
				Number: 1,
				Spec:   rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: 1e9, Burst: 1}}}},
			},
		}))
	}
	send := func(resources ...*discovery.Resource) {
		own := resource(xds.EncodeDomain(rules.Domain{Name: "api", Revision: revision}, "one"))
		answer, err := s.answer(&discovery.DeltaDiscoveryResponse{
			TypeUrl: xds.TypeURL, Nonce: fmt.Sprint(revision), Resources: append(resources, own),
		})
		if err != nil || answer.GetErrorDetail() != nil {
			tb.Fatalf("answer %v, %v", answer, err)
		}
	}
	revision++
	all := make([]*discovery.Resource, n)
	for i := range all {
		all[i] = rule(i)
	}
	send(all...)
	return func() { revision++; send(rule(n / 2)) }
}

// What a sink makes of a rule stays good while the rule is the same pointer.
func TestStepKeepsTheRulesItDoesNotTouch(t *testing.T) {
	t.Parallel()
	c, sink := newTestClient(t)
	change := steps(t, c, 5)
	was := sink.sets["api"].Rules
	change()
	is := sink.sets["api"].Rules
	for i := range 5 {
		if changed := i == 2; (was[i] == is[i]) == changed {
			t.Errorf("rule %s was %p and is %p", is[i].Name, was[i], is[i])
		}
	}
	if was[2].Revision != 1 || is[2].Revision != 2 {
		t.Errorf("the changed rule was of revision %d and is of %d", was[2].Revision, is[2].Revision)
	}
}

// nowhere is a sink that takes everything.
type nowhere struct{}

func (nowhere) Check(*rules.Rule) error { return nil }

func (nowhere) Apply(Update) {}

func BenchmarkStepOfOneRule(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			c, _ := newTestClient(b)
			c.o.Sink = nowhere{}
			change := steps(b, c, n)
			b.ReportAllocs()
			for b.Loop() {
				change()
			}
		})
	}
}
