package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/xds/subscribe"
)

// Crowd is a fleet of subscribers. Its exported methods are those of net/rpc: see [Start].
type Crowd struct {
	mu          sync.Mutex
	subscribers []*subscriber
	stop        context.CancelFunc
	running     sync.WaitGroup
	err         error // the first that a subscriber met
	wait        *wait // of the one call of Await
}

// wait is for all subscribers to arrive at a revision.
type wait struct {
	revision int64
	left     int
	done     chan struct{}
}

// Connect says how many subscribers connect, where to, and what they hold.
type Connect struct {
	Addr        string
	Subscribers int
	Domain      string // "" for a cache without commit markers: they subscribe to everything
	Holds       string // the version they offer of the domain; "": nothing
	Clients     bool   // they are those of real sidecars, which decode and check all they get, but put it nowhere
}

// Connect opens the streams of all subscribers at once, each over a connection of its own, and returns when every one has
// sent its first request. Those of before must be closed. Begun is when the first one dialled.
func (c *Crowd) Connect(o Connect, begun *time.Time) error {
	ctx, err := c.begin()
	if err != nil {
		return err
	}
	*begun = time.Now()
	var opened sync.WaitGroup
	for i := range o.Subscribers {
		s := &subscriber{crowd: c, node: fmt.Sprintf("node-%05d", i), connect: o}
		c.add(s)
		opened.Add(1)
		c.running.Go(func() {
			run := s.run
			if o.Clients {
				run = s.follow
			}
			if err := run(ctx, opened.Done); err != nil && ctx.Err() == nil {
				c.fail(fmt.Errorf("%s: %w", s.node, err))
			}
		})
	}
	opened.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Crowd) begin() (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		return nil, errors.New("the crowd is connected")
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.err = stop, nil
	return ctx, nil
}

func (c *Crowd) add(s *subscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers = append(c.subscribers, s)
}

// Arrivals are what the subscribers got on the way to a revision, one for each.
type Arrivals struct {
	At        []time.Time // when it was committed
	Resources []int       // how many came since the subscriber connected, or since the Await before
	Bytes     int64       // of all subscribers' responses since then
}

// Await returns when every subscriber has committed the revision, or one has failed.
func (c *Crowd) Await(revision int64, out *Arrivals) error {
	c.mu.Lock()
	w := &wait{revision: revision, done: make(chan struct{})}
	for _, s := range c.subscribers {
		if s.revision < revision {
			w.left++
		}
	}
	c.wait = w
	if w.left == 0 || c.err != nil {
		c.release()
	}
	c.mu.Unlock()
	select {
	case <-w.done:
	case <-time.After(patience):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait = nil
	switch {
	case c.err != nil:
		return c.err
	case w.left > 0:
		return fmt.Errorf("%d of %d subscribers did not get revision %d within %v", w.left, len(c.subscribers), revision, patience)
	}
	for _, s := range c.subscribers {
		out.At = append(out.At, s.at)
		out.Resources = append(out.Resources, s.resources)
		out.Bytes += int64(s.bytes)
		s.resources, s.bytes = 0, 0
	}
	return nil
}

// Received returns how many responses came since the subscribers connected.
func (c *Crowd) Received(_ struct{}, responses *int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*responses = 0
	for _, s := range c.subscribers {
		*responses += s.responses
	}
	return c.err
}

// Close breaks all streams and connections.
func (c *Crowd) Close(struct{}, *struct{}) error {
	c.mu.Lock()
	stop := c.stop
	c.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers, c.stop = nil, nil
	return c.err
}

// patience bounds every wait for what must happen.
const patience = 2 * time.Minute

func (c *Crowd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.release()
}

// release ends the wait. The caller holds the lock.
func (c *Crowd) release() {
	if c.wait != nil {
		close(c.wait.done)
		c.wait = nil
	}
}

// subscriber is one of a crowd. The crowd's lock guards what it received.
type subscriber struct {
	crowd   *Crowd
	node    string
	connect Connect

	revision  int64
	at        time.Time
	resources int
	bytes     int
	responses int
}

// run subscribes and acknowledges until the stream ends. It calls opened once, whatever happens.
func (s *subscriber) run(ctx context.Context, opened func()) error {
	opened = sync.OnceFunc(opened)
	defer opened()
	// The connection is that of a real sidecar.
	conn, err := subscribe.Dial(s.connect.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stream, err := conn.NewStream(ctx, streamDesc, streamMethod, grpc.ForceCodecV2(codec{}), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(firstRequest(s.node, s.connect)); err != nil {
		return err
	}
	opened()
	var got response
	for {
		if err := stream.RecvMsg(&got); err != nil {
			return err
		}
		at := time.Now()
		if err := s.received(&got, at); err != nil {
			return err
		}
		if err := stream.SendMsg(acknowledgement(got.nonce)); err != nil {
			return err
		}
	}
}

func (s *subscriber) received(got *response, at time.Time) error {
	revision, err := s.connect.commits(got)
	if err != nil {
		return err
	}
	return s.note(revision, got.resources, got.size, at)
}

// note keeps what came; revision 0 is a part.
func (s *subscriber) note(revision int64, resources, bytes int, at time.Time) error {
	c := s.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	s.responses++
	s.resources += resources
	s.bytes += bytes
	if revision == 0 {
		return nil
	}
	if revision <= s.revision {
		return fmt.Errorf("got revision %d after %d", revision, s.revision)
	}
	before := s.revision
	s.revision, s.at = revision, at
	if w := c.wait; w != nil && before < w.revision && revision >= w.revision {
		if w.left--; w.left == 0 {
			c.release()
		}
	}
	return nil
}
