package push_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdstest"
)

func exempting(path string) rules.Settings {
	return rules.Settings{Exempt: []rules.Exemption{{Name: "health", Match: rules.Match{Path: []string{path}}}}}
}

// Shard and exemptions come with every revision. A refusal of them speaks of the revision that made them, holds up nothing
// else, and ends when the node takes others.
func TestRefusedSettingsHoldUpNothingElse(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	client := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
	client.Sync("api", 1)
	refuse := map[string]string{"api/" + xds.Settings: "shard and exemptions stay as they were: too new"}
	const reason = "api: shard and exemptions stay as they were: too new"
	check := func(acked, nacked int64) {
		t.Helper()
		n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Acked == acked && n.Nacked == nacked })
		if n.NackReason != reason || len(n.Refused) != 0 {
			t.Errorf("got %+v", n)
		}
	}
	settings := exempting("/livez")
	ledger.Set("api", settings)
	client.Nack(client.Next(), "", refuse)
	check(1, 2)
	ledger.Put(t, "api", "61/min", "a")
	client.Nack(client.Next(), "", refuse)
	check(3, 2)
	settings.Freezes = []rules.Freeze{{Until: time.Now().Add(time.Minute).UTC()}}
	ledger.Set("api", settings) // the freeze applies, and the rest is what was refused before
	client.Nack(client.Next(), "", refuse)
	check(4, 2)
	ledger.WaitTaken(t, "api", "", 4) // all its rules are there

	// It connects again, to a control plane that does not know.
	client.Close()
	other := xdstest.Start(t, ledger, xdstest.Options{})
	client = xdstest.Dial(t, other.Conn(t), "n1", map[string]string{"api": "one@4", "api/" + xds.Settings: ""}, "api")
	again := client.Next()
	wantResources(t, again, "api")
	wantRemoved(t, again.GetRemovedResources())
	client.Nack(again, "", refuse)
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.NackReason == reason && n.Connected })
	ledger.Set("api", exempting("/readyz"))
	client.Ack(client.Next())
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(5))
}
