package subscribe_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdspb"
	"github.com/headgate/headgate/xds/xdstest"
)

var until = time.UnixMicro(1_800_000_000_000_000).UTC()

func settingsOf(exempt string, freezes ...rules.Freeze) rules.Settings {
	return rules.Settings{
		Exempt:  []rules.Exemption{{Name: "health", Match: rules.Match{Path: []string{exempt}}}},
		Freezes: freezes,
	}
}

// domainWith is the resource of domain "api" with the settings.
func domainWith(t *testing.T, revision int64, s rules.Settings) *discovery.Resource {
	t.Helper()
	d := rules.Domain{Name: "api", Revision: revision, SettingsRevision: revision}
	d.Set(s)
	r, err := xds.EncodeDomain(d, "one")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// spoil changes a resource as a later control plane would write it.
func spoil(t *testing.T, r *discovery.Resource, change func(*xdspb.Resource)) *discovery.Resource {
	t.Helper()
	body, err := xds.Unwrap(r)
	if err != nil {
		t.Fatal(err)
	}
	change(body)
	if r.Resource.Value, err = proto.Marshal(body); err != nil {
		t.Fatal(err)
	}
	return r
}

func setUnknown(m proto.Message) {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
}

// domainInForce is the domain as the sink has it.
func (s *sink) domainInForce(domain string) rules.Domain {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sets[domain].Domain
}

func (s *sink) wantSettings(t *testing.T, revision int64, want rules.Settings) {
	t.Helper()
	d := s.domainInForce("api")
	if diff := cmp.Diff(want, d.Settings(), cmp.Comparer(rules.Settings.Equal)); diff != "" || d.Revision != revision {
		t.Fatalf("revision %d in force, want %d; settings (-want +got):\n%s", d.Revision, revision, diff)
	}
}

// Of a domain that the sidecar cannot take, head and freezes are in force, and so is the rest of the revision. The shard and
// the exemptions stay, over restarts too, until it is sent others that it can take.
func TestRefusedSettingsStayAndFreezesApply(t *testing.T) {
	t.Parallel()
	file := diskFile(t)
	s, conn := startScript(t)
	client := run(t, settings{conn: conn, file: file})
	s.request()
	good := settingsOf("/livez")
	wantRefusals(t, s.exchange("1", rule(t, "a", "60/min", 1), domainWith(t, 1, good)), nil)
	client.sink.wantSettings(t, 1, good)

	freeze := rules.Freeze{Rule: "a", Until: until}
	later := spoil(t, domainWith(t, 2, settingsOf("/readyz", freeze)), func(r *xdspb.Resource) {
		setUnknown(r.GetDomain().GetFreezes()[0])
	})
	answer := s.exchange("2", rule(t, "a", "61/min", 2), later)
	const why = "shard and exemptions stay as they were: invalid: headgate.xds.v1.Freeze has a field this program does not know: a newer sidecar may"
	wantRefusals(t, answer, map[string]string{"api/@settings": why})
	want := settingsOf("/livez", freeze)
	client.sink.wantSettings(t, 2, want)
	client.sink.want(t, "api", map[string]string{"a": "61/min"})
	client.stop()

	s, conn = startScript(t)
	client = run(t, settings{conn: conn, file: file})
	if diff := cmp.Diff(map[string]string{"api": "one@2", "api/@settings": ""}, s.request().GetInitialResourceVersions()); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
	client.sink.wantSettings(t, 2, want)
	later = spoil(t, domainWith(t, 3, good), func(r *xdspb.Resource) { r.GetDomain().Settings = []byte(`{"quota":5}`) })
	if got := refusals(t, s.exchange("1", later)); len(got) != 1 || got["api/@settings"] == "" {
		t.Errorf("refused %v", got)
	}
	client.sink.wantSettings(t, 3, good)
	wantRefusals(t, s.exchange("2", domainWith(t, 4, settingsOf("/readyz"))), nil)
	client.sink.wantSettings(t, 4, settingsOf("/readyz"))
	client.stop()
	m, err := file.Load()
	if err != nil || len(m.GetDomains()[0].GetRejections()) != 0 || len(m.GetDomains()[0].GetSettings()) != 0 {
		t.Errorf("still refused on disk: %v, %v", m, err)
	}
}

// The program that could not take the settings is replaced by one that can: what is on disk is enough for it.
func TestNewerProgramTakesTheSettingsFromDisk(t *testing.T) {
	t.Parallel()
	file := diskFile(t)
	s, conn := startScript(t)
	client := run(t, settings{conn: conn, file: file})
	s.request()
	s.exchange("1", spoil(t, domainWith(t, 1, settingsOf("/livez")), func(r *xdspb.Resource) { setUnknown(r.GetDomain()) }))
	client.sink.wantSettings(t, 1, rules.Settings{})
	client.stop()
	m, err := file.Load()
	if err != nil {
		t.Fatal(err)
	}
	m.GetDomains()[0].GetResources()[0].GetResource().GetDomain().ProtoReflect().SetUnknown(nil) // now it is known
	if err := file.Save(m); err != nil {
		t.Fatal(err)
	}
	s, conn = startScript(t)
	client = run(t, settings{conn: conn, file: file})
	if diff := cmp.Diff(map[string]string{"api": "one@1"}, s.request().GetInitialResourceVersions()); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
	client.sink.wantSettings(t, 1, settingsOf("/livez"))
}

// Shard, exemptions, freezes and overrides come through the whole way, and from disk.
func TestSettingsAndOverridesReachTheSink(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	shard, err := rules.ParseSource("header:x-api-key")
	if err != nil {
		t.Fatal(err)
	}
	want := settingsOf("/livez", rules.Freeze{Until: until, IncludingClosed: true}, rules.Freeze{Rule: "a", Until: time.UnixMicro(1).UTC()})
	want.Shard = &shard
	override := rules.Override{Key: rules.OverrideKey{1}, Rate: xdstest.Spec(t, "99/min").Limits[0].Rate, Until: until}
	ledger.Change("api", func(revision int64) []rules.Rule {
		return []rules.Rule{{
			Domain: "api", Name: "a", UID: "u", Revision: revision, Overrides: []rules.Override{override},
			Stable: &rules.Version{Number: 1, Spec: xdstest.Spec(t, "60/min")},
		}}
	})
	ledger.Set("api", want)
	file := diskFile(t)
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), file: file})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
	client.stop()
	restarted := prepare(t, settings{conn: noControlPlane{}, file: file})
	restarted.Restore()
	for _, c := range []sidecar{client, restarted} {
		c.sink.wantSettings(t, 2, want)
		if diff := cmp.Diff([]rules.Override{override}, c.sink.sets["api"].Rules[0].Overrides); diff != "" {
			t.Errorf("overrides (-want +got):\n%s", diff)
		}
	}
}

func TestDeletedRuleLeavesAndStopsStandingAsRefused(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	file := diskFile(t)
	server := xdstest.Start(t, ledger, xdstest.Options{})
	client := run(t, settings{conn: server.Conn(t), file: file, sink: newSink("13/min")})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	ledger.Put(t, "api", "13/min", "a")
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.NackReason != "" && slices.Equal(n.Refused, []string{"a"}) })
	ledger.Delete("api", "a")
	ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return n.Acked == 3 && n.NackReason == "" && len(n.Refused) == 0 })
	client.sink.want(t, "api", map[string]string{"b": "60/min"})
	client.stop()
	// It was away when the next one was deleted, and the control plane was restarted since.
	ledger.Delete("api", "b")
	client = run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), file: file})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(4))
	client.sink.want(t, "api", map[string]string{})
}

// A sidecar starts while the newest version is bad, as the case has it, and restarts with what it got.
func TestC30NewcomerRunsTheLastGood(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	run(t, settings{conn: server.Conn(t), node: "old", sink: newSink("13/min")})
	ledger.WaitNode(t, "old", "api", xdstest.Acked(1))
	ledger.WaitTaken(t, "api", "", 1)
	ledger.Put(t, "api", "13/min", "a")
	refuses := func(n rollout.Node) bool {
		return n.Connected && n.Nacked == 2 && n.Acked == 1 && n.NackReason == "api/a: forbidden limit"
	}
	ledger.WaitNode(t, "old", "api", refuses)

	want := map[string]string{"a": "60/min", "b": "60/min"}
	file := diskFile(t)
	client := run(t, settings{conn: server.Conn(t), node: "new", sink: newSink("13/min"), file: file})
	harness.Eventually(t, xdstest.Patience, func() error {
		if got := client.sink.limits("api"); !cmp.Equal(got, want) {
			return fmt.Errorf("in force: %v", got)
		}
		return nil
	})
	ledger.WaitNode(t, "new", "api", refuses)
	if got := client.metric(t, "headgate_config_rejected_total", "api"); got != 1 {
		t.Errorf("headgate_config_rejected_total %v", got)
	}
	client.stop()
	client = run(t, settings{conn: server.Conn(t), node: "new", sink: newSink("13/min"), file: file})
	ledger.WaitNode(t, "new", "api", refuses)
	client.sink.want(t, "api", want)
	ledger.Put(t, "api", "14/min", "a")
	ledger.WaitNode(t, "new", "api", xdstest.Acked(3))
	client.sink.want(t, "api", map[string]string{"a": "14/min", "b": "60/min"})
}

// A last good version is for a rule that was refused and is not held. Anywhere else it would be a step back.
func TestLastGoodReplacesNothing(t *testing.T) {
	t.Parallel()
	s, conn := startScript(t)
	client := run(t, settings{conn: conn, sink: newSink("13/min")})
	s.request()
	lastGood := func(name, limit string, revision int64) *discovery.Resource {
		r, err := xds.EncodeLastGood(&rules.Rule{
			Domain: "api", Name: name, UID: "u", Revision: revision,
			Stable: &rules.Version{Number: revision, Spec: xdstest.Spec(t, limit)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	refused := s.exchange("1", rule(t, "a", "60/min", 5), rule(t, "b", "13/min", 5), domain(t, "one", 5))
	wantRefusals(t, refused, map[string]string{"api/b": "forbidden limit"})
	wantRefusals(t, s.exchange("2", lastGood("a", "50/min", 4), lastGood("c", "50/min", 4), lastGood("b", "13/min", 3), domain(t, "one", 5)),
		map[string]string{"api/b": "forbidden limit"})
	client.sink.want(t, "api", map[string]string{"a": "60/min"})
	wantRefusals(t, s.exchange("3", lastGood("b", "12/min", 2), domain(t, "one", 5)), nil)
	wantRefusals(t, s.exchange("4", lastGood("b", "11/min", 1), domain(t, "one", 5)), nil)
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "12/min"})
}

func TestBreakGlassIsOfferedAndReportedAgain(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a")
	desk := &glass{}
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), breakGlass: desk.list})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	var want []rollout.BreakGlass
	for i := range 3 {
		b := rollout.BreakGlass{
			ID: fmt.Sprint("b", i), At: until, Actor: "root", Domain: "api", Freeze: rules.Freeze{Until: until.Add(time.Minute)},
		}
		want = append([]rollout.BreakGlass{b}, want...)
		desk.add(b)
		client.ReportBreakGlass()
		n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return len(n.BreakGlass) == len(want) })
		if diff := cmp.Diff(want, n.BreakGlass); diff != "" {
			t.Fatalf("reported (-want +got):\n%s", diff)
		}
	}
	client.stop()
	n := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return !n.Connected })
	desk.add(rollout.BreakGlass{ID: "away", At: until, Domain: "api"})
	client = run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), breakGlass: desk.list})
	again := ledger.WaitNode(t, "n1", "api", func(n rollout.Node) bool { return len(n.BreakGlass) == 4 })
	if again.Stream <= n.Stream {
		t.Errorf("stream %d after stream %d", again.Stream, n.Stream)
	}
	ledger.Put(t, "api", "61/min", "a") // and rules flow as ever
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(2))
}

// A hundred freezes come through a long outage. What is more than that, or too large, is in the log, each once.
func TestBreakGlassOffersWhatFitsAndLogsTheRest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		actor   int // bytes of each
		made    int
		offered int
	}{
		"all":      {actor: 8, made: 100, offered: 100},
		"too many": {actor: 8, made: 103, offered: 100},
		"too long": {actor: 3000, made: 60, offered: 52},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, conn := startScript(t)
			desk := &glass{}
			for i := range test.made {
				desk.add(rollout.BreakGlass{ID: fmt.Sprint("b", i), At: until, Domain: "api", Actor: strings.Repeat("x", test.actor)})
			}
			var log syncedText
			client := run(t, settings{conn: conn, breakGlass: desk.list, log: &log})
			offered := func() int {
				t.Helper()
				text := s.request().GetNode().GetMetadata().GetFields()[xds.BreakGlassField].GetStringValue()
				var list []rollout.BreakGlass
				if err := json.Unmarshal([]byte(text), &list); err != nil || len(text) > xds.MaxBreakGlassBytes {
					t.Fatalf("%d bytes, %v", len(text), err)
				}
				if list[0].ID != desk.list()[0].ID {
					t.Errorf("the newest offered is %s", list[0].ID)
				}
				return len(list)
			}
			if n := offered(); n != test.offered {
				t.Errorf("%d reports are offered, want %d", n, test.offered)
			}
			client.ReportBreakGlass() // nothing is new
			if n := offered(); n != test.offered {
				t.Errorf("%d reports are offered again, want %d", n, test.offered)
			}
			for i := range test.made {
				want := 0
				if i < test.made-test.offered {
					want = 1
				}
				if n := strings.Count(log.String(), fmt.Sprintf("id=b%d ", i)); n != want {
					t.Errorf("report b%d is logged as dropped %d times, want %d", i, n, want)
				}
			}
		})
	}
}
