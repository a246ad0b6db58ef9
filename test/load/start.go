package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"time"
)

// Remote is a [Crowd] somewhere: in this process, or in a child.
type Remote struct {
	calls *rpc.Client
	stop  func() error // waits until it is gone, once calls is closed
}

// Start returns a crowd in this process.
func Start() *Remote {
	here, there := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); Serve(there) }()
	return &Remote{rpc.NewClient(here), func() error { <-served; return nil }}
}

// StartChild returns a crowd in a process of its own: the program must call [Serve] on its standard input and output. It
// ends when the calls do, so also when this process is killed.
func StartChild(ctx context.Context, program string, args ...string) (*Remote, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the subscribers: %w", err)
	}
	return &Remote{rpc.NewClient(Pipes{out, in}), cmd.Wait}, nil
}

// Pipes are the two directions of a connection.
type Pipes struct {
	io.ReadCloser
	io.WriteCloser
}

// Close closes both.
func (p Pipes) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// Serve runs a crowd for whoever calls over conn, until that is closed.
func Serve(conn io.ReadWriteCloser) {
	crowd, server := &Crowd{}, rpc.NewServer()
	if err := server.Register(crowd); err != nil {
		panic(err) // its methods are not those of net/rpc
	}
	server.ServeConn(conn)
	_ = crowd.Close(struct{}{}, nil)
}

func (r *Remote) call(method string, args, reply any) error {
	if err := r.calls.Call("Crowd."+method, args, reply); err != nil {
		return fmt.Errorf("subscribers: %s: %w", method, err)
	}
	return nil
}

// Connect is [Crowd.Connect].
func (r *Remote) Connect(o Connect) (begun time.Time, err error) {
	return begun, r.call("Connect", o, &begun)
}

// Await is [Crowd.Await].
func (r *Remote) Await(revision int64) (Arrivals, error) {
	var out Arrivals
	return out, r.call("Await", revision, &out)
}

// Received is [Crowd.Received].
func (r *Remote) Received() (responses int, err error) {
	return responses, r.call("Received", struct{}{}, &responses)
}

// Close is [Crowd.Close].
func (r *Remote) Close() error { return r.call("Close", struct{}{}, &struct{}{}) }

// Stop ends the crowd, and waits until it is gone.
func (r *Remote) Stop() error { return errors.Join(r.calls.Close(), r.stop()) }
