package report

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds"
)

// Counter is what counts the requests. Its methods are called by one goroutine.
type Counter interface {
	// Close returns what was counted since the last Close; last says that nothing is counted after it.
	Close(now time.Time, last bool) tally.Window
	// Open returns what was counted since the last Close, and begins nothing anew.
	Open(now time.Time) tally.Window
}

// ClientOptions configure a [Client].
type ClientOptions struct {
	Conn    grpc.ClientConnInterface // to the control plane: that of the rules
	Node    string                   // identity of this sidecar in the fleet
	Domains []string                 // that it counts for
	Counter Counter

	Now        func() time.Time      // the wall clock; nil: time.Now
	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: not registered
}

func (o ClientOptions) check() error {
	var problems []error
	for _, missing := range []struct {
		name string
		is   bool
	}{{"Conn", o.Conn == nil}, {"Node", o.Node == ""}, {"Domains", len(o.Domains) == 0}, {"Counter", o.Counter == nil}} {
		if missing.is {
			problems = append(problems, fmt.Errorf("%s is missing", missing.name))
		}
	}
	return errors.Join(problems...)
}

// Client reports what was counted.
type Client struct {
	o       ClientOptions
	log     *slog.Logger
	metrics *clientMetrics
	epoch   string // random: this process
	queue   *queue
	// stopping is closed when the last window is in the queue.
	stopping chan struct{}

	opened time.Time // when the open window began; only touched by Run
}

// NewClient returns a client that does nothing until Run. The first window begins now.
func NewClient(o ClientOptions) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("report: options: %w: %w", rules.ErrInvalid, err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Domains = slices.Compact(slices.Sorted(slices.Values(o.Domains)))
	c := &Client{
		o: o, log: o.Log.With("component", "report"), epoch: rand.Text(), stopping: make(chan struct{}),
	}
	c.metrics = newClientMetrics(func() (int, time.Duration) {
		windows, oldest := c.queue.state()
		if windows == 0 {
			return 0, 0
		}
		return windows, max(0, o.Now().Sub(oldest))
	})
	c.queue = newQueue(c.metrics, o.Now)
	c.opened = c.queue.clock.wall
	if err := c.metrics.register(o.Registerer); err != nil {
		return nil, fmt.Errorf("report: register metrics: %w", err)
	}
	return c, nil
}

// lastWithin bounds the sending of the last windows. A connection that was lost is dialed again every 3 s, half as much again
// at most.
const lastWithin = 5 * time.Second

// Run reports until ctx ends, and returns nil. Then it closes the last window, so that whoever counts must be done, and
// sends what is left, for five seconds at most.
func (c *Client) Run(ctx context.Context) error {
	streams, end := context.WithCancel(context.WithoutCancel(ctx))
	var sender sync.WaitGroup
	defer sender.Wait()
	defer end()
	sender.Go(func() { c.follow(streams) })
	c.count(ctx)
	c.close(c.now(), true)
	close(c.stopping)
	select {
	case <-c.queue.done:
		sender.Wait() // it says goodbye
	case <-time.After(lastWithin):
		windows, oldest := c.queue.state()
		c.log.Error("the last windows were not stored: what they counted is lost", "windows", windows, "since", oldest)
	}
	return nil
}

// count closes windows at the multiples of their span, and hands on the totals of the open one every second, until ctx
// ends.
func (c *Client) count(ctx context.Context) {
	for {
		now := c.now()
		if end := now.Truncate(tally.Span); end.After(c.opened) {
			c.close(end, false)
		} else if c.queue.wantsOpen() {
			w := c.o.Counter.Open(now)
			w.Start, w.End, w.Refusals = c.opened, now, nil
			dropKeys(&w) // they come with the closed window
			c.queue.setOpen(encode(&w))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)):
		}
	}
}

// close closes the open window. That it ends no earlier than it began is so whatever the clock says.
func (c *Client) close(end time.Time, last bool) {
	w := c.o.Counter.Close(end, last)
	if end.Before(c.opened) {
		end = c.opened
	}
	w.Start, w.End, w.Last = c.opened, end, last
	c.opened = end
	c.queue.add(w)
}

// now reads the wall clock.
func (c *Client) now() time.Time {
	now, by := c.queue.now()
	if by != 0 {
		c.log.Warn("the clock was set: what was counted before moves along", "by", by)
		c.opened = c.opened.Add(by)
	}
	return now
}

// tellEvery is how often a lost stream is logged while it stays lost.
const tellEvery = time.Minute

// follow opens stream after stream until ctx ends or the last window is stored.
func (c *Client) follow(ctx context.Context) {
	wait := xds.NewReconnect()
	stopping := c.stopping // nil: it is
	var told time.Time     // zero: the stream was not lost, or nobody was told yet
	for {
		s := &session{client: c, urgent: stopping == nil}
		err := s.run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if s.good() {
			wait.Reset()
			told = time.Time{}
		}
		if errors.Is(err, errClockSet) {
			continue
		}
		pause := wait.NextBackOff()
		level := slog.LevelDebug // a try that fails like the one before is no news
		if time.Since(told) >= tellEvery {
			level, told = slog.LevelWarn, time.Now()
		}
		windows, _ := c.queue.state()
		c.log.Log(ctx, level, "no stream to report on: what is counted is kept", "err", err, "wait", pause, "windows", windows)
		select {
		case <-ctx.Done():
			return
		case <-stopping:
			stopping = nil
			wait.MaxInterval = xds.FirstWait
			wait.Reset()
		case <-time.After(pause):
		}
	}
}
