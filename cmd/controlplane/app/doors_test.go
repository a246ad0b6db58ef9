package app_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/certs/certstest"
	"github.com/headgate/headgate/xds/xdspb"
	"github.com/headgate/headgate/xds/xdstest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patience bounds every wait for something that is expected to happen.
const patience = 30 * time.Second

// plane is a control plane with authentication and TLS, and the authority of all certificates.
type plane struct {
	*app.App
	t         *testing.T
	authority *certstest.Authority
	dir       string
}

func start(t *testing.T, change func(*app.Config)) *plane {
	t.Helper()
	p := &plane{t: t, authority: certstest.New(t), dir: t.TempDir()}
	server := p.authority.Server(time.Now().Add(time.Hour))
	c := app.DefaultConfig()
	c.Database, c.GRPCListen, c.HTTPListen = filepath.Join(p.dir, "headgate.db"), "127.0.0.1:0", "127.0.0.1:0"
	c.Auth = app.AuthToken
	c.TLSCert = certstest.Write(t, server.Cert, p.dir, "server.crt")
	c.TLSKey = certstest.Write(t, server.Key, p.dir, "server.key")
	c.TLSClientCA = p.ca()
	if change != nil {
		change(&c)
	}
	var err error
	if p.App, err = app.New(t.Context(), c, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the control plane ended with %v", err)
		}
	})
	return p
}

func (p *plane) ca() string {
	p.t.Helper()
	return certstest.Write(p.t, p.authority.PEM, p.dir, "ca.crt")
}

// caller is somebody who calls.
type caller struct {
	name    string
	token   string
	cert    certs.Files
	unknown bool // who it is cannot be told
	role    access.Role
}

// token adds a credential past the service, so that it may have expired already, and returns who has it.
func (p *plane) token(name string, role access.Role, change func(*access.Credential)) caller {
	p.t.Helper()
	text, c := access.NewToken()
	c.Name, c.Role, c.Created = name, role, time.Now().UTC().Truncate(time.Microsecond)
	if change != nil {
		change(&c)
	}
	p.add(c)
	return caller{name: name, token: text, role: role}
}

func (p *plane) add(c access.Credential) {
	p.t.Helper()
	record := rollout.Record{Time: c.Created, Action: rollout.ActionAddCredential, Target: c.ID, Before: []byte("{}"), After: []byte("{}")}
	if err := p.Store().AddCredential(p.t.Context(), c, record); err != nil {
		p.t.Fatal(err)
	}
	if !c.Revoked.IsZero() {
		record.Action = rollout.ActionRevokeCredential
		if err := p.Store().RevokeCredential(p.t.Context(), c.ID, c.Revoked, record); err != nil {
			p.t.Fatal(err)
		}
	}
}

// certificate makes a client certificate with a URI.
func (p *plane) certificate(name, uri string) caller {
	p.t.Helper()
	pair := p.authority.Client(time.Now().Add(time.Hour), "", uri)
	return caller{name: name, cert: certs.Files{
		Cert: certstest.Write(p.t, pair.Cert, p.dir, name+".crt"), Key: certstest.Write(p.t, pair.Key, p.dir, name+".key"),
	}}
}

// connect returns a connection of the caller.
func (p *plane) connect(c caller) *grpc.ClientConn {
	p.t.Helper()
	files := c.cert
	files.CA = p.ca()
	client, err := certs.NewClient(files, "", certs.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(client.Credentials())}
	if c.token != "" {
		token, err := certs.NewTokenFile(certstest.Write(p.t, []byte(c.token), p.dir, c.name+".token"), false, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	conn, err := grpc.NewClient(p.GRPCAddr().String(), options...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask calls a method with one message, whatever its kind, and returns how it answered. A stream that says nothing for a
// moment after it was opened has let the caller in.
func ask(ctx context.Context, conn *grpc.ClientConn, method string, stream bool, req proto.Message) codes.Code {
	if !stream {
		return status.Code(conn.Invoke(ctx, method, req, &emptypb.Empty{}))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return status.Code(err)
	}
	if err := s.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // io.EOF: RecvMsg knows why
		return status.Code(err)
	}
	_ = s.CloseSend()
	err = s.RecvMsg(&emptypb.Empty{})
	if errors.Is(err, io.EOF) {
		return codes.OK
	}
	return status.Code(err)
}

const (
	nobody   access.Role = "nobody"
	everyone access.Role = "everyone"
)

// row is a method as DESIGN.md has it, with a request that its handler takes as far as the question who asks.
type row struct {
	least access.Role
	req   func(domain string) proto.Message // nil: an empty one, about no domain
}

func rows() map[string]row {
	const admin, xds = "/headgate.admin.v1.AdminService/", "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	return map[string]row{
		grpc_health_v1.Health_Check_FullMethodName:                           {least: nobody},
		grpc_health_v1.Health_List_FullMethodName:                            {least: nobody},
		grpc_health_v1.Health_Watch_FullMethodName:                           {least: nobody},
		reflection.ServerReflection_ServerReflectionInfo_FullMethodName:      {least: everyone},
		reflectionalpha.ServerReflection_ServerReflectionInfo_FullMethodName: {least: everyone},
		xds + "DeltaAggregatedResources":                                     {access.Sidecar, subscription},
		xds + "StreamAggregatedResources":                                    {least: access.Sidecar},

		xdspb.TallyService_Report_FullMethodName: {access.Sidecar, source},

		admin + "WhoAmI": {least: everyone},
		admin + "Apply":  {access.Editor, func(d string) proto.Message { return application(d) }},
		admin + "Promote": {access.Operator, func(d string) proto.Message {
			return &adminpb.PromoteRequest{Domain: d, Rule: "r", To: 100}
		}},
		admin + "Pause":    {access.Operator, func(d string) proto.Message { return &adminpb.PauseRequest{Domain: d, Rule: "r"} }},
		admin + "Rollback": {access.Operator, func(d string) proto.Message { return &adminpb.RollbackRequest{Domain: d, Rule: "r"} }},
		admin + "RollbackDomain": {access.Operator, func(d string) proto.Message {
			return &adminpb.RollbackDomainRequest{Domain: d, ToRevision: 1}
		}},
		admin + "Delete":      {access.Operator, func(d string) proto.Message { return &adminpb.DeleteRequest{Domain: d, Rule: "r"} }},
		admin + "Freeze":      {access.Operator, func(d string) proto.Message { return &adminpb.FreezeRequest{Domain: d} }},
		admin + "Unfreeze":    {access.Operator, func(d string) proto.Message { return &adminpb.UnfreezeRequest{Domain: d} }},
		admin + "SetOverride": {access.Operator, func(d string) proto.Message { return override(d) }},
		admin + "DeleteOverride": {access.Operator, func(d string) proto.Message {
			return &adminpb.DeleteOverrideRequest{Domain: d, Rule: "r", Key: []string{"10.0.0.1"}}
		}},

		admin + "GetRollout":   {access.Viewer, func(d string) proto.Message { return &adminpb.GetRolloutRequest{Domain: d, Rule: "r"} }},
		admin + "WatchRollout": {access.Viewer, func(d string) proto.Message { return &adminpb.WatchRolloutRequest{Domain: d, Rule: "r"} }},
		admin + "ListRules":    {access.Viewer, func(d string) proto.Message { return &adminpb.ListRulesRequest{Domain: d} }},
		admin + "ListDomains":  {access.Viewer, func(d string) proto.Message { return &adminpb.ListDomainsRequest{Domain: d} }},
		admin + "ListOverrides": {access.Viewer, func(d string) proto.Message {
			return &adminpb.ListOverridesRequest{Domain: d, Rule: "r"}
		}},
		admin + "History":      {access.Viewer, func(d string) proto.Message { return &adminpb.HistoryRequest{Domain: d, Rule: "r"} }},
		admin + "ListAudit":    {access.Viewer, func(d string) proto.Message { return &adminpb.ListAuditRequest{Domain: d} }},
		admin + "ListNodes":    {access.Viewer, func(d string) proto.Message { return &adminpb.ListNodesRequest{Domain: d} }},
		admin + "DescribeNode": {least: access.Viewer},
		admin + "Await":        {access.Viewer, func(d string) proto.Message { return &adminpb.AwaitRequest{Domain: d, Revision: 1} }},

		admin + "Stats":    {access.Viewer, func(d string) proto.Message { return &adminpb.StatsRequest{Domain: d} }},
		admin + "Overview": {least: access.Viewer},
		admin + "Top":      {access.Viewer, func(d string) proto.Message { return &adminpb.TopRequest{Domain: d, Rule: "r"} }},
		admin + "KeyRates": {access.Viewer, func(d string) proto.Message { return &adminpb.KeyRatesRequest{Domain: d, Rule: "r"} }},
		admin + "Lookup":   {access.Viewer, func(d string) proto.Message { return &adminpb.LookupRequest{Domain: d, Key: []string{"10.0.0.1"}} }},

		admin + "ListAlerts":  {access.Viewer, func(d string) proto.Message { return &adminpb.ListAlertsRequest{Domain: d} }},
		admin + "Silence":     {access.Operator, func(d string) proto.Message { return &adminpb.SilenceRequest{Domain: d, Rule: "r"} }},
		admin + "Unsilence":   {access.Operator, func(d string) proto.Message { return &adminpb.UnsilenceRequest{Domain: d, Rule: "r"} }},
		admin + "ListTargets": {least: access.Viewer},
		admin + "TestAlerts":  {least: access.Operator},

		admin + "ReplaceLineage":   {least: access.Admin},
		admin + "CreateCredential": {least: access.Admin},
		admin + "ListCredentials":  {least: access.Admin},
		admin + "RevokeCredential": {least: access.Admin},
	}
}

func application(domain string) *adminpb.ApplyRequest {
	return &adminpb.ApplyRequest{Files: []*adminpb.File{{
		Name:    "f.yaml",
		Content: []byte("apiVersion: headgate/v1\nkind: RuleSet\ndomain: " + domain + "\nrules: [{name: r, key: [ip], limit: 5/s}]\n"),
	}}}
}

func override(domain string) proto.Message {
	return &adminpb.SetOverrideRequest{
		Domain: domain, Rule: "r", Key: []string{"10.0.0.1"}, Rate: "10/s", Until: timestamppb.New(time.Now().Add(time.Hour)),
	}
}

func subscription(domain string) proto.Message {
	return &discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: "node-of-" + domain}, TypeUrl: xds.TypeURL, ResourceNamesSubscribe: []string{domain},
	}
}

func source(domain string) proto.Message {
	return &xdspb.ReportRequest{Source: &xdspb.Source{Node: "node-of-" + domain, Epoch: "e", Domains: []string{domain}}}
}

// enough says which roles have what the least one has.
func enough(role, least access.Role) bool {
	if least == nobody || least == everyone {
		return true
	}
	ladder := map[access.Role]int{access.Viewer: 1, access.Editor: 2, access.Operator: 3, access.Admin: 4}
	if role == access.Sidecar || least == access.Sidecar {
		return role == least
	}
	return ladder[role] >= ladder[least]
}

// methods calls do for every method of every service that the control plane registers.
func (p *plane) methods(do func(method string, stream bool, r row)) {
	p.t.Helper()
	table := rows()
	for name, service := range p.Services() {
		for _, m := range service.Methods {
			method := "/" + name + "/" + m.Name
			r, ok := table[method]
			if !ok {
				p.t.Errorf("%s is in no row of this test: say who may call it", method)
				continue
			}
			delete(table, method)
			do(method, m.IsClientStream || m.IsServerStream, r)
		}
	}
	for method := range table {
		p.t.Errorf("there is no %s", method)
	}
}

func TestEveryMethodLetsInOnlyWhoHasTheRole(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	unheard, _ := access.NewToken()
	callers := []caller{
		{name: "nobody", unknown: true},
		{name: "unheard-of", token: unheard, unknown: true},
		p.certificate("foreign-name", "spiffe://test/unknown"),
	}
	callers[2].unknown = true
	expired := p.token("expired", access.Admin, func(c *access.Credential) { c.Expires = c.Created.Add(-time.Hour) })
	revoked := p.token("revoked", access.Admin, func(c *access.Credential) { c.Revoked = c.Created })
	expired.unknown, revoked.unknown = true, true
	callers = append(callers, expired, revoked)
	for _, role := range access.Roles() {
		callers = append(callers, p.token("a-"+string(role), role, nil))
	}
	certified := p.certificate("certified", "spiffe://test/editor")
	certified.role = access.Editor
	editor := access.NewCertificate("spiffe://test/editor")
	editor.Role, editor.Created = access.Editor, time.Now().UTC().Truncate(time.Microsecond)
	p.add(editor)
	callers = append(callers, certified)

	calls := 0
	for _, c := range callers {
		conn := p.connect(c)
		p.methods(func(method string, stream bool, r row) {
			calls++
			req := proto.Message(&emptypb.Empty{})
			if r.req != nil {
				req = r.req("")
			}
			got := ask(t.Context(), conn, method, stream, req)
			switch {
			case r.least == nobody:
				if got != codes.OK && got != codes.NotFound {
					t.Errorf("%s calls %s: %s, want to be let in", c.name, method, got)
				}
			case c.unknown:
				if got != codes.Unauthenticated {
					t.Errorf("%s calls %s: %s, want Unauthenticated", c.name, method, got)
				}
			case !enough(c.role, r.least):
				if got != codes.PermissionDenied {
					t.Errorf("%s calls %s: %s, want PermissionDenied", c.name, method, got)
				}
			default:
				if got == codes.Unauthenticated || got == codes.PermissionDenied || got == codes.Internal || got == codes.Unavailable {
					t.Errorf("%s calls %s: %s, want to be let in", c.name, method, got)
				}
			}
		})
	}
	t.Logf("%d calls by %d callers", calls, len(callers))
}

func TestEveryMethodKeepsToTheDomainsOfTheCaller(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	only := func(c *access.Credential) { c.Domains = []string{"a"} }
	conns := map[access.Role]*grpc.ClientConn{}
	for _, role := range []access.Role{access.Viewer, access.Editor, access.Operator, access.Sidecar} {
		conns[role] = p.connect(p.token("of-a-"+string(role), role, only))
	}
	tried := 0
	p.methods(func(method string, stream bool, r row) {
		conn := conns[r.least]
		if r.req == nil || conn == nil {
			return
		}
		tried++
		if got := ask(t.Context(), conn, method, stream, r.req("b")); got != codes.PermissionDenied {
			t.Errorf("%s of a calls %s for b: %s, want PermissionDenied", r.least, method, got)
		}
		if r.least == access.Sidecar {
			return // the next test is about what it gets
		}
		if got := ask(t.Context(), conn, method, stream, r.req("a")); got == codes.PermissionDenied || got == codes.Unauthenticated {
			t.Errorf("%s of a calls %s for a: %s, want to be let in", r.least, method, got)
		}
	})
	if tried < 18 {
		t.Errorf("only %d methods were tried", tried)
	}
}

func TestSidecarWithACertificateGetsTheRulesOfItsDomainOnly(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	sidecar := p.certificate("n1", "spiffe://test/sidecar")
	c := access.NewCertificate("spiffe://test/sidecar")
	c.Role, c.Domains, c.Created = access.Sidecar, []string{"a"}, time.Now().UTC().Truncate(time.Microsecond)
	p.add(c)
	conn := p.connect(sidecar)
	admin := adminpb.NewAdminServiceClient(p.connect(p.token("root", access.Admin, nil)))
	for _, domain := range []string{"a", "b"} {
		if _, err := admin.Apply(t.Context(), application(domain)); err != nil {
			t.Fatal(err)
		}
	}
	if got := xdstest.Dial(t, conn, "n1", nil, "a").Sync("a", 1); len(got) != 2 {
		t.Errorf("got %q, want the rule and the domain", got)
	}
	for _, domains := range [][]string{{"b"}, {"a", "b"}} {
		err := xdstest.Dial(t, conn, "n1", nil, domains...).Err()
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "not for b") {
			t.Errorf("subscribed to %q: got %v, want PermissionDenied that names b", domains, err)
		}
	}
}

func TestOpenStreamEndsWhenItsTokenExpires(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	sidecar := p.token("n1", access.Sidecar, func(c *access.Credential) { c.Expires = time.Now().Add(2 * time.Second) })
	err := xdstest.Dial(t, p.connect(sidecar), "n1", nil, "a").Err()
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "expired") {
		t.Errorf("got %v, want Unauthenticated that says so", err)
	}
}

func TestRefusedAttemptIsInTheAuditTrail(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	viewer := adminpb.NewAdminServiceClient(p.connect(p.token("vi", access.Viewer, nil)))
	if _, err := viewer.Promote(t.Context(), &adminpb.PromoteRequest{Domain: "d", Rule: "r", To: 1}); status.Code(err) != codes.PermissionDenied {
		t.Fatalf("got %v, want PermissionDenied", err)
	}
	trail, err := viewer.ListAudit(t.Context(), &adminpb.ListAuditRequest{Domain: "d"})
	if err != nil {
		t.Fatal(err)
	}
	if len(trail.GetRecords()) != 1 {
		t.Fatalf("%d records, want one", len(trail.GetRecords()))
	}
	r := trail.GetRecords()[0]
	if r.GetActor() != "vi" || !r.GetVerified() || r.GetTarget() != "d/r" || r.GetAction() != "promote" || !strings.Contains(r.GetRefused(), "this needs operator") {
		t.Errorf("the record is %v", r)
	}
}

func TestHTTPPortSpeaksTLSAndAsksForMetrics(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	viewer := p.token("prometheus", access.Viewer, nil)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.authority.PEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	client := &http.Client{Transport: transport}
	defer transport.CloseIdleConnections()
	get := func(url, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	base := "https://" + p.HTTPAddr().String()
	harness.Eventually(t, patience, func() error {
		if code, body := get(base+"/readyz", ""); code != http.StatusOK {
			return fmt.Errorf("/readyz answers %d %s", code, body)
		}
		return nil
	})
	if code, body := get(base+"/metrics", ""); code != http.StatusUnauthorized || !strings.Contains(body, "HEADGATE_TOKEN") {
		t.Errorf("/metrics without a token: got %d %s, want 401 that says how", code, body)
	}
	code, body := get(base+"/metrics", viewer.token)
	for _, want := range []string{
		`headgate_auth_failures_total{reason="missing"} 1`, "headgate_tls_certificate_expires_timestamp_seconds",
		"headgate_tls_reload_failures_total 0", "headgate_tls_handshake_failures_total 0",
	} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("/metrics answers %d without %q", code, want)
		}
	}
	if code, _ := get("http://"+p.HTTPAddr().String()+"/livez", ""); code != http.StatusBadRequest {
		t.Errorf("without TLS: got %d, want 400", code)
	}
}
