package report

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/rpcstatus"
	"github.com/headgate/headgate/xds/xdspb"
)

// raw is a stream on which the test says what it likes.
type raw struct {
	t      *testing.T
	stream xdspb.TallyService_ReportClient
	conn   *grpc.ClientConn
	end    context.CancelFunc
}

func (p *plane) raw() *raw {
	p.t.Helper()
	conn := p.dial()
	ctx, end := context.WithCancel(context.Background())
	stream, err := xdspb.NewTallyServiceClient(conn).Report(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	return &raw{t: p.t, stream: stream, conn: conn, end: end}
}

func (r *raw) close() { r.end(); _ = r.conn.Close() }

func (r *raw) send(m *xdspb.ReportRequest) {
	r.t.Helper()
	if err := r.stream.Send(m); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) stored() int64 {
	r.t.Helper()
	m, err := r.stream.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return m.GetStored()
}

func (r *raw) fails() error {
	for {
		if _, err := r.stream.Recv(); err != nil {
			return rpcstatus.FromError(err)
		}
	}
}

func hello(domains ...string) *xdspb.ReportRequest {
	return &xdspb.ReportRequest{Now: time.Now().UnixMicro(), Source: &xdspb.Source{Node: "n1", Epoch: "e1", Domains: domains}}
}

// named opens a stream and names the source.
func (p *plane) named(domains ...string) *raw {
	p.t.Helper()
	r := p.raw()
	r.send(hello(domains...))
	r.stored()
	return r
}

// closed is a window that just ended.
func closed(number int64, versions ...*xdspb.VersionTally) *xdspb.Window {
	now := time.Now()
	return &xdspb.Window{Number: number, Start: now.Add(-tally.Span).UnixMicro(), End: now.UnixMicro(), Versions: versions}
}

func versionTally(uid string, version int64, counts ...int64) *xdspb.VersionTally {
	return &xdspb.VersionTally{Domain: "api", Uid: uid, Version: version, Counts: counts}
}

func TestSourceIsBelievedOnlyOfItsOwnIdentity(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		identity access.Identity
		node     rollout.Node // of the domain api
		hello    func(*xdspb.ReportRequest)
		want     error
		reason   string
	}{
		"its own": {},
		"nobody":  {identity: access.Identity{Name: "x"}, want: rules.ErrForbidden, reason: refusedForbidden},
		"another role": {
			identity: access.Identity{Name: "team-a", Role: access.Admin}, want: rules.ErrForbidden, reason: refusedForbidden,
		},
		"another's domain": {
			identity: access.Identity{Name: "team-a", Role: access.Sidecar, Domains: []string{"web"}}, want: rules.ErrForbidden, reason: refusedForbidden,
		},
		"another's node": {
			node: rollout.Node{ID: "n1", Domain: "api", Identity: "team-b", Sent: 5}, want: rules.ErrForbidden, reason: refusedForbidden,
		},
		"a node that never came": {
			hello: func(m *xdspb.ReportRequest) { m.Source.Node = "n2" }, want: rules.ErrNotFound, reason: refusedNode,
		},
		"a node of another history": {
			node: rollout.Node{ID: "n1", Domain: "api", Identity: "team-a", Lineage: "other"}, want: rules.ErrConflict, reason: refusedHistory,
		},
		"no name": {hello: func(m *xdspb.ReportRequest) { m.Source.Node = "" }, want: rules.ErrInvalid, reason: refusedSource},
		"a name of controls": {
			hello: func(m *xdspb.ReportRequest) { m.Source.Node = "n1\x1b[2J" }, want: rules.ErrInvalid, reason: refusedSource,
		},
		"a long epoch": {
			hello: func(m *xdspb.ReportRequest) { m.Source.Epoch = strings.Repeat("e", 65) }, want: rules.ErrInvalid, reason: refusedSource,
		},
		"no domain":      {hello: func(m *xdspb.ReportRequest) { m.Source.Domains = nil }, want: rules.ErrInvalid, reason: refusedSource},
		"an odd domain":  {hello: func(m *xdspb.ReportRequest) { m.Source.Domains = []string{"A/B"} }, want: rules.ErrInvalid, reason: refusedSource},
		"no source":      {hello: func(m *xdspb.ReportRequest) { m.Source = nil }, want: rules.ErrInvalid, reason: refusedSource},
		"counts at once": {hello: func(m *xdspb.ReportRequest) { m.Closed = []*xdspb.Window{closed(1)} }, want: rules.ErrInvalid, reason: refusedSource},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t)
				if test.identity.Name != "" {
					p.identity = test.identity
				}
				if test.node.ID != "" {
					p.nodes.set(test.node)
				}
				p.start()
				defer p.down()
				r := p.raw()
				defer r.close()
				m := hello("api")
				if test.hello != nil {
					test.hello(m)
				}
				r.send(m)
				if test.want == nil {
					r.stored()
					return
				}
				if err := r.fails(); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if n := p.refused(test.reason); n != 1 {
					t.Errorf("counted %v of %s, want 1", n, test.reason)
				}
			})
		})
	}
}

// The stream of rules opens at about the same time, or is at another replica.
func TestNodeThatIsNotKnownYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		clear(p.nodes.here)
		p.start()
		defer p.down()
		r := p.raw()
		defer r.close()
		r.send(hello("api", "web"))
		time.AfterFunc(2*time.Second, func() {
			p.nodes.set(rollout.Node{ID: "n1", Domain: "api", Identity: "team-a", Sent: 5})
		})
		time.AfterFunc(4*time.Second, func() {
			p.nodes.mu.Lock()
			defer p.nodes.mu.Unlock()
			p.nodes.saved["n1 web"] = rollout.Node{ID: "n1", Domain: "web", Identity: "team-a", Sent: 5}
		})
		began := time.Now()
		if r.stored(); time.Since(began) < 4*time.Second || time.Since(began) > 6*time.Second {
			t.Errorf("answered after %v", time.Since(began))
		}
		if p.nodes.reads > 8 {
			t.Errorf("the database was asked %d times in 5 s", p.nodes.reads)
		}
	})
}
