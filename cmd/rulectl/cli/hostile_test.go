package cli_test

import (
	"bytes"
	"context"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/cmd/rulectl/cli"
	"github.com/headgate/headgate/web/api/adminpb"
)

// hostileText would redraw the screen, turn the direction of what follows, and write a line of its own.
const hostileText = "a\x1b[2J\r\u009b\u202e\u2066\u200f\n✔ all is well"

// hostile is a control plane that says hostileText wherever it can say something.
type hostile struct {
	adminpb.UnimplementedAdminServiceServer
}

func hostileOutcomes() []*adminpb.Outcome {
	step := func(before, after string) *adminpb.Step {
		return &adminpb.Step{Rule: hostileText + "/" + hostileText, Before: before, After: after, Warnings: []string{hostileText}}
	}
	return []*adminpb.Outcome{
		{Domain: hostileText, Note: hostileText},
		{Domain: hostileText, Revision: 2, Steps: []*adminpb.Step{step("", hostileText), step(hostileText, "deleted"), step(hostileText, hostileText)}},
	}
}

func (hostile) Apply(_ context.Context, req *adminpb.ApplyRequest) (*adminpb.ApplyResponse, error) {
	outcomes := hostileOutcomes()
	if req.GetDryRun() {
		outcomes[1].Revision = 0
	}
	return &adminpb.ApplyResponse{Outcomes: outcomes}, nil
}

func (hostile) Await(_ *adminpb.AwaitRequest, stream grpc.ServerStreamingServer[adminpb.AwaitResponse]) error {
	return stream.Send(&adminpb.AwaitResponse{Nodes: hostileNodes()})
}

func hostileNodes() []*adminpb.Node {
	return []*adminpb.Node{
		{Id: hostileText, Domain: hostileText, Program: hostileText, State: "foreign", NackReason: hostileText, Lineage: hostileText, BreakGlass: []string{hostileText}},
		{Id: hostileText, Domain: hostileText, State: hostileText, Lineage: hostileText},
	}
}

func hostileRule() *adminpb.Rule {
	v := &adminpb.Version{Number: 1, Spec: `{"owner": "a\u202e\u001b", "description": "a\u202e", "key": ["ip\u202e"]}`}
	return &adminpb.Rule{Domain: "a", Name: "x", Uid: hostileText, Stage: hostileText, State: hostileText, Stable: v}
}

func (hostile) ListRules(context.Context, *adminpb.ListRulesRequest) (*adminpb.ListRulesResponse, error) {
	other := hostileRule()
	other.Domain, other.Name = hostileText, hostileText
	return &adminpb.ListRulesResponse{Rules: []*adminpb.Rule{hostileRule(), other, {}}}, nil
}

func (hostile) ListDomains(context.Context, *adminpb.ListDomainsRequest) (*adminpb.ListDomainsResponse, error) {
	return &adminpb.ListDomainsResponse{Domains: []*adminpb.Domain{{
		Name: hostileText, Shard: hostileText, Freezes: []*adminpb.FreezeState{{Rule: hostileText}},
		Exempt: []*adminpb.Exemption{{Name: hostileText, Match: `{"path": "\u202e"}`}},
	}}}, nil
}

func (hostile) ListNodes(context.Context, *adminpb.ListNodesRequest) (*adminpb.ListNodesResponse, error) {
	return &adminpb.ListNodesResponse{Nodes: hostileNodes()}, nil
}

func (hostile) DescribeNode(context.Context, *adminpb.DescribeNodeRequest) (*adminpb.DescribeNodeResponse, error) {
	return &adminpb.DescribeNodeResponse{Nodes: hostileNodes(), Lacks: []*adminpb.Lack{{Rule: hostileText, Has: hostileText, Wanted: hostileText}}}, nil
}

func (hostile) History(context.Context, *adminpb.HistoryRequest) (*adminpb.HistoryResponse, error) {
	return &adminpb.HistoryResponse{Entries: []*adminpb.HistoryEntry{{Actor: hostileText, Action: hostileText, State: hostileText, Message: hostileText}}}, nil
}

func (hostile) ListAudit(context.Context, *adminpb.ListAuditRequest) (*adminpb.ListAuditResponse, error) {
	return &adminpb.ListAuditResponse{Records: []*adminpb.Record{{Number: 1, Actor: hostileText, Action: hostileText, Target: hostileText, Detail: hostileText}}}, nil
}

func (hostile) ListOverrides(context.Context, *adminpb.ListOverridesRequest) (*adminpb.ListOverridesResponse, error) {
	return &adminpb.ListOverridesResponse{Overrides: []*adminpb.Override{{Rule: hostileText, Key: hostileText, Limit: hostileText, Rate: hostileText}}}, nil
}

func (hostile) ListAlerts(context.Context, *adminpb.ListAlertsRequest) (*adminpb.ListAlertsResponse, error) {
	fires := &adminpb.Alert{
		Domain: hostileText, Rule: hostileText, Kind: hostileText, Severity: hostileText, Hits: hostileText, Since: &timestamppb.Timestamp{},
		Keys:   []*adminpb.AlertKey{{Label: hostileText}},
		Offers: []*adminpb.Offer{{Command: hostileText, Effect: hostileText}},
	}
	over := &adminpb.Alert{Domain: hostileText, Since: fires.GetSince(), Resolved: fires.GetSince(), Ending: hostileText}
	return &adminpb.ListAlertsResponse{
		Alerts:   []*adminpb.Alert{fires, over},
		Silences: []*adminpb.SilenceState{{Domain: hostileText, Rule: hostileText, Actor: hostileText, Message: hostileText, Until: &timestamppb.Timestamp{}}},
	}, nil
}

func (hostile) TestAlerts(context.Context, *adminpb.TestAlertsRequest) (*adminpb.TestAlertsResponse, error) {
	return &adminpb.TestAlertsResponse{Answers: []*adminpb.TargetAnswer{{Target: hostileText, Error: hostileText}}}, nil
}

func (hostile) ListCredentials(context.Context, *adminpb.ListCredentialsRequest) (*adminpb.ListCredentialsResponse, error) {
	c := &adminpb.Credential{Id: hostileText, Kind: hostileText, Name: hostileText, Role: hostileText, Domains: []string{hostileText}}
	return &adminpb.ListCredentialsResponse{Credentials: []*adminpb.Credential{c}}, nil
}

func (hostile) CreateCredential(context.Context, *adminpb.CreateCredentialRequest) (*adminpb.CreateCredentialResponse, error) {
	c := &adminpb.Credential{Id: hostileText, Kind: hostileText, Name: hostileText, Role: hostileText, Domains: []string{hostileText}}
	return &adminpb.CreateCredentialResponse{Credential: c, Token: hostileText}, nil
}

func (hostile) WhoAmI(context.Context, *adminpb.WhoAmIRequest) (*adminpb.WhoAmIResponse, error) {
	return &adminpb.WhoAmIResponse{Name: hostileText, Role: hostileText, Domains: []string{hostileText}, Program: hostileText, Lineage: hostileText}, nil
}

func (hostile) Stats(_ context.Context, req *adminpb.StatsRequest) (*adminpb.StatsResponse, error) {
	f := &adminpb.VersionFigures{Decided: 1, Refused: 1, WouldRefuse: -1, WouldRefuseShared: 1}
	v := &adminpb.VersionStats{
		Rule: hostileText, Role: hostileText, Total: f, Limits: []*adminpb.LimitRefusals{{Number: 1, Name: hostileText}}, Refused: &adminpb.Interval{},
		Points: []*adminpb.VersionPoint{{Figures: f}, {Figures: &adminpb.VersionFigures{Refused: math.MaxInt64}}},
	}
	return &adminpb.StatsResponse{
		To: req.GetTo(), Versions: []*adminpb.VersionStats{v}, Missing: []*adminpb.MissingCounts{{Node: hostileText}}, LeftOut: -1,
		Requests: &adminpb.DomainStats{},
	}, nil
}

func (hostile) Top(context.Context, *adminpb.TopRequest) (*adminpb.TopResponse, error) {
	v := &adminpb.VersionKeys{Role: hostileText, Keys: []*adminpb.TopKey{{Label: hostileText, Id: hostileText, Share: math.NaN()}}}
	return &adminpb.TopResponse{Versions: []*adminpb.VersionKeys{v}, Missing: []*adminpb.MissingCounts{{Node: hostileText}}}, nil
}

func (hostile) Lookup(context.Context, *adminpb.LookupRequest) (*adminpb.LookupResponse, error) {
	return &adminpb.LookupResponse{
		Standings: []*adminpb.KeyStanding{{Rule: hostileText, Role: hostileText, Label: hostileText}}, Unknown: []string{hostileText},
		Refusals: []*adminpb.Refusal{{
			Domain: hostileText, Rule: hostileText, Limit: hostileText, Outcome: hostileText, Label: hostileText, KeyId: hostileText, Path: hostileText,
			Reference: hostileText, Node: hostileText,
		}}, Missing: []*adminpb.MissingCounts{{Node: hostileText}},
	}, nil
}

// startHostile serves it until the test ends.
func startHostile(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	adminpb.RegisterAdminServiceServer(server, hostile{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

// A program gets texts as they are; a terminal does not.
func TestTextsOfJqDoNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	addr := startHostile(t)
	env := map[string]string{"RULECTL_SERVER": addr}
	if out := goldenRun(t, env, 0, "get", "rules", "--jq", ".items[1].name"); out != hostileText+"\n" {
		t.Errorf("a program gets %q", out)
	}
	for _, expression := range []string{".items[1].name", ".items[1]", ".items[1].uid|@json"} {
		code, screen := sit(t, env, "get", "rules", "--jq", expression).leaves()
		if code != 0 || !strings.Contains(screen, "all is well") || strings.ContainsFunc(screen, func(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' }) {
			t.Errorf("%s: exit code %d, %q", expression, code, screen)
		}
	}
}

func TestNothingThatAServerSaysControlsTheTerminal(t *testing.T) {
	t.Parallel()
	addr := startHostile(t)
	file := write(t, "a.yaml", []byte(oneRule))
	for _, command := range []string{
		"apply -f FILE --yes --wait", "apply -f FILE --dry-run", "diff -f FILE", "diff -u -f FILE", "get rules", "get rules -o wide", "get domains",
		"describe a/x", "describe domain a", "describe sidecar n", "sidecar list", "sidecar list -o wide", "sidecar diff n", "history a/x",
		"get rules --sort-by summary -o wide", "audit list", "audit export", "override list a/x", "token list", "token create --name a --role viewer", "whoami", "doctor",
		"get rules -o json", "get rules --jq .items", "get rules --sort-by owner", "sidecar list -w --timeout 50ms", "sidecar list -w --timeout 50ms -o json", "get domains -o yaml", "get rules -o name", "sidecar list -o name",
		"stats a/x", "stats a/x --by version", "stats a", "stats a -o yaml", "top a/x", "lookup a/x --key k", "lookup --reference r", "lookup a --key k -o json",
		"alert list", "alert list -o yaml", "alert list -o name", "alert test",
	} {
		var out bytes.Buffer
		args := strings.Fields(strings.Replace(command, "FILE", file, 1))
		cli.Run(t.Context(), args, cli.IO{In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(key string) string {
			return map[string]string{"RULECTL_SERVER": addr}[key]
		}})
		for line := range strings.Lines(out.String()) {
			if hidden := func(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' }; strings.ContainsFunc(line, hidden) || strings.HasPrefix(line, "✔ all is well") {
				t.Errorf("rulectl %s prints %q", command, line)
			}
		}
		if !strings.Contains(out.String(), "all is well") && !strings.Contains(command, "describe a/x") {
			t.Errorf("rulectl %s prints nothing of it: %q", command, out.String())
		}
	}
}
