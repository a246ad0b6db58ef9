package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/subscribe"
	"github.com/headgate/headgate/xds/xdstest"
)

// noControlPlane is a connection on which no stream can be opened.
type noControlPlane struct{}

var errAway = errors.New("control plane is away")

func (noControlPlane) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errAway
}

func (noControlPlane) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errAway
}

func TestRulesComeIntoForceAndAreAcked(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t)})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "60/min"})

	ledger.Put(t, "api", "61/min", "b", "c")
	n := ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "61/min", "c": "61/min"})
	if n.Program != "test 1" {
		t.Errorf("program %q", n.Program)
	}
	if revision, ok := client.Revision("api"); revision != 2 || !ok || !client.Ready() || !client.Connected() {
		t.Errorf("revision %d %v, ready %v, connected %v", revision, ok, client.Ready(), client.Connected())
	}
	if got := client.metric(t, "headgate_config_revision", "api"); got != 2 {
		t.Errorf("headgate_config_revision %v", got)
	}
	if got := client.metric(t, "headgate_config_connected", ""); got != 1 {
		t.Errorf("headgate_config_connected %v", got)
	}
	client.stop()
	if client.Connected() || client.metric(t, "headgate_config_connected", "") != 0 {
		t.Error("still connected after the end")
	}
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return !n.Connected })
}

func TestPartsChangeNothingBeforeTheLast(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", xdstest.Names("rule", 200)...)
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{PartLimit: 2000}).Conn(t)})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	ledger.Put(t, "api", "61/min", xdstest.Names("rule", 200)...)
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
	if n := client.sink.applies(); n != 2 {
		t.Errorf("the sink got %d sets, want one for each revision", n)
	}
	if n := len(client.sink.limits("api")); n != 200 {
		t.Errorf("%d rules in force", n)
	}
}

func TestRefusedRuleKeepsItsLastGoodVersion(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), sink: newSink("13/min")})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))

	// One revision: a cannot be put in force, c cannot be decoded and was never held, b is good.
	good := xdstest.Spec(t, "61/min")
	ledger.Change("api", func(revision int64) []rules.Rule {
		v := func(spec rules.Spec) *rules.Version { return &rules.Version{Number: revision, Spec: spec} }
		return []rules.Rule{
			{Domain: "api", Name: "a", UID: "u", Revision: revision, Stable: v(xdstest.Spec(t, "13/min"))},
			{Domain: "api", Name: "b", UID: "u", Revision: revision, Stable: v(good)},
			{Domain: "api", Name: "c", UID: "", Revision: revision, Stable: v(good)},
		}
	})
	n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.NackReason != "" })
	want := "api/a: forbidden limit; api/c: invalid: the uid is missing"
	if n.NackReason != want || n.Nacked != 2 || n.Acked != 1 {
		t.Errorf("got %+v, want reason %q", n, want)
	}
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "61/min"})
	if got := client.metric(t, "headgate_config_rejected_total", "api"); got != 2 {
		t.Errorf("headgate_config_rejected_total %v", got)
	}

	// The refused version does not come again with the next revision, and stands.
	ledger.Put(t, "api", "62/min", "b")
	n = ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Acked == 3 })
	if n.NackReason != want {
		t.Errorf("got %+v", n)
	}
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "62/min"})
	if got := client.metric(t, "headgate_config_rejected_total", "api"); got != 2 {
		t.Errorf("headgate_config_rejected_total %v: the refused versions came again", got)
	}

	ledger.Put(t, "api", "63/min", "a", "c")
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(4))
	client.sink.want(t, "api", map[string]string{"a": "63/min", "b": "62/min", "c": "63/min"})
}

// Over a reconnect and a restart from disk the node offers what it refused, is sent it once more, and its refusal is
// known to a control plane that had never heard of it.
func TestRefusalSurvivesReconnectAndRestart(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	file := diskFile(t)
	server := xdstest.Start(t, ledger, xdstest.Options{})
	client := run(t, settings{conn: server.Conn(t), sink: newSink("13/min"), file: file})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	ledger.Put(t, "api", "13/min", "a")
	refused := func(n rollout.Node) bool { return n.Connected && n.NackReason == "api/a: forbidden limit" }
	ledger.WaitNode(t, "n1", "api", refused)
	client.stop()
	server.Stop()

	server = xdstest.Start(t, ledger, xdstest.Options{})
	client = run(t, settings{conn: server.Conn(t), sink: newSink("13/min"), file: file})
	n := ledger.WaitNode(t, "n1", "api", refused)
	if n.Nacked != 2 || n.Acked != 1 {
		t.Errorf("after a restart: %+v", n)
	}
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "60/min"})
	client.stop()

	// A newer program can take it.
	client = run(t, settings{conn: server.Conn(t), file: file})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
	client.sink.want(t, "api", map[string]string{"a": "13/min", "b": "60/min"})
}

func TestStartsFromDiskWithoutTheControlPlane(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	file := diskFile(t)
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), file: file, domains: []string{"api", "other"}})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	client.sink.wait(t, "other", 0)
	client.stop()

	client = prepare(t, settings{conn: noControlPlane{}, file: file, domains: []string{"api", "other"}})
	if client.Ready() {
		t.Error("ready before anything is in force")
	}
	client.Restore()
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "60/min"})
	client.sink.want(t, "other", map[string]string{})
	if !client.Ready() || client.Connected() {
		t.Errorf("ready %v, connected %v", client.Ready(), client.Connected())
	}
	client.Restore()
	if n := client.sink.applies(); n != 2 {
		t.Errorf("%d sets after the second Restore", n)
	}

	// It served both; now it serves one: the other is neither loaded nor waited for.
	client = prepare(t, settings{conn: noControlPlane{}, file: file, domains: []string{"other"}})
	client.Restore()
	if client.sink.limits("api") != nil || !client.Ready() {
		t.Errorf("api %v, ready %v", client.sink.limits("api"), client.Ready())
	}
}

func TestReconnectBringsOnlyWhatWasMissed(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", xdstest.Names("rule", 100)...)
	file := diskFile(t)
	server := xdstest.Start(t, ledger, xdstest.Options{})
	client := run(t, settings{conn: server.Conn(t), file: file})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	client.stop()
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return !n.Connected })
	ledger.Put(t, "api", "61/min", "rule-0007")
	client = run(t, settings{conn: server.Conn(t), file: file})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
	limits := client.sink.limits("api")
	if len(limits) != 100 || limits["rule-0007"] != "61/min" || limits["rule-0008"] != "60/min" {
		t.Errorf("%d rules, %s, %s", len(limits), limits["rule-0007"], limits["rule-0008"])
	}
}

// The control plane comes back without its database: it knows no domain, and nothing is wiped. When it has rules again,
// they are those of another history, and take the place of all that was held once an admin says so.
func TestC19EmptyControlPlaneDoesNotWipeTheRules(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t)})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	ledger.Restore("two")
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Lineage == "one" && n.NackReason != "" })
	ledger.Put(t, "other", "61/min", "b")
	ledger.Replace("one") // and still the domain is not known
	harness.Eventually(t, xdstest.Patience, func() error {
		if client.metric(t, "headgate_config_removal_ignored_total", "api") != 1 {
			return errors.New("not told yet")
		}
		return nil
	})
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "60/min"})
	if n := client.sink.applies(); n != 1 {
		t.Errorf("the sink got %d sets", n)
	}
	ledger.Put(t, "api", "61/min", "b")
	client.sink.wait(t, "api", 2)
	client.sink.want(t, "api", map[string]string{"b": "61/min"})
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Acked == 2 && n.Lineage == "two" && n.NackReason == "" })
}

func TestUnknownDomainIsAnEmptySetAndReady(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	var log syncedText
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), log: &log})
	client.sink.wait(t, "api", 0)
	client.sink.want(t, "api", map[string]string{})
	if revision, ok := client.Revision("api"); revision != 0 || !ok || !client.Ready() {
		t.Errorf("revision %d %v, ready %v", revision, ok, client.Ready())
	}
	ledger.Put(t, "api", "60/min", "a")
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	client.sink.want(t, "api", map[string]string{"a": "60/min"})
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "is the name right?") {
		t.Errorf("nothing is limited, which was not warned of: %s", text)
	}
}

func TestUnwritableDiskHoldsNothingUp(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	file := subscribe.NewFile(filepath.Join(folder, "last-good"))
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), file: file})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	harness.Eventually(t, xdstest.Patience, func() error {
		if got := client.metric(t, "headgate_config_save_failed_total", ""); got != 1 {
			return fmt.Errorf("headgate_config_save_failed_total %v", got)
		}
		return nil
	})
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	ledger.Put(t, "api", "61/min", "a")
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
	client.stop()
	restarted := prepare(t, settings{conn: noControlPlane{}, file: file})
	restarted.Restore()
	restarted.sink.want(t, "api", map[string]string{"a": "61/min"})
}

// With real sidecars, as the case has it: one takes the version, one refuses it, one is cut off.
func TestC30ThreeSidecars(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	file := diskFile(t)
	good := run(t, settings{conn: server.Conn(t), node: "good"})
	run(t, settings{conn: server.Conn(t), node: "bad", sink: newSink("13/min")})
	cut := run(t, settings{conn: server.Conn(t), node: "cut", file: file})
	for _, node := range []string{"good", "bad", "cut"} {
		ledger.WaitNode(t, node, "api", xdstest.Acked(1))
	}
	cut.stop()
	ledger.WaitNode(t, "cut", "api", func(n rollout.Node) bool { return !n.Connected })

	ledger.Put(t, "api", "13/min", "a")
	ledger.WaitNode(t, "good", "api", xdstest.Acked(2))
	good.sink.want(t, "api", map[string]string{"a": "13/min"})
	n := ledger.WaitNode(t, "bad", "api", func(n rollout.Node) bool { return n.Nacked == 2 })
	if n.Acked != 1 || n.NackReason != "api/a: forbidden limit" {
		t.Errorf("bad: %+v", n)
	}
	n = ledger.WaitNode(t, "cut", "api", func(rollout.Node) bool { return true })
	if n.Acked != 1 || n.Connected {
		t.Errorf("cut: %+v", n)
	}
	cut = run(t, settings{conn: server.Conn(t), node: "cut", file: file})
	ledger.WaitNode(t, "cut", "api", xdstest.Acked(2))
	cut.sink.want(t, "api", map[string]string{"a": "13/min"})
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	if _, err := subscribe.New(subscribe.Options{Domains: []string{"NO"}}); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
