package faults_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/rpcstatus"
	"github.com/headgate/headgate/xds/subscribe"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patience bounds every wait for something that is expected to happen.
const patience = 30 * time.Second

const domain = "d"

// plane is a control plane that can be started and killed. Its address stays the same.
type plane struct {
	t        *testing.T
	binary   string
	database string
	addr     string
	process  *harness.Process
	conn     *grpc.ClientConn
	admin    adminpb.AdminServiceClient
}

func newPlane(t *testing.T, binary, database string) *plane {
	t.Helper()
	return &plane{t: t, binary: binary, database: database, addr: harness.FreeAddr(t)}
}

// launch starts the process, whatever becomes of it.
func (p *plane) launch() {
	p.t.Helper()
	p.process = harness.Start(p.t, "controlplane", p.binary,
		"--database-url", p.database, "--grpc-listen", p.addr, "--http-listen", "127.0.0.1:0", "--poll", "100ms")
}

// start returns when it serves.
func (p *plane) start() {
	p.t.Helper()
	p.launch()
	p.process.WaitLog("control plane started")
	// A new connection each time: one that has seen its server die waits before it tries again.
	p.conn = dial(p.t, p.addr)
	p.admin = adminpb.NewAdminServiceClient(p.conn)
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := subscribe.Dial(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(rpcstatus.UnaryClient()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (p *plane) kill() {
	p.process.Kill()
	_ = p.conn.Close()
}

// file is a rule file in which each of the rules has the limit.
func file(limit int64, names ...string) []*adminpb.File {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: headgate/v1\nkind: RuleSet\ndomain: %s\nrules:\n", domain)
	for _, name := range names {
		fmt.Fprintf(&b, "  - {name: %s, match: {path: /%s}, key: [ip], limit: %d/d}\n", name, name, limit)
	}
	return []*adminpb.File{{Name: "rules.yaml", Content: []byte(b.String())}}
}

// apply puts the limit in force for the rules, and returns the revision.
func (p *plane) apply(ctx context.Context, tag string, limit int64, names ...string) (int64, error) {
	answer, err := p.admin.Apply(ctx, &adminpb.ApplyRequest{
		Files: file(limit, names...), Why: &adminpb.Why{Message: tag}, Enforce: true, Again: true, Confirmed: true,
	})
	if err != nil {
		return 0, err
	}
	return answer.GetOutcomes()[0].GetRevision(), nil
}

func (p *plane) mustApply(limit int64, names ...string) int64 {
	p.t.Helper()
	revision, err := p.apply(p.t.Context(), "", limit, names...)
	if err != nil {
		p.t.Fatal(err)
	}
	return revision
}

// limitOf is the amount of a version's limit; 0 for no version.
func limitOf(v *rules.Version) int64 {
	if v == nil {
		return 0
	}
	return v.Spec.Limits[0].Rate.Amount
}

func (p *plane) lineage() string {
	p.t.Helper()
	answer, err := p.admin.WhoAmI(p.t.Context(), &adminpb.WhoAmIRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.GetLineage()
}

func (p *plane) replaceLineage(lineage string) {
	p.t.Helper()
	if _, err := p.admin.ReplaceLineage(p.t.Context(), &adminpb.ReplaceLineageRequest{Lineage: lineage}); err != nil {
		p.t.Fatal(err)
	}
}

// awaitNodes returns when n nodes are known, all in the state ("": in any).
func (p *plane) awaitNodes(n int, state string) {
	p.t.Helper()
	harness.Eventually(p.t, patience, func() error {
		answer, err := p.admin.ListNodes(p.t.Context(), &adminpb.ListNodesRequest{Domain: domain})
		if err != nil {
			return err
		}
		are := 0
		for _, node := range answer.GetNodes() {
			if state == "" || node.GetState() == state {
				are++
			}
		}
		if are != n {
			return fmt.Errorf("%d nodes in state %q, want %d: %v", are, state, n, answer.GetNodes())
		}
		return nil
	})
}
