package push_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/xdstest"
)

// The message order of the case: A is taken, then B is refused with B's own version and nonce.
func TestC19bRefusalIsNotAnAcknowledgement(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	a := ledger.Put(t, "a", "60/min", "x")
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", nil, "a", "b")
	client.Sync("a", a)
	told := client.Next() // "no such domain", for b
	client.Ack(told)
	b := ledger.Put(t, "b", "60/min", "y", "z")
	client.Nack(client.Next(), "cannot", map[string]string{"b/y": "unknown field lease"})

	n := ledger.WaitNode(t, "n1", "b", func(n rollout.Node) bool { return n.NackReason != "" })
	if n.Acked != 0 || n.Nacked != b || n.Sent != b || n.NackReason != "b/y: unknown field lease" {
		t.Errorf("b: got %+v", n)
	}
	if n.Program != "raw 1.2.3" || !n.Connected {
		t.Errorf("b: got %+v", n)
	}
	n = ledger.WaitNode(t, "n1", "a", xdstest.Acked(a))
	if n.Sent != a || n.Nacked != 0 {
		t.Errorf("a: got %+v", n)
	}
}

func TestRefusalStandsUntilAnotherVersionOfTheRuleIsTaken(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", nil, "api")
	client.Nack(client.Next(), "no", map[string]string{"api/a": "too new"})
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Nacked == 1 })

	ledger.Put(t, "api", "61/min", "b")
	client.Ack(client.Next())
	n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Acked == 2 })
	if n.NackReason != "api/a: too new" || n.Nacked != 1 {
		t.Errorf("after another rule was taken: %+v", n)
	}
	ledger.Put(t, "api", "62/min", "a")
	client.Nack(client.Next(), "no", map[string]string{"api/a": "still too new"})
	n = ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Nacked == 3 })
	if n.NackReason != "api/a: still too new" || n.Acked != 2 {
		t.Errorf("after the next version was refused: %+v", n)
	}
	ledger.Put(t, "api", "63/min", "a")
	client.Ack(client.Next())
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(4))
}

// A refusal without details speaks of the whole revision, and ends with the next one that is taken.
func TestRefusalOfAWholeRevision(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", nil, "api")
	client.Nack(client.Next(), "out of\x00memory", nil)
	n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Nacked == 1 })
	if n.NackReason != "api: out of memory" {
		t.Errorf("got %+v", n)
	}
	ledger.Put(t, "api", "61/min", "a")
	client.Ack(client.Next())
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
}

func TestOnlyTheAnswerToTheLastPartMeansAcked(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", xdstest.Names("rule", 30)...)
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{PartLimit: 2000}).Conn(t), "n1", nil, "api", "other")
	part := client.Next()
	client.Ack(part)
	for {
		part = client.Next()
		if names := xdstest.Resources(part); len(names) > 0 && names[len(names)-1] == "api" {
			break
		}
		client.Ack(part)
	}
	n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Sent == at })
	if n.Acked != 0 {
		t.Errorf("acked %d before the last part was answered", n.Acked)
	}
	// A rule of the first part is refused with the last.
	client.Nack(part, "no", map[string]string{"api/rule-0000": "cannot"})
	n = ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Nacked == at })
	if n.NackReason != "api/rule-0000: cannot" || n.Acked != 0 {
		t.Errorf("got %+v", n)
	}
}

func TestOfferedRevisionCountsAsAcked(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	at := ledger.Put(t, "api", "60/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	waitHead(t, server, at)
	xdstest.Dial(t, server.Conn(t), "n1", map[string]string{"api": "one@1"}, "api")
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(at))
	// Of another history the number means nothing.
	ledger.Replace("zero")
	other := xdstest.Dial(t, server.Conn(t), "n2", map[string]string{"api": "zero@7"}, "api")
	other.Next()
	n := ledger.WaitNode(t, "n2", "api", func(n rollout.Node) bool { return n.Sent == at })
	if n.Acked != 0 {
		t.Errorf("revision 7 of another lineage counts: %+v", n)
	}
}

// A node that refused a rule reconnects to a control plane that does not know: it must not look as if it had taken all.
func TestOfferedRefusalIsNotForgotten(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	at := ledger.Put(t, "api", "61/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	waitHead(t, server, at)
	client := xdstest.Dial(t, server.Conn(t), "n1", map[string]string{"api": "one@2", "api/a": "old"}, "api")
	again := client.Next()
	n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Connected })
	if state := n.StateAt(time.Now(), at, rollout.Head{Revision: at, Lineage: "one"}); state != rollout.NodeNacked {
		t.Errorf("before it said why: %s, %+v", state, n)
	}
	client.Nack(again, "no", map[string]string{"api/a": "too new"})
	n = ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.NackReason == "api/a: too new" })
	if n.Nacked != 2 || n.Acked != 1 {
		t.Errorf("got %+v", n)
	}
	client.Close()
	n = ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return !n.Connected })
	if n.NackReason == "" || n.Nacked != 2 {
		t.Errorf("after it left: %+v", n)
	}
	// Its program was replaced, and takes the rule now.
	client = xdstest.Dial(t, server.Conn(t), "n1", map[string]string{"api": "one@2", "api/a": "old"}, "api")
	client.Ack(client.Next())
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
}

func TestRestoredDatabaseForgetsWhatWasAcked(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	ledger.Put(t, "api", "61/min", "a")
	client := xdstest.Dial(t, xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), "n1", nil, "api")
	client.Sync("api", 2)
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
	ledger.Restore("two")
	ledger.Replace("one")
	client.Ack(client.Next())
	ledger.Put(t, "api", "60/min", "a")
	whole := client.Next()
	n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Sent == 1 })
	if n.Acked != 0 {
		t.Errorf("revision 2 of the lost history still counts: %+v", n)
	}
	client.Ack(whole)
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
}

// fleet30 is the fleet of the case: all have revision 1 of "api" when it returns.
type fleet30 struct {
	ledger  *xdstest.Ledger
	server  *xdstest.Server
	good    *xdstest.Raw
	service *rollout.Service
}

// store30 is the ledger as far as waiting needs it.
type store30 struct {
	rollout.Store
	Ledger *xdstest.Ledger
}

func (s store30) Nodes(ctx context.Context, domain string) ([]rollout.Node, error) {
	return s.Ledger.Nodes(ctx, domain)
}

func (s store30) Head(ctx context.Context) (rollout.Head, error) {
	changes, err := s.Ledger.Changes(ctx, 0)
	return rollout.Head{Revision: changes.Head, Lineage: changes.Lineage}, err
}

func start30(t *testing.T) fleet30 {
	t.Helper()
	f := fleet30{ledger: xdstest.NewLedger()}
	f.ledger.Put(t, "api", "60/min", "a", "b")
	f.server = xdstest.Start(t, f.ledger, xdstest.Options{})
	f.service = rollout.NewService(store30{Ledger: f.ledger}, time.Now)
	f.good = f.join(t, "good")
	return f
}

func (f fleet30) join(t *testing.T, node string) *xdstest.Raw {
	t.Helper()
	client := xdstest.Dial(t, f.server.Conn(t), node, nil, "api")
	client.Sync("api", 1)
	f.ledger.WaitNode(t, node, "api", xdstest.Acked(1))
	return client
}

var errStop = errors.New("seen enough")

// await waits for the revision, as "apply --wait" does, until the states of the nodes are these, and returns what Await
// says then: nil only when it has ended by itself.
func (f fleet30) await(t *testing.T, revision int64, want map[string]rollout.NodeState) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), xdstest.Patience)
	defer cancel()
	var got map[string]rollout.NodeState
	err := f.service.Await(ctx, "api", revision, func(list []rollout.NodeStatus) error {
		got = map[string]rollout.NodeState{}
		for _, n := range list {
			got[n.ID] = n.State
		}
		if cmp.Equal(got, want) && rollout.Missing(list) > 0 {
			return errStop
		}
		return nil
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("states when Await ended with %v (-want +got):\n%s", err, diff)
	}
	return err
}

func TestC30NodeThatNeverAnswersIsPending(t *testing.T) {
	t.Parallel()
	f := start30(t)
	mute := f.join(t, "mute")
	at := f.ledger.Put(t, "api", "61/min", "a")
	f.good.Sync("api", at)
	response := mute.Next()
	if err := f.await(t, at, map[string]rollout.NodeState{"good": rollout.NodeSynced, "mute": rollout.NodePending}); !errors.Is(err, errStop) {
		t.Fatalf("waiting ended: %v", err)
	}
	mute.Ack(response)
	if err := f.await(t, at, map[string]rollout.NodeState{"good": rollout.NodeSynced, "mute": rollout.NodeSynced}); err != nil {
		t.Fatalf("waiting did not end well: %v", err)
	}
}

func TestC30NodeThatRefusesIsNacked(t *testing.T) {
	t.Parallel()
	f := start30(t)
	bad := f.join(t, "bad")
	at := f.ledger.Put(t, "api", "61/min", "a")
	f.good.Sync("api", at)
	bad.Nack(bad.Next(), "no", map[string]string{"api/a": "cannot"})
	if err := f.await(t, at, map[string]rollout.NodeState{"good": rollout.NodeSynced, "bad": rollout.NodeNacked}); !errors.Is(err, errStop) {
		t.Fatalf("waiting ended: %v", err)
	}
	// A later revision that it takes is not held up by the refusal that stands.
	at = f.ledger.Put(t, "api", "61/min", "b")
	f.good.Sync("api", at)
	bad.Sync("api", at)
	if err := f.await(t, at, map[string]rollout.NodeState{"good": rollout.NodeSynced, "bad": rollout.NodeSynced}); err != nil {
		t.Fatalf("waiting did not end well: %v", err)
	}
}

func TestC30NodeThatIsAwayIsMissed(t *testing.T) {
	t.Parallel()
	f := start30(t)
	gone := f.join(t, "gone")
	gone.Close()
	f.ledger.WaitNode(t, "gone", "api", func(n rollout.Node) bool { return !n.Connected })
	at := f.ledger.Put(t, "api", "61/min", "a")
	f.good.Sync("api", at)
	if err := f.await(t, at, map[string]rollout.NodeState{"good": rollout.NodeSynced, "gone": rollout.NodeAway}); !errors.Is(err, errStop) {
		t.Fatalf("waiting ended: %v", err)
	}
	back := xdstest.Dial(t, f.server.Conn(t), "gone", map[string]string{"api": "one@1"}, "api")
	back.Sync("api", at)
	if err := f.await(t, at, map[string]rollout.NodeState{"good": rollout.NodeSynced, "gone": rollout.NodeSynced}); err != nil {
		t.Fatalf("waiting did not end well: %v", err)
	}
}

func TestStoppedServerLeavesItsNodesDisconnected(t *testing.T) {
	t.Parallel()
	f := start30(t)
	f.server.Stop()
	n := f.ledger.WaitNode(t, "good", "api", func(n rollout.Node) bool { return !n.Connected })
	if n.Acked != 1 {
		t.Errorf("got %+v", n)
	}
}

func TestNodeIsKnownWhileItsStreamIsOpen(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	identity := access.Identity{Name: "team-a", Role: access.Sidecar}
	server := xdstest.Start(t, ledger, xdstest.Options{Identity: &identity})
	if n, ok := server.Fleet.Node("n1", "api"); ok {
		t.Errorf("known before it came: %+v", n)
	}
	client := xdstest.Dial(t, server.Conn(t), "n1", nil, "api")
	response := client.Next() // without an answer nothing is stored of it yet
	if n, ok := server.Fleet.Node("n1", "api"); !ok || n.Identity != "team-a" || n.Sent != 1 || n.Acked != 0 {
		t.Errorf("before its answer: %v, %+v, want revision 1 sent by team-a's stream", ok, n)
	}
	client.Ack(response)
	if n := ledger.WaitNode(t, "n1", "api", xdstest.Acked(1)); n.Identity != "team-a" {
		t.Errorf("stored with the identity %q, want team-a", n.Identity)
	}
	client.Close()
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return !n.Connected })
	harness.Eventually(t, xdstest.Patience, func() error {
		if n, ok := server.Fleet.Node("n1", "api"); ok {
			return fmt.Errorf("still known: %+v", n)
		}
		return nil
	})
}
