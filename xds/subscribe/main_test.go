package subscribe_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/subscribe"
	"github.com/headgate/headgate/xds/xdstest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// sink remembers what is in force. A rule whose stable version has one of the forbidden limits cannot be put in force.
type sink struct {
	forbidden []string

	mu      sync.Mutex
	applied chan struct{} // closed and replaced by Apply
	sets    map[string]subscribe.Update
	count   int
}

func newSink(forbidden ...string) *sink {
	return &sink{forbidden: forbidden, applied: make(chan struct{}), sets: map[string]subscribe.Update{}}
}

func (s *sink) Check(r *rules.Rule) error {
	if r.Stable != nil && slices.Contains(s.forbidden, r.Stable.Spec.Limits[0].Rate.String()) {
		return errors.New("forbidden limit")
	}
	return nil
}

func (s *sink) Apply(u subscribe.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets[u.Domain.Name] = u
	s.count++
	close(s.applied)
	s.applied = make(chan struct{})
}

// limits is what is in force in a domain: the limit of each rule's stable version.
func (s *sink) limits(domain string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	set, ok := s.sets[domain]
	if !ok {
		return nil
	}
	limits := map[string]string{}
	for _, r := range set.Rules {
		limits[r.Name] = r.Stable.Spec.Limits[0].Rate.String()
	}
	return limits
}

func (s *sink) applies() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// wait blocks until the domain's revision is in force.
func (s *sink) wait(t *testing.T, domain string, revision int64) {
	t.Helper()
	late := time.After(xdstest.Patience)
	for {
		s.mu.Lock()
		u, ok := s.sets[domain]
		applied := s.applied
		s.mu.Unlock()
		if ok && u.Domain.Revision == revision {
			return
		}
		select {
		case <-applied:
		case <-late:
			t.Fatalf("revision %d of %s is not in force: %+v", revision, domain, u.Domain)
		}
	}
}

func (s *sink) want(t *testing.T, domain string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, s.limits(domain)); diff != "" {
		t.Fatalf("in force in %s (-want +got):\n%s", domain, diff)
	}
}

// sidecar is a running client.
type sidecar struct {
	*subscribe.Client
	sink     *sink
	registry *prometheus.Registry
	stop     func()
}

type settings struct {
	conn    grpc.ClientConnInterface
	node    string // "n1" when empty
	domains []string
	sink    *sink
	file    *subscribe.File

	log *syncedText // nil: none

	breakGlass func() []rollout.BreakGlass
}

// glass is a sidecar's list of the freezes that were made at it.
type glass struct {
	mu   sync.Mutex
	made []rollout.BreakGlass
}

func (g *glass) list() []rollout.BreakGlass {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.made)
}

func (g *glass) add(b rollout.BreakGlass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made = slices.Insert(g.made, 0, b)
}

// run starts a client until stop or the end of the test.
func run(t *testing.T, set settings) sidecar {
	t.Helper()
	s := prepare(t, set)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	s.stop = func() { cancel(); <-done }
	t.Cleanup(s.stop)
	return s
}

func prepare(t *testing.T, set settings) sidecar {
	t.Helper()
	if set.sink == nil {
		set.sink = newSink()
	}
	if set.node == "" {
		set.node = "n1"
	}
	if set.domains == nil {
		set.domains = []string{"api"}
	}
	s := sidecar{sink: set.sink, registry: prometheus.NewRegistry()}
	var log *slog.Logger
	if set.log != nil {
		log = set.log.logger()
	}
	var err error
	s.Client, err = subscribe.New(subscribe.Options{
		Log:  log,
		Conn: set.conn, Node: set.node, Program: "test", Version: "1", Domains: set.domains,
		Sink: set.sink, File: set.file, Registerer: s.registry, BreakGlass: set.breakGlass,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// metric is the value of a metric, with one label value or none.
func (s sidecar) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s{%s}", name, label)
	return 0
}

func diskFile(t *testing.T) *subscribe.File {
	t.Helper()
	return subscribe.NewFile(filepath.Join(t.TempDir(), "last-good"))
}

// syncedText is a log that is written and read by different goroutines.
type syncedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *syncedText) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *syncedText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *syncedText) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }
