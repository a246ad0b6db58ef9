package subscribe

import (
	"fmt"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
)

// A rule that this program refused is kept as it was in the history before. Its revision is of that history, and must not
// make the versions of this one look old.
func TestRuleKeptFromAnotherHistoryIsReplacedByALaterVersion(t *testing.T) {
	t.Parallel()
	c, sink := newTestClient(t)
	s := &session{client: c, steps: map[string]*step{}}
	take := func(lineage string, revision, version int64) {
		t.Helper()
		rule := &rules.Rule{
			Domain: "api", Name: "a", UID: "u", Revision: revision,
			Stable: &rules.Version{Number: version, Spec: rules.Spec{Limits: []rules.Limit{{
				Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: time.Second, Burst: 1},
			}}}},
		}
		resource, err := xds.EncodeRule(rule)
		if err != nil {
			t.Fatal(err)
		}
		own, err := xds.EncodeDomain(rules.Domain{Name: "api", Revision: revision}, lineage)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.answer(&discovery.DeltaDiscoveryResponse{
			TypeUrl: xds.TypeURL, SystemVersionInfo: xds.DomainVersion(lineage, revision), Nonce: fmt.Sprint(lineage, revision),
			Resources: []*discovery.Resource{resource, own},
		}); err != nil {
			t.Fatal(err)
		}
	}
	take("one", 8, 1)
	take("two", 2, 5) // refused: a multiple of five
	if got := sink.sets["api"].Rules[0].Stable.Number; got != 1 {
		t.Fatalf("v%d is in force, want v1, the last good one", got)
	}
	take("two", 3, 6)
	if got := sink.sets["api"].Rules[0].Stable.Number; got != 6 {
		t.Errorf("v%d is in force, want v6", got)
	}
}
