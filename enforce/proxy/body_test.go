package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/rules"
)

// counting allows everything, and counts how often it is asked.
type counting struct {
	always

	decided atomic.Int64
}

func (c *counting) Decide(ctx context.Context, r *rules.Request) enforce.Decision {
	c.decided.Add(1)
	return c.always.Decide(ctx, r)
}

func (c *counting) Malformed(_, detail string) enforce.Decision {
	c.decided.Add(1)
	return enforce.Decision{Reason: enforce.ReasonMalformed, Status: http.StatusBadRequest, Wait: enforce.Never, Detail: detail}
}

// A body that its caller breaks was answered, and counted, as a failure of the service; and later as malformed beside
// allowed, though a request has one decision.
func TestBodyThatItsCallerBreaksIsTheCallersFault(t *testing.T) {
	t.Parallel()
	const chunked, counted = "Transfer-Encoding: chunked\r\n\r\n", "Content-Length: 9\r\n\r\n"
	for name, c := range map[string]struct {
		body      string
		halfClose bool
	}{
		"no chunk":               {chunked + "4\r\nbody\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n", false},
		"a chunk that is longer": {chunked + "2\r\nbody\r\n0\r\n\r\n", false},
		"chunks that break off":  {chunked + "4\r\nbody\r\n", true},
		"a trailer that is none": {chunked + "4\r\nbody\r\n0\r\nno trailer\r\n\r\n", false},
		"less than announced":    {counted + "body", true},
	} {
		for _, to := range []string{"http", "h2c"} {
			t.Run(name+" to "+to, func(t *testing.T) {
				t.Parallel()
				reg, decider := prometheus.NewRegistry(), &counting{always: always{Allowed: true, Rule: "r", Rate: sixPerMinute, Left: 5, Wait: time.Second}}
				upstream := service(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				d := open(t, decider, to+strings.TrimPrefix(upstream, "http"), func(o *proxy.Options) { o.Registerer = reg })
				conn, in := d.dial(t)
				if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\n"+c.body); err != nil {
					t.Fatal(err)
				}
				if tcp, ok := conn.(*net.TCPConn); ok && c.halfClose {
					_ = tcp.CloseWrite()
				}
				resp := receive(t, in)
				var problem struct{ Title string }
				if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
					t.Error(err)
				}
				if resp.StatusCode != http.StatusBadRequest || problem.Title != "Bad request" || resp.Header.Get("RateLimit") != `"r";r=5;t=1` {
					t.Errorf("status %d, problem %q, RateLimit %q; want 400 with what was spent", resp.StatusCode, problem.Title, resp.Header.Get("RateLimit"))
				}
				_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				if next, err := in.Peek(1); !errors.Is(err, io.EOF) {
					t.Errorf("the connection goes on with %q, %v: what follows such a body may be read as a request", next, err)
				}
				if n := decider.decided.Load(); n != 1 {
					t.Errorf("decided %d times, want once", n)
				}
				wantBrokenBodies(t, reg, 1)
				wantUpstreamErrors(t, reg, 0)
			})
		}
	}
}

// A service that breaks off while its caller still sends is at fault itself.
func TestServiceThatBreaksOffAmidABodyIsNotTheCallersFault(t *testing.T) {
	t.Parallel()
	reg, decider := prometheus.NewRegistry(), &counting{always: always{Allowed: true}}
	d := open(t, decider, service(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 4))
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	}), func(o *proxy.Options) { o.Registerer = reg })
	conn, in := d.dial(t)
	go func() {
		_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
		for err == nil {
			_, err = io.WriteString(conn, "4\r\nbody\r\n")
		}
	}()
	if resp := receive(t, in); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("status %d, want 502", resp.StatusCode)
	}
	wantBrokenBodies(t, reg, 0)
	wantUpstreamErrors(t, reg, 1)
}

func wantBrokenBodies(t *testing.T, reg *prometheus.Registry, n int) {
	t.Helper()
	want := fmt.Sprintf(`
		# HELP headgate_broken_bodies_total Requests that were allowed and whose caller broke the body off, or did not encode it as its headers say: 400.
		# TYPE headgate_broken_bodies_total counter
		headgate_broken_bodies_total %d
	`, n)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "headgate_broken_bodies_total"); err != nil {
		t.Error(err)
	}
}

// wantUpstreamErrors wants so many answers of 502 to be counted, and none of 504.
func wantUpstreamErrors(t *testing.T, reg *prometheus.Registry, badGateway int) {
	t.Helper()
	want := fmt.Sprintf(`
		# HELP headgate_upstream_errors_total Requests that were allowed and that the service behind the proxy did not answer: 502, or 504 where it took too long.
		# TYPE headgate_upstream_errors_total counter
		headgate_upstream_errors_total{status="502"} %d
		headgate_upstream_errors_total{status="504"} 0
	`, badGateway)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "headgate_upstream_errors_total"); err != nil {
		t.Error(err)
	}
}
