package subscribe_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate/xds/subscribe"
)

// resets speaks HTTP/2 alone: it answers the first message of every stream by resetting the stream, as a proxy in front of
// the control plane does that loses it.
type resets struct {
	code   http2.ErrCode
	opened *instants
}

// serve takes connections until the listener is closed, and returns when all have ended.
func (r *resets) serve(listener net.Listener) {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		open.Go(func() {
			defer func() { _ = conn.Close() }()
			_ = r.converse(conn) // it ends with the client
		})
	}
}

func (r *resets) converse(conn net.Conn) error {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	reset := uint32(0) // the last stream that was
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = framer.WritePing(true, frame.Data)
			}
		case *http2.DataFrame:
			if id := frame.Header().StreamID; id != reset {
				reset = id
				r.opened.now()
				err = framer.WriteRSTStream(id, r.code)
			}
		}
		if err != nil {
			return err
		}
	}
}

// The case as it was seen: the stream is reset below gRPC, without a status.
func TestC19aResetStreamsAreRetriedWithGrowingWaits(t *testing.T) {
	t.Parallel()
	for _, code := range []http2.ErrCode{http2.ErrCodeNo, http2.ErrCodeInternal} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				opened := newInstants()
				listener := bufconn.Listen(1 << 20)
				done := make(chan struct{})
				go func() { defer close(done); (&resets{code: code, opened: opened}).serve(listener) }()
				conn, err := subscribe.Dial("passthrough:///memory",
					grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
				if err != nil {
					t.Fatal(err)
				}
				file := diskFile(t)
				if err := file.Save(held(t)); err != nil {
					t.Fatal(err)
				}
				var log syncedText
				client := run(t, settings{conn: conn, file: file, log: &log})
				time.Sleep(10 * time.Second) // of the bubble
				synctest.Wait()
				tries := opened.all()
				if n := len(tries); n < 3 || n > 8 {
					t.Errorf("%d tries in 10 s: %v", n, tries)
				}
				if last := len(tries) - 1; last > 1 && tries[last]-tries[last-1] <= tries[1]-tries[0] {
					t.Errorf("the waits do not grow: %v", tries)
				}
				if text := log.String(); !strings.Contains(text, "RST_STREAM with error code: "+code.String()) {
					t.Errorf("no stream was reset: %s", text)
				}
				client.sink.want(t, "api", map[string]string{"a": "60/min"})
				client.stop()
				_ = conn.Close()
				_ = listener.Close()
				<-done
			})
		})
	}
}
