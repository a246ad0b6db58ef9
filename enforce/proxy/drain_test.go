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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/enforce/proxy"
	"github.com/headgate/headgate/test/harness"
)

func TestDrainLetsRequestsEndAndTakesNoMore(t *testing.T) {
	t.Parallel()
	arrived, finish := make(chan struct{}), make(chan struct{})
	d := open(t, always{Allowed: true}, service(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-finish
		_, _ = io.WriteString(w, "done")
	}))
	answered := make(chan string, 1)
	caller, request := client(t, http1), d.request(t, http.MethodGet, "/", nil)
	go func() {
		resp, err := caller.Do(request)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		answered <- string(body)
	}()
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- d.server.Shutdown(context.WithoutCancel(t.Context())) }()
	if err := <-d.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve returned %v", err)
	}
	if conn, err := net.Dial("tcp", d.addr); err == nil {
		_ = conn.Close()
		t.Error("a new connection was taken")
	}
	close(finish)
	if got := <-answered; got != "done" {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func TestDrainWaitsForUpgradedConnections(t *testing.T) {
	t.Parallel()
	d := open(t, always{Allowed: true}, service(t, shouting))
	conn, in, _ := d.upgrade(t)
	stopped := make(chan error, 1)
	go func() { stopped <- d.server.Shutdown(context.WithoutCancel(t.Context())) }()
	if err := <-d.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := io.WriteString(conn, "still here\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := in.ReadString('\n'); line != "STILL HERE\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	_ = conn.Close()
	if err := <-stopped; err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func TestDrainCutsOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	d := open(t, always{Allowed: true}, service(t, shouting))
	_, in, _ := d.upgrade(t)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- d.server.Shutdown(ctx) }()
	if err := <-d.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve returned %v", err)
	}
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown: %v, want that it was cut short", err)
	}
	if _, err := in.ReadString('\n'); err == nil {
		t.Error("the connection is still open")
	}
}

// failing returns what a caller gets through a door before such a service.
func failing(t *testing.T, upstream string, change func(*proxy.Options)) (status int, problem map[string]any, h http.Header) {
	t.Helper()
	d := open(t, always{Allowed: true, Rule: "r", Rate: sixPerMinute, Left: 5, Wait: time.Second}, upstream, change)
	resp := do(t, client(t, http1), d.request(t, http.MethodGet, "/", nil))
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, problem, resp.Header
}

// A service that is not there, or hangs, is not the caller's fault, and is answered as such.
func TestServiceThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	hang := service(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	reset := service(t, func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	})
	refused := harness.FreeAddr(t)
	for name, c := range map[string]struct {
		upstream string
		want     int
	}{
		"refuses":        {"http://" + refused, http.StatusBadGateway},
		"breaks off":     {reset, http.StatusBadGateway},
		"takes too long": {hang, http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewRegistry()
			status, problem, h := failing(t, c.upstream, func(o *proxy.Options) {
				o.UpstreamTimeout, o.Registerer = 50*time.Millisecond, reg
				if c.want != http.StatusGatewayTimeout {
					o.UpstreamTimeout = 0
				}
			})
			if status != c.want || problem["status"] != float64(c.want) || h.Get("Content-Type") != "application/problem+json" {
				t.Errorf("status %d, %s %v; want %d as a problem", status, h.Get("Content-Type"), problem, c.want)
			}
			if got := h.Get("RateLimit"); got != `"r";r=5;t=1` {
				t.Errorf("RateLimit: %q, want what was spent", got)
			}
			counted := map[int]int{c.want: 1}
			want := fmt.Sprintf(`
				# HELP headgate_upstream_errors_total Requests that were allowed and that the service behind the proxy did not answer: 502, or 504 where it took too long.
				# TYPE headgate_upstream_errors_total counter
				headgate_upstream_errors_total{status="502"} %d
				headgate_upstream_errors_total{status="504"} %d
			`, counted[http.StatusBadGateway], counted[http.StatusGatewayTimeout])
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "headgate_upstream_errors_total"); err != nil {
				t.Error(err)
			}
		})
	}
}
