package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdspb"
)

// errClockSet ends a stream: the control plane compares the clocks at its beginning.
var errClockSet = errors.New("the clock was set")

// session is one stream.
type session struct {
	client *Client
	urgent bool      // wait for a connection
	named  time.Time // when the control plane had answered to the source's name; zero: it has not
}

// good reports whether the stream was worth opening the next one soon.
func (s *session) good() bool {
	return !s.named.IsZero() && time.Since(s.named) >= xds.SteadyAfter
}

// run reports on one stream until it ends. It returns nil when the last window is stored.
func (s *session) run(ctx context.Context) error {
	c := s.client
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := xdspb.NewTallyServiceClient(c.o.Conn).Report(ctx, grpc.WaitForReady(s.urgent))
	if err != nil {
		return fmt.Errorf("open the stream: %w", err)
	}
	now, turns := c.queue.hello()
	hello := &xdspb.ReportRequest{
		Source: &xdspb.Source{Node: c.o.Node, Epoch: c.epoch, Domains: c.o.Domains}, Now: now.UnixMicro(),
	}
	if err := stream.Send(hello); err != nil {
		return fmt.Errorf("name the source: %w", streamError(stream, err))
	}
	answer, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("name the source: %w", err)
	}
	s.named = time.Now()
	c.metrics.connected.Set(1)
	defer c.metrics.connected.Set(0)
	c.queue.stored(answer.GetStored())

	ended := make(chan error, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() { ended <- s.receive(stream) })
	defer func() { cancel(); receiver.Wait() }()
	sent := answer.GetStored()
	for {
		if sent, err = s.send(stream, sent, turns); err != nil {
			return fmt.Errorf("send: %w", endError(ended, err))
		}
		select {
		case <-c.queue.done:
			s.goodbye(stream, ended)
			return nil
		case err := <-ended:
			return err
		case <-c.queue.wake:
		}
	}
}

// send sends all that may be sent after the window with the number, and returns the number of the last.
func (s *session) send(stream reportStream, sent int64, turns int) (int64, error) {
	c := s.client
	for {
		list, last, err := c.queue.take(sent, turns)
		if err != nil {
			return sent, err
		}
		request := &xdspb.ReportRequest{Closed: list}
		if len(list) == 0 {
			if request.Open = c.queue.takeOpen(); request.GetOpen() == nil {
				return sent, nil
			}
		}
		if err := stream.Send(request); err != nil {
			return sent, err
		}
		c.metrics.sent.Add(float64(len(list)))
		sent = last
	}
}

// goodbyeWithin is how long the control plane has to end a stream that is done.
const goodbyeWithin = time.Second

func (s *session) goodbye(stream reportStream, ended <-chan error) {
	_ = stream.CloseSend() // it fails only where the stream has ended
	select {
	case <-ended: //nolint:errcheck // why it ended does not matter any more
	case <-time.After(goodbyeWithin):
	}
}

func (s *session) receive(stream reportStream) error {
	for {
		answer, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		s.client.queue.stored(answer.GetStored())
	}
}

type reportStream = xdspb.TallyService_ReportClient

// streamError returns why a send failed: gRPC tells it to the receiver only.
func streamError(stream reportStream, sent error) error {
	if !errors.Is(sent, io.EOF) {
		return sent
	}
	_, err := stream.Recv()
	return err
}

// endError is streamError where another goroutine receives.
func endError(ended <-chan error, sent error) error {
	if !errors.Is(sent, io.EOF) {
		return sent
	}
	return <-ended
}
