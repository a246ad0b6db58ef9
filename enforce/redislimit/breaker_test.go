package redislimit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

func TestBreakerOpensAfterFailingForAWhile(t *testing.T) {
	t.Parallel()
	timeout := fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
	for name, c := range map[string]struct {
		failures int
		each     time.Duration
		err      error
		open     bool
	}{
		"many in one moment":             {100, time.Millisecond, timeout, false},
		"few":                            {4, 100 * time.Millisecond, timeout, false},
		"an outage":                      {60, 5 * time.Millisecond, timeout, true},
		"an outage that few meet":        {3, 600 * time.Millisecond, timeout, true},
		"pauses of this process":         {100, 100 * time.Millisecond, fmt.Errorf("%w: %w", errLate, timeout), false},
		"callers that go":                {100, 100 * time.Millisecond, context.Canceled, false},
		"too many callers at once":       {100, 100 * time.Millisecond, redis.ErrPoolTimeout, false},
		"a decision that has its errors": {100, 100 * time.Millisecond, said("ERR in the script"), false},
		"loading":                        {60, 5 * time.Millisecond, said("LOADING Redis is loading"), true},
		"no memory":                      {60, 5 * time.Millisecond, said("OOM command not allowed"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker("n", func() {})
				for range c.failures {
					_, _ = b.Execute(func() (reply, error) { return nil, c.err })
					time.Sleep(c.each)
				}
				if got := b.State(); (got != gobreaker.StateClosed) != c.open {
					t.Errorf("%v, want it open: %v", got, c.open)
				}
			})
		})
	}
}

// said is an error that Redis answers.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

func TestOneDecisionAtATimeTriesAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker("n", func() {})
		for b.State() == gobreaker.StateClosed {
			_, _ = b.Execute(func() (reply, error) { return nil, os.ErrDeadlineExceeded })
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(2 * openTime)
		var second error
		_, err := b.Execute(func() (reply, error) {
			_, second = b.Execute(func() (reply, error) { return nil, nil })
			return nil, nil
		})
		if err != nil || !errors.Is(second, gobreaker.ErrTooManyRequests) || b.State() != gobreaker.StateClosed {
			t.Errorf("the try: %v, one beside it: %v, then %v; want nil, too many, closed", err, second, b.State())
		}
	})
}

// pair is a connection, and its other end.
func pair(t *testing.T) (*patient, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	tcp, ok := near.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T is no TCP connection", near)
	}
	return &patient{TCPConn: tcp}, far
}

// A process that was stopped for a while found its deadlines over, and took every answer that had come meanwhile for late.
func TestAnswerThatCameWhileThisProcessWasStoppedCounts(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	if err := near.SetReadDeadline(time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write([]byte("+OK\r\n")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	n, err := near.Read(buf)
	if diff := cmp.Diff("+OK\r\n", string(buf[:n])); diff != "" || err != nil {
		t.Errorf("read %v (-want +got):\n%s", err, diff)
	}
}
