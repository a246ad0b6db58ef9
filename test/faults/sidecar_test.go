package faults_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/subscribe"
)

// sidecar has the client of a sidecar, with its last good file, and keeps what was put in force.
type sidecar struct {
	t      *testing.T
	addr   string
	node   string
	file   string
	client *subscribe.Client
	stop   func() // waits until the client has ended

	mu       sync.Mutex
	revision int64
	limits   map[string]int64 // in force, by rule
	seen     []set
}

// set is what was in force from a revision on.
type set struct {
	revision int64
	limits   map[string]int64
}

func newSidecar(t *testing.T, addr, node string) *sidecar {
	t.Helper()
	return &sidecar{t: t, addr: addr, node: node, file: filepath.Join(t.TempDir(), "last-good")}
}

// start runs the client, with what it has on disk.
func (s *sidecar) start() {
	s.t.Helper()
	conn := dial(s.t, s.addr)
	var err error
	s.client, err = subscribe.New(subscribe.Options{
		Conn: conn, Node: s.node, Program: "faults", Version: "1", Domains: []string{domain}, Sink: s, File: subscribe.NewFile(s.file),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.client.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = conn.Close()
	})
	s.t.Cleanup(s.stop)
}

// Check is part of subscribe.Sink.
func (s *sidecar) Check(*rules.Rule) error { return nil }

// Apply is part of subscribe.Sink.
func (s *sidecar) Apply(u subscribe.Update) {
	limits := map[string]int64{}
	for _, r := range u.Rules {
		limits[r.Name] = limitOf(r.Stable)
		if r.Revision > u.Domain.Revision {
			s.t.Errorf("%s is of revision %d in a set of revision %d", r.Name, r.Revision, u.Domain.Revision)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.limits = u.Domain.Revision, limits
	s.seen = append(s.seen, set{u.Domain.Revision, limits})
}

// await returns when the revision, and nothing later, is in force.
func (s *sidecar) await(revision int64) {
	s.t.Helper()
	harness.Eventually(s.t, patience, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.revision != revision {
			return fmt.Errorf("%s has revision %d, and not %d", s.node, s.revision, revision)
		}
		return nil
	})
}

// has returns what is in force, and how often it was replaced.
func (s *sidecar) has() (limits map[string]int64, updates int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.limits), len(s.seen)
}
