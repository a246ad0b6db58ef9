package push_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdstest"
)

// Whether the replica saw the deletion or started after it, each client is told of what it may have and no longer is.
func TestDeletedRuleIsRemovedInTheStep(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b", "c")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	client := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
	client.Sync("api", 1)
	ledger.Delete("api", "a")
	step := client.Next()
	wantResources(t, step, "api")
	wantRemoved(t, step.GetRemovedResources(), "api/a")
	client.Ack(step)
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
	ledger.Delete("api", "c")
	ledger.Put(t, "api", "61/min", "c") // another state: it is there again
	waitHead(t, server, 4)

	for name, server := range map[string]*xdstest.Server{"saw it": server, "started later": xdstest.Start(t, ledger, xdstest.Options{})} {
		t.Run(name, func(t *testing.T) {
			for node, test := range map[string]struct{ holds, removed string }{
				"from nothing": {"", ""}, "from before": {"one@1", "api/a"}, "from after": {"one@2", ""},
			} {
				holds := map[string]string{"api": test.holds}
				if test.holds == "" {
					holds = nil
				}
				raw := xdstest.Dial(t, server.Conn(t), name+" "+node, holds, "api")
				step := raw.Next()
				var want []string
				if test.removed != "" {
					want = append(want, test.removed)
				}
				wantRemoved(t, step.GetRemovedResources(), want...)
			}
		})
	}
}

func wantRemoved(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("removed (-want +got):\n%s", diff)
	}
}

// The rule is deleted while the client is being sent the parts of a set that had it.
func TestDeletionBetweenPartsIsPartOfTheStep(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", xdstest.Names("rule", 20)...)
	server := xdstest.Start(t, ledger, xdstest.Options{PartLimit: 1000})
	client := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
	part := client.Next()
	if got := xdstest.Resources(part); got[0] != "api/rule-0000" {
		t.Fatalf("the first part begins with %s", got[0])
	}
	ledger.Delete("api", "rule-0000")
	waitHead(t, server, 2)
	var removed []string
	for {
		removed = append(removed, part.GetRemovedResources()...)
		if names := xdstest.Resources(part); names[len(names)-1] == "api" {
			break
		}
		client.Ack(part)
		part = client.Next()
	}
	wantRemoved(t, removed, "api/rule-0000")
	wantVersion(t, part, "one@2")
}

// Of very many deletions the first are forgotten. Who may not know of them is told to drop what is not in the set.
func TestClientFromBeforeForgottenDeletionsIsSentEverything(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	for batch := range 6 {
		names := xdstest.Names(fmt.Sprint("gone-", batch), 1000)
		ledger.Change("api", func(revision int64) []rules.Rule {
			var list []rules.Rule
			for _, name := range names {
				list = append(list, rules.Rule{Domain: "api", Name: name, UID: name, Revision: revision})
			}
			return list
		})
	}
	server := xdstest.Start(t, ledger, xdstest.Options{PartLimit: 100})
	waitHead(t, server, 7)
	client := xdstest.Dial(t, server.Conn(t), "old", map[string]string{"api": "one@1"}, "api")
	var names, removed []string
	for {
		part := client.Next()
		names, removed = append(names, xdstest.Resources(part)...), append(removed, part.GetRemovedResources()...)
		client.Ack(part)
		if names[len(names)-1] == "api" {
			break
		}
	}
	if diff := cmp.Diff([]string{"api/a", "api/b", "api"}, names); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	wantRemoved(t, removed, "api/"+xds.Everything)

	recent := xdstest.Dial(t, server.Conn(t), "recent", map[string]string{"api": "one@3"}, "api").Next()
	if n := len(recent.GetRemovedResources()); n != 4000 {
		t.Errorf("told of %d deletions, want those of four revisions", n)
	}
}
