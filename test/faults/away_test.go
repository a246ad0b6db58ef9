package faults_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/test/harness"
)

// A control plane that cannot read its database serves nothing rather than "no rules"; one that loses it serves the last
// state on, refuses changes, and goes on when the database is back.
func TestControlPlaneWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	g := newGate(t, harness.Postgres(t))
	p := newPlane(t, harness.Build(t, "./cmd/controlplane"), g.database)
	s := newSidecar(t, p.addr, "one")
	s.start()

	p.launch()
	if err := p.process.Wait(); err == nil {
		t.Error("a control plane without its database ended without an error")
	}
	if conn, err := net.Dial("tcp", p.addr); err == nil {
		_ = conn.Close()
		t.Error("a control plane that ended still listens")
	}
	if _, updates := s.has(); updates > 0 {
		t.Error("a sidecar was given a set by a control plane without a database")
	}

	g.open()
	p.start()
	s.await(p.mustApply(5, "one", "two"))

	g.shut()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := p.apply(ctx, "", 6, "one", "two"); !errors.Is(err, rules.ErrUnavailable) {
		t.Errorf("a change without a database: %v, want that it is unavailable", err)
	}
	late := newSidecar(t, p.addr, "late")
	late.start()
	late.await(1)
	s.await(1)

	g.open()
	var revision int64
	harness.Eventually(t, patience, func() (err error) {
		revision, err = p.apply(t.Context(), "", 7, "one", "two")
		return err
	})
	for _, s := range []*sidecar{s, late} {
		s.await(revision)
		if limits, _ := s.has(); limits["one"] != 7 || limits["two"] != 7 {
			t.Errorf("%s has %v after the database came back", s.node, limits)
		}
	}
	if revision != 2 {
		t.Errorf("the change after the outage is revision %d, want 2: the one during it must be absent", revision)
	}
}

// gate stands before a database, and is shut at first.
type gate struct {
	t        *testing.T
	database string // its URL through the gate
	to, addr string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	running  sync.WaitGroup
}

func newGate(t *testing.T, database string) *gate {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{t: t, to: u.Host, addr: harness.FreeAddr(t), conns: map[net.Conn]bool{}}
	u.Host = g.addr
	g.database = u.String()
	t.Cleanup(g.shut)
	return g
}

// open lets connections through.
func (g *gate) open() {
	g.t.Helper()
	listener, err := net.Listen("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listener = listener
	g.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.running.Go(func() { g.through(conn) })
		}
	})
}

func (g *gate) through(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := net.DialTimeout("tcp", g.to, patience)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	if !g.keep(near, far) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		})
	}
	both.Wait()
}

// keep registers connections to be cut; it reports whether the gate is open.
func (g *gate) keep(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		g.conns[c] = true
	}
	return g.listener != nil
}

// shut refuses connections, and cuts those that are open.
func (g *gate) shut() {
	g.mu.Lock()
	if g.listener != nil {
		_ = g.listener.Close()
		g.listener = nil
	}
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
	g.mu.Unlock()
	g.running.Wait()
}
