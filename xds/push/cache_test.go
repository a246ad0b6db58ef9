package push_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdstest"
)

func wantResources(t *testing.T, response *discovery.DeltaDiscoveryResponse, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, xdstest.Resources(response)); diff != "" {
		t.Fatalf("resources (-want +got):\n%s", diff)
	}
}

func wantVersion(t *testing.T, response *discovery.DeltaDiscoveryResponse, want string) {
	t.Helper()
	last := response.GetResources()[len(response.GetResources())-1]
	if last.GetVersion() != want {
		t.Fatalf("domain %s has version %q, want %q", last.GetName(), last.GetVersion(), want)
	}
}

func TestOneChangeAmongAThousandRulesSendsOneRuleAndTheDomain(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	first := ledger.Put(t, "api", "60/min", xdstest.Names("rule", 1000)...)
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", nil, "api")
	if got := len(client.Sync("api", first)); got != 1001 {
		t.Fatalf("first sync brought %d resources, want 1000 rules and the domain", got)
	}
	ledger.Put(t, "api", "61/min", "rule-0500")
	step := client.Next()
	wantResources(t, step, "api/rule-0500", "api")
	wantVersion(t, step, "one@2")
	if len(step.GetRemovedResources()) != 0 {
		t.Errorf("removed %v", step.GetRemovedResources())
	}
	body, err := xds.Unwrap(step.GetResources()[0])
	if err != nil {
		t.Fatal(err)
	}
	rule, err := xds.DecodeRule("api/rule-0500", body)
	if err != nil || rule.Stable.Spec.Limits[0].Rate.String() != "61/min" {
		t.Errorf("got %+v, %v", rule, err)
	}
}

func TestStepsThatWereMissedComeAsOne(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b", "c")
	ledger.Put(t, "api", "61/min", "c")
	ledger.Put(t, "api", "62/min", "a")
	ledger.Put(t, "api", "63/min", "c")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	wantResources(t, xdstest.Dial(t, server.Conn(t), "n1", map[string]string{"api": "one@1"}, "api").Next(), "api/a", "api/c", "api")
	wantResources(t, xdstest.Dial(t, server.Conn(t), "n2", map[string]string{"api": "one@3"}, "api").Next(), "api/c", "api")
	wantResources(t, xdstest.Dial(t, server.Conn(t), "n3", nil, "api").Next(), "api/b", "api/a", "api/c", "api")
}

// The second domain shows that the client was served, and that nothing came before.
func TestRestartAndSecondReplicaResendNothing(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", xdstest.Names("rule", 100)...)
	holds := map[string]string{"api": xds.DomainVersion("one", at)}
	for _, which := range []string{"first", "restarted"} {
		server := xdstest.Start(t, ledger, xdstest.Options{})
		client := xdstest.Dial(t, server.Conn(t), which, holds, "api", "other")
		told := client.Next()
		if diff := cmp.Diff([]string{"other"}, told.GetRemovedResources()); diff != "" || len(told.GetResources()) > 0 {
			t.Fatalf("%s: got %v, removed %v", which, xdstest.Resources(told), told.GetRemovedResources())
		}
		server.Stop()
	}
}

func TestPartsComeOnTheAnswerToTheOneBeforeAndTheDomainLast(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", xdstest.Names("rule", 50)...)
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{PartLimit: 2000}).Conn(t), "n1", nil, "api")
	var names []string
	parts := 0
	for {
		part := client.Next()
		parts++
		client.Nothing()
		names = append(names, xdstest.Resources(part)...)
		if names[len(names)-1] == "api" {
			wantVersion(t, part, xds.DomainVersion("one", at))
			break
		}
		client.Ack(part)
	}
	if parts < 4 {
		t.Errorf("%d parts", parts)
	}
	want := make([]string, 0, 51)
	for _, n := range xdstest.Names("rule", 50) {
		want = append(want, "api/"+n)
	}
	if diff := cmp.Diff(append(want, "api"), names); diff != "" {
		t.Errorf("all parts (-want +got):\n%s", diff)
	}
}

func TestHeadThatMovesBetweenPartsIsCommittedWhole(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", xdstest.Names("rule", 50)...)
	server := xdstest.Start(t, ledger, xdstest.Options{PartLimit: 2000})
	client := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
	part := client.Next()
	set := map[string]string{}
	collect := func(r *discovery.DeltaDiscoveryResponse) {
		for _, resource := range r.GetResources() {
			set[resource.GetName()] = resource.GetVersion()
		}
	}
	collect(part)
	ledger.Put(t, "api", "61/min", "rule-0000", "rule-0049") // one that was sent, and one that was not
	waitHead(t, server, 2)
	for {
		client.Ack(part)
		part = client.Next()
		collect(part)
		if names := xdstest.Resources(part); names[len(names)-1] == "api" {
			break
		}
	}
	wantVersion(t, part, "one@2")
	fresh := xdstest.Dial(t, server.Conn(t), "n2", nil, "api")
	want := map[string]string{}
	for len(want) < 51 {
		response := fresh.Next()
		for _, resource := range response.GetResources() {
			want[resource.GetName()] = resource.GetVersion()
		}
		fresh.Ack(response)
	}
	if diff := cmp.Diff(want, set); diff != "" {
		t.Errorf("set committed across a move (-fresh +got):\n%s", diff)
	}
}

func waitHead(t *testing.T, s *xdstest.Server, revision int64) {
	t.Helper()
	harness.Eventually(t, xdstest.Patience, func() error {
		if _, head, ok := s.Cache.Head(); !ok || head < revision {
			return fmt.Errorf("the cache is at revision %d, not %d", head, revision)
		}
		return nil
	})
}

// waitReads waits until the feed was asked a few times, successfully or not.
func waitReads(t *testing.T, l *xdstest.Ledger) {
	t.Helper()
	harness.Eventually(t, xdstest.Patience, func() error {
		if l.Reads() < 3 {
			return errors.New("the feed is not read")
		}
		return nil
	})
}

// The client subscribes to another domain too, which moves afterwards: had the refused version been sent again, it would
// have come first.
func TestC19cRefusedVersionIsSentOnce(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	other := ledger.Put(t, "other", "60/min", "x")
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", nil, "api", "other")
	client.Nack(client.Next(), "no", map[string]string{"api/a": "cannot"})
	client.Sync("other", other)
	for range 3 {
		ledger.Put(t, "other", "61/min", "x")
		step := client.Next()
		wantResources(t, step, "other/x", "other")
		client.Nack(step, "no", map[string]string{"other/x": "cannot"})
	}
	ledger.Put(t, "api", "62/min", "b")
	step := client.Next()
	wantResources(t, step, "api/b", "api") // another rule's version does not bring the refused one back
	client.Ack(step)
	ledger.Put(t, "api", "63/min", "a")
	wantResources(t, client.Next(), "api/a", "api")
}

func TestRefusedRuleComesOnceMoreOnANewStream(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b", "c")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	holds := map[string]string{"api": "one@1", "api/b": "", "api/gone": "x"}
	client := xdstest.Dial(t, server.Conn(t), "n1", holds, "api")
	again := client.Next()
	wantResources(t, again, "api/b", "api")
	if diff := cmp.Diff([]string{"api/gone"}, again.GetRemovedResources()); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	client.Nack(again, "no", map[string]string{"api/b": "still not"})
	ledger.Put(t, "api", "61/min", "c")
	wantResources(t, client.Next(), "api/c", "api")

	behind := xdstest.Dial(t, server.Conn(t), "n2", holds, "api")
	wantResources(t, behind.Next(), "api/b", "api/c", "api")
}

func TestClientAheadOfTheReplicaWaits(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	ledger.Put(t, "other", "60/min", "x")
	holds := map[string]string{"api": "one@4", "other": "one@1", "api/a": "standing"}
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", holds, "api", "other")
	other := client.Next()
	wantResources(t, other, "other/x", "other")
	client.Ack(other)
	// Everybody can see that it is ahead.
	if n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Acked > 0 }); n.Acked != 4 || n.Lineage != "one" {
		t.Errorf("got %+v", n)
	}
	ledger.Put(t, "api", "61/min", "a") // revision 3, still behind the client
	ledger.Put(t, "other", "61/min", "x")
	other = client.Next()
	wantResources(t, other, "other/x", "other")
	client.Ack(other)
	ledger.Put(t, "api", "62/min", "b")
	step := client.Next()
	wantResources(t, step, "api/a", "api/b", "api")
	wantVersion(t, step, "one@5")
}

func TestNothingIsServedBeforeTheDatabaseWasRead(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", "a")
	ledger.Fail(errors.New("database is away"))
	server := xdstest.Start(t, ledger, xdstest.Options{})
	client := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
	waitReads(t, ledger)
	client.Nothing()
	ledger.Fail(nil)
	client.Sync("api", at)
}

func TestStateIsServedOnWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	waitHead(t, server, at)
	ledger.Fail(errors.New("database is away"))
	xdstest.Dial(t, server.Conn(t), "n1", nil, "api").Sync("api", at)
	ledger.Fail(nil)
}

func TestUnknownDomainIsToldOnceAndServedWhenItIsBorn(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", nil, "api", "other")
	for _, domain := range []string{"api", "other"} {
		told := client.Next()
		if diff := cmp.Diff([]string{domain}, told.GetRemovedResources()); diff != "" || len(told.GetResources()) > 0 {
			t.Fatalf("got %v, removed %v", xdstest.Resources(told), told.GetRemovedResources())
		}
		client.Ack(told)
	}
	ledger.Put(t, "other", "60/min", "x")
	born := client.Next()
	wantResources(t, born, "other/x", "other")
	client.Ack(born)
	ledger.Put(t, "api", "60/min", "a")
	wantResources(t, client.Next(), "api/a", "api")
}

func TestAnotherLineageIsSentWholeOnceAnAdminSaysSo(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	ledger.Put(t, "other", "60/min", "x")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	waitHead(t, server, 2)
	clients := map[string]*xdstest.Raw{}
	for name, revision := range map[string]int64{"behind": 1, "ahead": 99} {
		holds := map[string]string{"api": xds.DomainVersion("zero", revision)}
		clients[name] = xdstest.Dial(t, server.Conn(t), name, holds, "api", "other")
		clients[name].Sync("other", 2)
		clients[name].Nothing()
		n := ledger.WaitNode(t, name, "api", func(n rollout.Node) bool { return n.NackReason != "" })
		want := fmt.Sprintf("holds revision %d of the history zero, which this control plane's database does not continue; "+
			"an admin lets it follow with: rulectl sidecar adopt zero", revision)
		if n.Lineage != "zero" || n.NackReason != want || n.Acked != 0 || n.Sent != 0 {
			t.Errorf("%s: got %+v", name, n)
		}
	}
	ledger.Replace("zero") // without a new revision: the streams that wait are served
	for name, client := range clients {
		whole := client.Next()
		wantResources(t, whole, "api/a", "api/b", "api")
		wantVersion(t, whole, "one@1")
		n := ledger.WaitNode(t, name, "api", func(n rollout.Node) bool { return n.Sent == 1 })
		if n.Lineage != "zero" || n.Acked != 0 {
			t.Errorf("%s before its answer: %+v", name, n)
		}
		client.Ack(whole)
		n = ledger.WaitNode(t, name, "api", xdstest.Acked(1))
		if n.Lineage != "one" {
			t.Errorf("%s after its answer: %+v", name, n)
		}
	}
}

// The database is restored while clients are connected. They keep what they have, also when domains are born in the new
// history; who has nothing is served.
func TestRestoredDatabaseServesOnlyWhoHoldsNothing(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	client := xdstest.Dial(t, server.Conn(t), "old", nil, "api")
	client.Sync("api", at)
	ledger.WaitNode(t, "old", "api", xdstest.Acked(at))
	ledger.Restore("two")
	n := ledger.WaitNode(t, "old", "api", func(n rollout.Node) bool { return n.NackReason != "" })
	if n.Lineage != "one" || n.Acked != 0 || !strings.Contains(n.NackReason, "adopt one") {
		t.Errorf("got %+v", n)
	}
	ledger.Put(t, "api", "60/min", "b")
	fresh := xdstest.Dial(t, server.Conn(t), "new", nil, "api")
	fresh.Sync("api", 1)
	client.Nothing()
	ledger.Replace("one")
	whole := client.Next()
	wantResources(t, whole, "api/b", "api")
	wantVersion(t, whole, "two@1")
}

func TestChangesArriveWithEitherSignalOrPoll(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		quiet bool
		poll  time.Duration
	}{
		"poll off":           {quiet: false, poll: 0},
		"notifications lost": {quiet: true, poll: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ledger := xdstest.NewLedger()
			ledger.Quiet(test.quiet)
			ledger.Put(t, "api", "60/min", "a")
			client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{Poll: test.poll}).Conn(t), "n1", nil, "api")
			client.Sync("api", 1)
			for want := int64(2); want < 5; want++ {
				ledger.Put(t, "api", "61/min", "a")
				client.Sync("api", want)
			}
		})
	}
}

func TestAllWhoStandAtARevisionShareTheStep(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", xdstest.Names("rule", 20)...)
	server := xdstest.Start(t, ledger, xdstest.Options{})
	clients := make([]*xdstest.Raw, 10)
	for i, node := range xdstest.Names("node", len(clients)) {
		clients[i] = xdstest.Dial(t, server.Conn(t), node, nil, "api")
		clients[i].Sync("api", at)
	}
	for round := range 20 {
		at = ledger.Put(t, "api", "61/min", xdstest.Names("rule", 20)[round])
		for _, c := range clients {
			if got := c.Sync("api", at); len(got) != 2 {
				t.Fatalf("step brought %v", got)
			}
		}
	}
}

// A request that names nothing is not a subscription to everything.
func TestEmptySubscriptionGetsNothing(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", "a")
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", nil)
	client.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResourceNamesSubscribe: []string{"api"}})
	response := client.Next()
	wantResources(t, response, "api/a", "api")
	wantVersion(t, response, xds.DomainVersion("one", at))
	if response.GetNonce() != "1" {
		t.Errorf("nonce %s: something was sent before", response.GetNonce())
	}
}

func TestRuleWithoutItsDomainIsNotServed(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Change("api", func(revision int64) []rules.Rule {
		return []rules.Rule{{
			Domain: "stray", Name: "a", UID: "u", Revision: revision,
			Stable: &rules.Version{Number: 1, Spec: xdstest.Spec(t, "1/s")},
		}}
	})
	server := xdstest.Start(t, ledger, xdstest.Options{Poll: time.Millisecond})
	waitReads(t, ledger)
	if _, _, ok := server.Cache.Head(); ok {
		t.Error("half a change is served")
	}
}

// A replica that is behind, and does not know the domain yet, took it away from a client that was ahead.
func TestReplicaBehindThatDoesNotKnowTheDomainWaits(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "other", "5/min", "x")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	raw := xdstest.Dial(t, server.Conn(t), "n1", map[string]string{"api": "one@3"}, "api")
	raw.Nothing()
	ledger.Put(t, "api", "5/min", "a") // the replica comes to revision 2
	raw.Nothing()
	ledger.Put(t, "api", "6/min", "a")
	ledger.Put(t, "api", "7/min", "a") // and to 4
	raw.Sync("api", 4)
}

// A node that is stopped unsubscribes first; nobody waits for it any more.
func TestStoppedNodeHasDeparted(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "5/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	raw := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
	raw.Sync("api", 1)
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	raw.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResourceNamesUnsubscribe: []string{"api"}})
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Departed && !n.Connected })
	raw.Close()
	back := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
	back.Sync("api", 1)
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return !n.Departed && n.Connected && n.Acked == 1 })
}
