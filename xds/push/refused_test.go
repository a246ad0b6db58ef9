package push_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/push"
	"github.com/headgate/headgate/xds/rpcstatus"
	"github.com/headgate/headgate/xds/xdstest"
)

// refusals are what the server has counted, by reason.
func refusals(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); f.GetName() == "headgate_xds_refused_total" && n > 0 {
				counts[m.GetLabel()[0].GetValue()] = n
			}
		}
	}
	return counts
}

func wantCounted(t *testing.T, r *prometheus.Registry, reason string) {
	t.Helper()
	harness.Eventually(t, xdstest.Patience, func() error {
		if got := refusals(t, r); !maps.Equal(got, map[string]float64{reason: 1}) {
			return fmt.Errorf("counted %v, want one %s", got, reason)
		}
		return nil
	})
}

func TestC19ForeignFirstRequestEndsTheStream(t *testing.T) {
	t.Parallel()
	node := &core.Node{Id: "n1"}
	offers := func(versions map[string]string) *discovery.DeltaDiscoveryRequest {
		return &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, Node: node, ResourceNamesSubscribe: []string{"api"}, InitialResourceVersions: versions}
	}
	says := func(field, value string) *discovery.DeltaDiscoveryRequest {
		return &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, Node: xdstest.Node("n1", map[string]string{field: value})}
	}
	tests := map[string]struct {
		request *discovery.DeltaDiscoveryRequest
		want    string
		reason  string
	}{
		"no node":        {&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResourceNamesSubscribe: []string{"api"}}, "name the node", "node"},
		"odd node":       {&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, Node: &core.Node{Id: "a\x00b"}}, "printable", "node"},
		"level of words": {says(xds.LevelField, "best"), "feature_level is a number", "node"},
		"level 0":        {says(xds.LevelField, "0"), "feature_level is a number", "node"},
		"stream -1":      {says(xds.StreamField, "-1"), "stream is a number", "node"},
		"other type":     {&discovery.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/x", Node: node}, "not served here", "type"},
		"no type":        {&discovery.DeltaDiscoveryRequest{Node: node}, "not served here", "type"},
		"wildcard":       {&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, Node: node, ResourceNamesSubscribe: []string{"*"}}, "domains", "domains"},
		"a rule":         {&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, Node: node, ResourceNamesSubscribe: []string{"api/a"}}, "domains", "domains"},
		"many domains":   {&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, Node: node, ResourceNamesSubscribe: slices.Repeat([]string{"d"}, 1001)}, "at most", "domains"},
		"garbage held":   {offers(map[string]string{"api": "garbage"}), "no revision of a history", "offer"},
		"a part held":    {offers(map[string]string{"api": "one@1#a.1."}), "no revision of a history", "offer"},
		"a command held": {offers(map[string]string{"api": "$(reboot)@1"}), "no revision of a history", "offer"},
		"odd rule held":  {offers(map[string]string{"api": "one@1", "api/a b": "x"}), "not a name", "offer"},
		"huge version":   {offers(map[string]string{"api": "one@1", "api/a": strings.Repeat("x", 1000)}), "too long", "offer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			ledger := xdstest.NewLedger()
			ledger.Put(t, "api", "60/min", "a")
			server := xdstest.Start(t, ledger, xdstest.Options{Fleet: push.FleetOptions{Registerer: registry}})
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(server.Conn(t)).DeltaAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(test.request); err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			if err = rpcstatus.FromError(err); !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want ErrInvalid with %q", err, test.want)
			}
			wantCounted(t, registry, test.reason)
		})
	}
}

// An answer to what was never sent, or that was answered before, must not pass for one.
func TestC19ForeignOrReplayedAnswerEndsTheStream(t *testing.T) {
	t.Parallel()
	for name, nonce := range map[string]string{"replayed": "1", "foreign": "77", "odd": "\x00", "another type": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			ledger := xdstest.NewLedger()
			at := ledger.Put(t, "api", "60/min", "a")
			server := xdstest.Start(t, ledger, xdstest.Options{Fleet: push.FleetOptions{Registerer: registry}})
			client := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
			client.Sync("api", at)
			ledger.WaitNode(t, "n1", "api", xdstest.Acked(at))
			request := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResponseNonce: nonce}
			want, reason := "waits for no answer", "nonce"
			if nonce == "" {
				request.TypeUrl, request.ResponseNonce = "type.googleapis.com/x", "1"
				want, reason = "not served here", "type"
			}
			client.Send(request)
			if err := rpcstatus.FromError(client.Err()); !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
			wantCounted(t, registry, reason)
			// What is known of the node is what it said before.
			if n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return !n.Connected }); n.Acked != at || n.NackReason != "" {
				t.Errorf("got %+v", n)
			}
		})
	}
}

// A request that answers nothing must not bring the next part: a client could have the whole set put into its stream.
func TestC19OnlyTheAnswerBringsTheNextPart(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", xdstest.Names("rule", 30)...)
	ledger.Put(t, "other", "60/min", "x")
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{PartLimit: 1000}).Conn(t), "n1", nil, "api")
	first := client.Next()
	for range 5 {
		client.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResourceNamesSubscribe: []string{"other"}})
	}
	client.Ack(first)
	if second := client.Next(); second.GetNonce() != "2" {
		t.Errorf("response %s after the answer to the first", second.GetNonce())
	}
	client.Nothing()
}

func TestIdentitySubscribesOnlyToItsDomains(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		identity access.Identity
		allowed  bool
	}{
		"nobody":                 {access.Identity{}, false},
		"sidecar of the domain":  {access.Identity{Name: "s", Role: access.Sidecar, Domains: []string{"api"}}, true},
		"sidecar of everything":  {access.Identity{Name: "s", Role: access.Sidecar}, true},
		"sidecar of another":     {access.Identity{Name: "s", Role: access.Sidecar, Domains: []string{"other"}}, false},
		"admin":                  {access.Identity{Name: "a", Role: access.Admin}, false},
		"loopback without trust": {access.Local("l"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			ledger := xdstest.NewLedger()
			at := ledger.Put(t, "api", "60/min", "a")
			server := xdstest.Start(t, ledger, xdstest.Options{Identity: &test.identity, Fleet: push.FleetOptions{Registerer: registry}})
			client := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
			if test.allowed {
				client.Sync("api", at)
				return
			}
			if err := rpcstatus.FromError(client.Err()); !errors.Is(err, rules.ErrForbidden) {
				t.Errorf("got %v, want ErrForbidden", err)
			}
			wantCounted(t, registry, "forbidden")
		})
	}
}

// Also one that is added later.
func TestIdentityIsAskedForEachDomain(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", "a")
	ledger.Put(t, "secret", "60/min", "a")
	identity := access.Identity{Name: "s", Role: access.Sidecar, Domains: []string{"api"}}
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{Identity: &identity}).Conn(t), "n1", nil, "api")
	client.Sync("api", at)
	client.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResourceNamesSubscribe: []string{"secret"}})
	if err := rpcstatus.FromError(client.Err()); !errors.Is(err, rules.ErrForbidden) || !strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	client.Nothing()
}

// A node's id is no secret: with a token for another domain, somebody who uses it must not keep the node from its rules.
func TestNodeIDIsTakenOnlyInTheDomainsOfItsStream(t *testing.T) {
	t.Parallel()
	instance := func(name string) *core.Node {
		return xdstest.Node("victim", map[string]string{xds.InstanceField: name})
	}
	for name, domains := range map[string][]string{"no domain": nil, "another domain": {"other"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			ledger := xdstest.NewLedger()
			ledger.Put(t, "other", "60/min", "x")
			at := ledger.Put(t, "api", "60/min", "a")
			server := xdstest.Start(t, ledger, xdstest.Options{Fleet: push.FleetOptions{Registerer: registry}})
			thief := xdstest.DialAs(t, server.Conn(t), instance("thief"), nil, domains...)
			if domains == nil { // its request has been read when another one on the stream is answered
				thief.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResourceNamesSubscribe: []string{"none"}})
			}
			thief.Ack(thief.Next())
			victim := xdstest.DialAs(t, server.Conn(t), instance("own"), nil, "api")
			victim.Sync("api", at)

			// In the domain that both want, the first one stays.
			thief.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResourceNamesSubscribe: []string{"api"}})
			if err := rpcstatus.FromError(thief.Err()); !errors.Is(err, rules.ErrConflict) || !strings.Contains(err.Error(), "in domain api") {
				t.Errorf("got %v, want ErrConflict", err)
			}
			wantCounted(t, registry, "conflict")
			victim.Sync("api", ledger.Put(t, "api", "61/min", "a"))
			if n := ledger.WaitNode(t, "victim", "api", xdstest.Acked(at+1)); !n.Connected {
				t.Errorf("got %+v", n)
			}
		})
	}
}

func TestStreamEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	identity := access.Identity{Name: "s", Role: access.Sidecar, Credential: "c1", Expires: time.Now().Add(100 * time.Millisecond)}
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{Identity: &identity}).Conn(t), "n1", nil, "api")
	if err := rpcstatus.FromError(client.Err()); !errors.Is(err, rules.ErrUnauthenticated) || !strings.Contains(err.Error(), "c1") {
		t.Errorf("got %v", err)
	}
}
