package subscribe

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds/xdspb"
)

// Options configure a [Client].
type Options struct {
	Conn    grpc.ClientConnInterface // to the control plane: see [Dial]
	Node    string                   // identity of this sidecar in the fleet
	Program string                   // name of the program
	Version string                   // of the program
	Domains []string                 // at least one, all subscribed to in the first request
	Sink    Sink
	File    *File // nil: nothing is kept on disk
	// BreakGlass returns the freezes that were made at this sidecar itself, the newest first; nil: there are none. The
	// control plane is told when the client connects, and when [Client.ReportBreakGlass] says that they changed.
	BreakGlass func() []rollout.BreakGlass

	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: not registered
}

func (o Options) check() error {
	var problems []error
	missing := func(name string, is bool) {
		if is {
			problems = append(problems, fmt.Errorf("%s is missing", name))
		}
	}
	missing("Conn", o.Conn == nil)
	missing("Node", o.Node == "")
	missing("Domains", len(o.Domains) == 0)
	missing("Sink", o.Sink == nil)
	for _, d := range o.Domains {
		if problem := rules.CheckName(d); problem != "" {
			problems = append(problems, fmt.Errorf("domains: %s", problem))
		}
	}
	return errors.Join(problems...)
}

// Client keeps the rules of its domains in force.
type Client struct {
	o       Options
	log     *slog.Logger
	metrics *metrics
	// instance is random: see xds.InstanceField.
	instance string

	// Only touched by Restore and Run.
	held     map[string]*held
	restored bool
	streams  int64        // the number of the last stream
	unsaved  bool         // something was put in force since the last save was asked for
	saves    chan []*held // to the saver; holds one, the newest

	saveFailing bool // only touched by the saver

	brokenGlass chan struct{} // holds a token when the reports changed
	unreported  string        // the newest report that did not fit; only touched by the session

	connected atomic.Bool
	mu        sync.Mutex
	revisions map[string]int64 // of the committed sets
	trouble   error            // why the last stream ended; nil once one has stood since
}

// New returns a client that does nothing until Restore or Run.
func New(o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("subscribe: options: %w: %w", rules.ErrInvalid, err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Domains = slices.Compact(slices.Sorted(slices.Values(o.Domains)))
	m, err := newMetrics(o.Registerer, o.Domains)
	if err != nil {
		return nil, fmt.Errorf("subscribe: register metrics: %w", err)
	}
	return &Client{
		o: o, log: o.Log.With("component", "subscribe"), metrics: m, instance: rand.Text(),
		held: map[string]*held{}, revisions: map[string]int64{}, brokenGlass: make(chan struct{}, 1),
	}, nil
}

// Restore puts the last good sets from disk in force. Run does it first when it has not been done. A file that cannot be
// read is logged and counts as none: the control plane will send everything.
func (c *Client) Restore() {
	if c.restored {
		return
	}
	c.restored = true
	if c.o.File == nil {
		return
	}
	last, err := c.o.File.Load()
	if err != nil {
		c.log.Error("last good rules cannot be read: starting without", "err", err)
		return
	}
	for _, m := range last.GetDomains() {
		if !slices.Contains(c.o.Domains, m.GetName()) {
			continue // not served by this sidecar any more
		}
		h, err := restore(m, c.o.Sink.Check)
		if err != nil {
			c.log.Error("last good rules cannot be read: starting without", "err", err)
			continue
		}
		for _, r := range h.rejected {
			c.log.Warn("rule is not in force in its newest version", "rule", r.name, "reason", r.value.GetReason())
		}
		c.commit(h)
		c.log.Info("last good rules in force", "domain", h.name, "revision", h.info.Revision, "rules", len(h.rules))
	}
}

// commit puts the set in force, in memory.
func (c *Client) commit(h *held) {
	c.o.Sink.Apply(h.update())
	c.held[h.name] = h
	c.unsaved = true
	c.metrics.revision.WithLabelValues(h.name).Set(float64(h.info.Revision))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revisions[h.name] = h.info.Revision
}

// saveSoon hands the sets to the saver when they have changed, in place of those it has not begun with: the newest state
// wins, and no acknowledgement waits for a disk.
func (c *Client) saveSoon() {
	if !c.unsaved || c.o.File == nil {
		return
	}
	c.unsaved = false
	var sets []*held
	for _, name := range c.o.Domains {
		if h := c.held[name]; h != nil {
			sets = append(sets, h)
		}
	}
	select {
	case <-c.saves:
	default:
	}
	c.saves <- sets
}

// startSaver begins to write to disk what saveSoon hands over. The function it returns ends that, with the last set
// written.
func (c *Client) startSaver() (stop func()) {
	c.saves = make(chan []*held, 1)
	var saver sync.WaitGroup
	saver.Go(func() {
		for sets := range c.saves {
			c.save(sets)
		}
	})
	return func() { close(c.saves); saver.Wait() }
}

// save writes the sets to disk. A failure is not an answer to the control plane: an acknowledgement says that the rules
// are in force, and they are; what is lost is a start without the control plane, which is logged and counted.
func (c *Client) save(sets []*held) {
	m := &xdspb.LastGood{}
	for _, h := range sets {
		m.Domains = append(m.Domains, h.save())
	}
	err := c.o.File.Save(m)
	switch {
	case err != nil && !c.saveFailing:
		c.log.Error("last good rules cannot be saved: this sidecar could not start without the control plane", "err", err)
	case err == nil && c.saveFailing:
		c.log.Info("last good rules are saved again")
	}
	if c.saveFailing = err != nil; c.saveFailing {
		c.metrics.saveFailed.Inc()
	}
}

// Revision is the one of the domain that is in force; ok is false while no set is committed. It is 0 for the empty set of
// a domain that the control plane does not know.
func (c *Client) Revision(domain string) (revision int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	revision, ok = c.revisions[domain]
	return revision, ok
}

// Ready reports whether every domain has a committed set, be it an empty one or the last good one. It does not depend on
// the control plane being there.
func (c *Client) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.revisions) == len(c.o.Domains)
}

// Trouble is why there is no stream to the control plane; nil while one stands, and before the first has ended. One that
// is refused right after it was opened, or broken, did not stand: it has to last for two seconds.
func (c *Client) Trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble
}

// Connected reports whether the stream to the control plane is open.
func (c *Client) Connected() bool { return c.connected.Load() }

func (c *Client) setConnected(is bool) {
	c.connected.Store(is)
	if is {
		c.metrics.connected.Set(1)
	} else {
		c.metrics.connected.Set(0)
	}
}
