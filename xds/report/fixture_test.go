package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/rpcstatus"
	"github.com/headgate/headgate/xds/subscribe"
)

func TestMain(m *testing.M) { harness.Main(m) }

// store keeps each window once, as a tally.Store does. Meddle, when set, is asked before and after each commit.
type store struct {
	mu     sync.Mutex
	births map[string]tally.Birth
	meddle func(ctx context.Context, committed bool) error

	last     map[tally.Source]int64
	windows  []tally.Window // in the order in which they were stored
	repeats  int
	gaps     int
	batches  int
	asked    int // for births
	open     []tally.SourceWindows
	versions map[versionID]*tally.Counts
	domains  map[string]*tally.DomainCounts
	ended    map[tally.Source]bool
}

func newStore() *store {
	return &store{
		births: map[string]tally.Birth{
			"uid-a": {Domain: "api", Rule: "a", Revisions: []int64{1, 3, 7}},
			"uid-b": {Domain: "web", Rule: "b", Revisions: []int64{2}},
			"uid-c": {Domain: "api", Rule: "c", Revisions: []int64{0, 4}},
		},
		last: map[tally.Source]int64{}, versions: map[versionID]*tally.Counts{}, domains: map[string]*tally.DomainCounts{}, ended: map[tally.Source]bool{},
	}
}

func (s *store) between(ctx context.Context, committed bool) error {
	s.mu.Lock()
	meddle := s.meddle
	s.mu.Unlock()
	if meddle == nil {
		return nil
	}
	return meddle(ctx, committed)
}

func (s *store) setMeddle(meddle func(ctx context.Context, committed bool) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meddle = meddle
}

func (s *store) SaveWindows(ctx context.Context, batch []tally.SourceWindows) error {
	if err := s.between(ctx, false); err != nil {
		return err
	}
	s.commit(batch)
	return s.between(ctx, true)
}

func (s *store) commit(batch []tally.SourceWindows) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	for _, of := range batch {
		for i := range of.Windows {
			s.add(of.Source, &of.Windows[i])
		}
	}
}

func (s *store) add(source tally.Source, w *tally.Window) {
	last := s.last[source]
	if w.Number <= last {
		s.repeats++
		return
	}
	if w.Number > last+1 {
		s.gaps++
	}
	s.last[source] = w.Number
	s.windows = append(s.windows, *w)
	s.ended[source] = w.Last
	for i := range w.Versions {
		v := &w.Versions[i]
		id := versionID{v.Domain, v.UID, v.Version}
		if s.versions[id] == nil {
			s.versions[id] = &tally.Counts{}
		}
		s.versions[id].Add(&v.Counts)
	}
	for i := range w.Domains {
		d := &w.Domains[i]
		if s.domains[d.Domain] == nil {
			s.domains[d.Domain] = &tally.DomainCounts{}
		}
		s.domains[d.Domain].Add(&d.Counts)
	}
}

func (s *store) SaveOpen(_ context.Context, batch []tally.SourceWindows) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, batch...)
	return nil
}

func (s *store) Stored(_ context.Context, source tally.Source) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[source], nil
}

func (s *store) Births(_ context.Context, uids []string) (map[string]tally.Birth, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	found := map[string]tally.Birth{}
	for _, uid := range uids {
		if b, ok := s.births[uid]; ok {
			found[uid] = b
		}
	}
	return found, nil
}

// count is what is stored of a version's cell.
func (s *store) count(uid string, version int64, cell tally.Cell) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, counts := range s.versions {
		if id.uid == uid && id.version == version {
			return counts[cell]
		}
	}
	return 0
}

func (s *store) stored() []tally.Window {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]tally.Window{}, s.windows...)
}

func (s *store) opened() []tally.SourceWindows {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]tally.SourceWindows{}, s.open...)
}

// nodes are a Fleet and Nodes.
type nodes struct {
	mu    sync.Mutex
	here  map[string]rollout.Node // by "id domain": their streams of rules are open at this replica
	saved map[string]rollout.Node
	reads int
}

// newNodes knows node n1 of team-a, which was sent revision 5 of api and web.
func newNodes() *nodes {
	n := &nodes{here: map[string]rollout.Node{}, saved: map[string]rollout.Node{}}
	for _, domain := range []string{"api", "web"} {
		n.set(rollout.Node{ID: "n1", Domain: domain, Identity: "team-a", Lineage: "one", Sent: 5, Acked: 5})
	}
	return n
}

func (n *nodes) set(node rollout.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node.Connected = true
	n.here[node.ID+" "+node.Domain] = node
}

func (n *nodes) Node(id, domain string) (rollout.Node, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node, ok := n.here[id+" "+domain]
	node.Seen = time.Now()
	return node, ok
}

func (n *nodes) Nodes(_ context.Context, domain string) (list []rollout.Node, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	for _, node := range n.saved {
		if node.Domain == domain {
			list = append(list, node)
		}
	}
	return list, nil
}

// plane is a control plane that can be stopped, and started again at the same address.
type plane struct {
	t        *testing.T
	store    *store
	nodes    *nodes
	identity access.Identity
	registry *prometheus.Registry // of the last start

	mu       sync.Mutex
	listener *bufconn.Listener // nil while it is stopped
	conns    []net.Conn
	stop     func()
}

func newPlane(t *testing.T) *plane {
	return &plane{t: t, store: newStore(), nodes: newNodes(), identity: access.Identity{Name: "team-a", Role: access.Sidecar}}
}

func (p *plane) start() {
	p.t.Helper()
	registry := prometheus.NewRegistry()
	s, err := NewServer(ServerOptions{Store: p.store, Fleet: p.nodes, Nodes: p.nodes, Registerer: registry})
	if err != nil {
		p.t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.WaitForHandlers(true), grpc.ChainStreamInterceptor(rpcstatus.StreamServer(slog.New(slog.DiscardHandler), nil), p.identify))
	streams, endStreams := context.WithCancel(context.Background())
	running, end := context.WithCancel(context.Background())
	s.Register(streams, g)
	var serving, writing sync.WaitGroup
	serving.Go(func() { _ = g.Serve(listener) })
	writing.Go(func() { _ = s.Run(running) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.registry = listener, registry
	p.stop = func() {
		endStreams()
		g.GracefulStop()
		serving.Wait()
		end()
		writing.Wait()
	}
}

// down stops it, and lets go of its connections.
func (p *plane) down() {
	p.mu.Lock()
	stop := p.stop
	p.stop, p.listener = nil, nil
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// cut breaks all connections.
func (p *plane) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *plane) identify(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(srv, identified{ServerStream: stream, ctx: access.With(stream.Context(), p.identity)})
}

type identified struct {
	grpc.ServerStream
	ctx context.Context
}

func (s identified) Context() context.Context { return s.ctx }

func (p *plane) dial() *grpc.ClientConn {
	p.t.Helper()
	conn, err := subscribe.Dial("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			p.mu.Lock()
			listener := p.listener
			p.mu.Unlock()
			if listener == nil {
				return nil, errors.New("nobody listens")
			}
			c, err := listener.DialContext(ctx)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.conns = append(p.conns, c)
			return c, err
		}))
	if err != nil {
		p.t.Fatal(err)
	}
	return conn
}

// refused is how often the reason was counted.
func (p *plane) refused(reason string) float64 {
	p.t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "headgate_tally_refused_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func value(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			if g := f.GetMetric()[0].GetGauge(); g != nil {
				return g.GetValue()
			}
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// counts is a Counter that is told what to count, and keeps what it was told.
type counts struct {
	mu      sync.Mutex
	open    tally.Window
	total   map[versionID]*tally.Counts
	domains map[string]*tally.DomainCounts
}

func newCounts() *counts {
	return &counts{total: map[versionID]*tally.Counts{}, domains: map[string]*tally.DomainCounts{}}
}

func (c *counts) add(domain, uid string, version int64, cell tally.Cell, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := versionID{domain, uid, version}
	if c.total[id] == nil {
		c.total[id] = &tally.Counts{}
	}
	c.total[id][cell] += n
	if c.domains[domain] == nil {
		c.domains[domain] = &tally.DomainCounts{}
	}
	c.domains[domain][tally.RequestsAllowed] += n
	one := tally.Window{
		Versions: []tally.VersionTally{{Domain: domain, UID: uid, Version: version}},
		Domains:  []tally.DomainTally{{Domain: domain, Counts: tally.DomainCounts{tally.RequestsAllowed: n}}},
	}
	one.Versions[0].Counts[cell] = n
	merge(&c.open, &one)
}

// refuse counts a refusal of the key, with all that is known of it.
func (c *counts) refuse(now time.Time, key byte) {
	c.add("api", "uid-a", 1, tally.BindingCell(tally.Refused, 0), 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	one := tally.Window{
		Versions: []tally.VersionTally{{Domain: "api", UID: "uid-a", Version: 1, Keys: []tally.KeyCount{{Key: tally.KeyID{key}, Label: fmt.Sprint("#", key), Refused: 1}}}},
		Refusals: []tally.Refusal{{
			Time: now, Domain: "api", UID: "uid-a", Version: 1, Outcome: tally.Refused, Key: tally.KeyID{key}, Label: "#1", Path: "/v1/\xff<b>", Reference: "r1",
		}},
	}
	one.Versions[0].Distinct.Add(tally.KeyID{key})
	one.Versions[0].Rates = tally.NewRates(3, []tally.KeyRate{{Key: tally.RateKey(key), Calls: 1}})
	merge(&c.open, &one)
}

func (c *counts) Close(time.Time, bool) tally.Window {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.open
	c.open = tally.Window{}
	return w
}

func (c *counts) Open(time.Time) tally.Window {
	c.mu.Lock()
	defer c.mu.Unlock()
	var w tally.Window
	merge(&w, &c.open)
	return w
}

// sidecar is a running client.
type sidecar struct {
	*Client
	counts   *counts
	registry *prometheus.Registry
	conn     *grpc.ClientConn
	stop     func() // waits until it has
}

func (p *plane) sidecar(now func() time.Time) *sidecar {
	p.t.Helper()
	s := &sidecar{counts: newCounts(), registry: prometheus.NewRegistry(), conn: p.dial()}
	var err error
	s.Client, err = NewClient(ClientOptions{
		Conn: s.conn, Node: "n1", Domains: []string{"web", "api"}, Counter: s.counts, Now: now, Registerer: s.registry,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	s.stop = sync.OnceFunc(func() { end(); running.Wait(); _ = s.conn.Close() })
	return s
}

// wantExact fails unless what is stored is what was counted.
func wantExact(t *testing.T, st *store, c *counts) {
	t.Helper()
	st.mu.Lock()
	defer st.mu.Unlock()
	for id, want := range c.total {
		if got := st.versions[id]; got == nil || *got != *want {
			t.Errorf("version %+v: stored %v, counted %v", id, got, want)
		}
	}
	for domain, want := range c.domains {
		if got := st.domains[domain]; got == nil || *got != *want {
			t.Errorf("domain %s: stored %v, counted %v", domain, got, want)
		}
	}
	if st.gaps > 0 {
		t.Errorf("the numbers have %d gaps", st.gaps)
	}
}

var errAway = fmt.Errorf("%w: away", rules.ErrUnavailable)
