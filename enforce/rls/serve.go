package rls

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc"
)

// Listen listens on a TCP address ("127.0.0.1:8081") or on a Unix socket ("unix:/run/headgate/rls.sock", also written
// "unix:///run/headgate/rls.sock"). A socket file that a killed process left behind is replaced; one on which somebody
// listens is not.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		return config.Listen(ctx, "tcp", address)
	}
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		path = rest
	}
	l, err := config.Listen(ctx, "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	var dialer net.Dialer
	conn, dialErr := dialer.DialContext(ctx, "unix", path)
	if dialErr == nil {
		_ = conn.Close()
		return nil, err
	}
	if !errors.Is(dialErr, syscall.ECONNREFUSED) { // it is no socket, or not ours
		return nil, errors.Join(err, dialErr)
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("remove the socket of a process that is gone: %w", err)
	}
	return config.Listen(ctx, "unix", path)
}

// Serve answers the calls of a listener until [Door.Shutdown], which closes it, or has come before. It may run for several.
func (d *Door) Serve(l net.Listener) error {
	if err := d.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve the rate limit service on %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown is not serving any more, as health tells, ends the streams that watch it, takes no new calls, and waits for
// those under way; when ctx ends first it cuts them off and returns its error.
func (d *Door) Shutdown(ctx context.Context) error {
	d.health.Shutdown()
	d.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.server.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		d.server.Stop()
		<-done
		return ctx.Err()
	}
}
