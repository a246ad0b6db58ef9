package push_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdstest"
)

// limitOf is the limit of the rule in a resource.
func limitOf(t *testing.T, r *discovery.Resource) string {
	t.Helper()
	body, err := xds.Unwrap(r)
	if err != nil {
		t.Fatal(err)
	}
	rule, err := xds.DecodeRule(r.GetName(), body)
	if err != nil {
		t.Fatal(err)
	}
	return rule.Stable.Spec.Limits[0].Rate.String()
}

// bad30 is a fleet of one node, which took revision 1 of "api" and refused rule a of revision 2.
func bad30(t *testing.T) (*xdstest.Ledger, *xdstest.Server) {
	t.Helper()
	f := start30(t)
	f.ledger.WaitTaken(t, "api", "", 1)
	at := f.ledger.Put(t, "api", "13/min", "a")
	f.good.Nack(f.good.Next(), "", map[string]string{"api/a": "cannot"})
	f.ledger.WaitNode(t, "good", "api", func(n rollout.Node) bool { return n.Nacked == at })
	return f.ledger, f.server
}

func wantLastGood(t *testing.T, response *discovery.DeltaDiscoveryResponse, limit string) {
	t.Helper()
	wantResources(t, response, "api/a", "api")
	if r := response.GetResources()[0]; !xds.IsLastGood(r) || limitOf(t, r) != limit {
		t.Fatalf("got %s as %s, want %s as a last good one", limitOf(t, r), r.GetVersion(), limit)
	}
}

// A sidecar starts while the newest version is bad: on the control plane that saw it, on one that was restarted, and on
// another replica.
func TestC30NewcomerThatRefusesTheNewestGetsTheLastGood(t *testing.T) {
	t.Parallel()
	ledger, server := bad30(t)
	for name, server := range map[string]*xdstest.Server{"seen": server, "restarted": xdstest.Start(t, ledger, xdstest.Options{})} {
		client := xdstest.Dial(t, server.Conn(t), name, nil, "api")
		newest := client.Next()
		wantResources(t, newest, "api/b", "api/a", "api")
		client.NackEmpty(newest, map[string]string{"api/a": "cannot"})
		good := client.Next()
		wantLastGood(t, good, "60/min")
		wantVersion(t, good, "one@2")
		client.Ack(good)
		// The newest is still refused, as everybody can see.
		n := ledger.WaitNode(t, name, "api", func(n rollout.Node) bool { return n.Sent == 2 && n.Acked == 1 })
		if n.NackReason != "api/a: cannot" || n.Nacked != 2 || len(n.Refused) != 1 || n.Refused[0] != "a" {
			t.Errorf("%s: got %+v", name, n)
		}
	}
}

func TestLastGoodIsSentOncePerStreamAndVersion(t *testing.T) {
	t.Parallel()
	ledger, server := bad30(t)
	client := xdstest.Dial(t, server.Conn(t), "new", nil, "api")
	client.NackEmpty(client.Next(), map[string]string{"api/a": "cannot"})
	good := client.Next()
	wantLastGood(t, good, "60/min")
	client.NackEmpty(good, map[string]string{"api/a": "cannot take that either"})
	n := ledger.WaitNode(t, "new", "api", func(n rollout.Node) bool { return n.Connected && n.Nacked == 2 })
	if n.NackReason != "api/a: cannot" {
		t.Errorf("the refusal of the newest became %q", n.NackReason)
	}
	// Nothing comes for it but the next version, and after that one's refusal the last good one again.
	ledger.Put(t, "api", "14/min", "a")
	next := client.Next()
	wantResources(t, next, "api/a", "api")
	client.NackEmpty(next, map[string]string{"api/a": "no"})
	wantLastGood(t, client.Next(), "60/min")
}

// As many as a message holds, each answer bringing the next.
func TestManyLastGoodRulesComeInParts(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	names := xdstest.Names("rule", 3)
	ledger.Put(t, "api", "60/min", names...)
	old := xdstest.Start(t, ledger, xdstest.Options{})
	xdstest.Dial(t, old.Conn(t), "old", nil, "api").Sync("api", 1)
	ledger.WaitTaken(t, "api", "", 1)
	ledger.Put(t, "api", "13/min", names...)
	server := xdstest.Start(t, ledger, xdstest.Options{PartLimit: 1})
	client := xdstest.Dial(t, server.Conn(t), "new", nil, "api")
	for range 3 {
		client.Ack(client.Next())
	}
	client.NackEmpty(client.Next(), map[string]string{"api/rule-0000": "no", "api/rule-0001": "no", "api/rule-0002": "no"})
	got := map[string]bool{}
	for range 3 {
		part := client.Next()
		if n := len(part.GetResources()); n != 2 || !xds.IsLastGood(part.GetResources()[0]) {
			t.Fatalf("got %v", xdstest.Resources(part))
		}
		got[part.GetResources()[0].GetName()] = true
		client.Ack(part)
	}
	if len(got) != 3 {
		t.Errorf("got %v", got)
	}
}

func TestNothingIsSentWhereNoNodeTookAnyVersion(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "13/min", "a")
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "new", nil, "api")
	client.NackEmpty(client.Next(), map[string]string{"api/a": "cannot"})
	ledger.Put(t, "api", "60/min", "b")
	wantResources(t, client.Next(), "api/b", "api") // and nothing before it
}

// What a node of another feature level can take says nothing about this one.
func TestLastGoodIsOfTheSameFeatureLevel(t *testing.T) {
	t.Parallel()
	ledger, server := bad30(t)
	client := xdstest.DialAs(t, server.Conn(t), xdstest.Node("new", map[string]string{xds.LevelField: "2"}), nil, "api")
	client.NackEmpty(client.Next(), map[string]string{"api/a": "cannot"})
	n := ledger.WaitNode(t, "new", "api", func(n rollout.Node) bool { return n.Nacked == 2 })
	if n.Level != 2 {
		t.Errorf("got %+v", n)
	}
	ledger.Put(t, "api", "60/min", "b")
	wantResources(t, client.Next(), "api/b", "api")
}

// A node that refuses one rule still vouches for the others.
func TestRuleTakenBesideARefusalIsALastGoodOne(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	old := xdstest.Dial(t, server.Conn(t), "old", nil, "api")
	old.Nack(old.Next(), "", map[string]string{"api/b": "cannot"})
	ledger.WaitTaken(t, "api", "a", 1)
	ledger.Put(t, "api", "61/min", "a")
	old.Ack(old.Next())
	ledger.WaitTaken(t, "api", "a", 2)
	waitHead(t, server, ledger.Put(t, "api", "13/min", "a"))
	client := xdstest.Dial(t, server.Conn(t), "new", nil, "api")
	client.NackEmpty(client.Next(), map[string]string{"api/a": "cannot", "api/b": "cannot"})
	wantLastGood(t, client.Next(), "61/min")
}

// The newest version is bad for one node only: others of its level have taken it.
func TestC30NewcomerThatRefusesWhatOthersTookGetsTheOneBefore(t *testing.T) {
	t.Parallel()
	f := start30(t)
	f.ledger.WaitTaken(t, "api", "", 1)
	f.ledger.Put(t, "api", "13/min", "a")
	f.good.Ack(f.good.Next())
	f.ledger.WaitTaken(t, "api", "", 2)
	client := xdstest.Dial(t, f.server.Conn(t), "new", nil, "api")
	client.NackEmpty(client.Next(), map[string]string{"api/a": "cannot"})
	wantLastGood(t, client.Next(), "60/min")
}

// While the database cannot be read everybody else is served, and the last good rule comes when it is back.
func TestLookUpOfALastGoodRuleHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	ledger, server := bad30(t)
	ledger.FailLookUps(errors.New("database is away"))
	client := xdstest.Dial(t, server.Conn(t), "new", nil, "api")
	client.NackEmpty(client.Next(), map[string]string{"api/a": "cannot"})
	other := xdstest.Dial(t, server.Conn(t), "other", map[string]string{"api": "one@1"}, "api")
	other.Nack(other.Next(), "", map[string]string{"api/a": "cannot"})
	ledger.Put(t, "api", "61/min", "b")
	for _, c := range []*xdstest.Raw{other, client} {
		step := c.Next()
		wantResources(t, step, "api/b", "api")
		c.Ack(step)
	}
	ledger.WaitNode(t, "new", "api", func(n rollout.Node) bool { return n.Acked == 3 })
	ledger.FailLookUps(nil)
	good := client.Next()
	wantLastGood(t, good, "60/min")
	wantVersion(t, good, "one@3")
}

func TestNodeSaysItsLevelAndNumbersItsStreams(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	node := func(stream int64) map[string]string {
		return map[string]string{xds.LevelField: "3", xds.StreamField: strconv.FormatInt(stream, 10)}
	}
	client := xdstest.DialAs(t, server.Conn(t), xdstest.Node("n1", node(50)), nil, "api")
	client.Sync("api", at)
	n := ledger.WaitNode(t, "n1", "api", xdstest.Acked(at))
	if n.Level != 3 || n.Stream != 50 || n.Lineage != "one" {
		t.Errorf("got %+v", n)
	}
	// A stream that was opened before the one that is open came late: it must not take its place.
	late := xdstest.DialAs(t, server.Conn(t), xdstest.Node("n1", node(49)), nil, "api")
	if err := late.Err(); err == nil {
		t.Error("an earlier stream is served")
	}
	xdstest.DialAs(t, server.Conn(t), xdstest.Node("n1", node(51)), nil, "api").Sync("api", at)
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Stream == 51 })

	before := time.Now().UnixMicro()
	xdstest.Dial(t, server.Conn(t), "silent", nil, "api").Sync("api", at)
	n = ledger.WaitNode(t, "silent", "api", xdstest.Acked(at))
	if n.Level != 1 || n.Stream < before {
		t.Errorf("who does not say: %+v", n)
	}
}
