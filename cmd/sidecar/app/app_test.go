package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/push"
	"github.com/headgate/headgate/xds/xdstest"
)

// startPlane serves the ledger on the address until it is stopped.
func startPlane(t *testing.T, addr string, ledger *xdstest.Ledger) (stop func()) {
	t.Helper()
	cache := push.NewCache(push.CacheOptions{})
	fleet, err := push.NewFleet(ledger, cache, push.FleetOptions{Feed: ledger})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(push.ServerOptions(), grpc.StreamInterceptor(asLocal))...)
	ctx, cancel := context.WithCancel(context.Background())
	push.Register(ctx, g, cache, fleet)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(listener) })
	wg.Go(func() { _ = cache.Run(ctx, ledger, 0) })
	wg.Go(func() { _ = fleet.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		g.Stop()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func asLocal(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(srv, local{stream})
}

type local struct{ grpc.ServerStream }

func (l local) Context() context.Context {
	return access.With(l.ServerStream.Context(), access.Local("test"))
}

// startSidecar runs a sidecar until it is stopped, and returns when it has rules.
func startSidecar(t *testing.T, c app.Config) (a *app.App, stop func()) {
	t.Helper()
	a, stop = launch(t, c, slog.New(slog.DiscardHandler))
	harness.Eventually(t, xdstest.Patience, func() error {
		return wantStatus(t, "GET", "http://"+a.OpsAddr().String()+"/readyz", http.StatusOK)
	})
	return a, stop
}

// launch runs a sidecar until it is stopped.
func launch(t *testing.T, c app.Config, log *slog.Logger) (a *app.App, stop func()) {
	t.Helper()
	a, err := app.New(t.Context(), c, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return a, stop
}

func wantStatus(t *testing.T, method, url string, want int) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != want {
		return fmt.Errorf("%s %s: %d, want %d", method, url, answer.StatusCode, want)
	}
	return nil
}

// The control plane goes; a sidecar is frozen, restarted and asked what is frozen; the control plane returns and is told.
func TestBreakGlassIsReportedWhenTheControlPlaneReturns(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	ledger := xdstest.NewLedger()
	revision := ledger.Put(t, "d", "0/s", "shut")
	c := config()
	c.ControlPlane, c.Upstream, c.LastGood = harness.FreeAddr(t), upstream.URL, filepath.Join(t.TempDir(), "rules")
	stopPlane := startPlane(t, c.ControlPlane, ledger)
	a, stop := startSidecar(t, c)
	ledger.WaitNode(t, "n", "d", xdstest.Acked(revision))
	check := func(when string, errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	ask := func(method, path string, want int) error {
		return wantStatus(t, method, "http://"+a.OpsAddr().String()+path, want)
	}
	call := func(want int) error { return wantStatus(t, "GET", "http://"+a.ProxyAddr().String(), want) }
	check("before", call(http.StatusTooManyRequests))

	stopPlane()
	check("frozen", ask("POST", "/freeze?domain=d&rule=shut&for=15m&actor=ann", http.StatusOK), call(http.StatusOK))
	stop()
	a, stop = startSidecar(t, c)
	check("restarted without a control plane", call(http.StatusOK), ask("GET", "/freezes", http.StatusOK))
	stop()

	startPlane(t, c.ControlPlane, ledger)
	a, _ = startSidecar(t, c)
	node := ledger.WaitNode(t, "n", "d", func(n rollout.Node) bool { return len(n.BreakGlass) == 1 })
	if b := node.BreakGlass[0]; b.Actor != "ann" || b.Domain != "d" || b.Freeze.Rule != "shut" {
		t.Errorf("reported %+v", b)
	}
	check("frozen still", call(http.StatusOK))
	check("ended", ask("POST", "/unfreeze?domain=d&rule=shut&actor=bob", http.StatusOK), call(http.StatusTooManyRequests))
	ledger.WaitNode(t, "n", "d", func(n rollout.Node) bool { return len(n.BreakGlass) == 2 && n.BreakGlass[0].Actor == "bob" })
}
