package app_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/xdstest"
)

// Readiness is having rules, be they none; it depends neither on Redis nor on the control plane.
func TestProbes(t *testing.T) {
	t.Parallel()
	arrived, finish := make(chan struct{}), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-finish
	}))
	defer service.Close()
	c := config()
	c.Store, c.ControlPlane, c.Upstream = "redis://"+harness.FreeAddr(t), harness.FreeAddr(t), service.URL // nobody is there
	a, stop := launch(t, c, slog.New(slog.DiscardHandler))
	probe := func(live, started, ready int) error {
		ops := "http://" + a.OpsAddr().String()
		return errors.Join(wantStatus(t, "GET", ops+"/livez", live), wantStatus(t, "GET", ops+"/startupz", started), wantStatus(t, "GET", ops+"/readyz", ready))
	}
	harness.Eventually(t, xdstest.Patience, func() error { return probe(200, 503, 503) })
	// Why there are none was in the log alone.
	says := func(want string) {
		t.Helper()
		harness.Eventually(t, xdstest.Patience, func() error {
			if text := get(t, "http://"+a.OpsAddr().String()+"/readyz"); !strings.HasPrefix(text, want) {
				return fmt.Errorf("/readyz says %q, want %q", text, want)
			}
			return nil
		})
	}
	says("no rules yet: no stream to the control plane at " + c.ControlPlane + ": dial tcp " + c.ControlPlane + ": connect: connection refused\n")

	stopPlane := startPlane(t, c.ControlPlane, xdstest.NewLedger()) // without any rules
	harness.Eventually(t, xdstest.Patience, func() error { return probe(200, 200, 200) })
	stopPlane()
	if err := probe(200, 200, 200); err != nil {
		t.Errorf("without the control plane: %v", err)
	}
	says("the last rules stay in force: no stream to the control plane at " + c.ControlPlane + ": ")

	answered, stopped := make(chan error, 1), make(chan struct{})
	go func() { answered <- wantStatus(t, "GET", "http://"+a.ProxyAddr().String(), http.StatusOK) }()
	<-arrived
	go func() {
		stop()
		close(stopped)
	}()
	harness.Eventually(t, xdstest.Patience, func() error { return probe(200, 200, 503) }) // gateways send no more; nobody kills it
	close(finish)
	if err := <-answered; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	<-stopped
}

func TestRateLimitServiceServesTheRulesOfTheStream(t *testing.T) {
	t.Parallel()
	ledger, log := xdstest.NewLedger(), &bytes.Buffer{}
	ledger.Put(t, "d", "0/s", "shut")
	c := config()
	socket := filepath.Join(t.TempDir(), "rls")
	c.ControlPlane, c.RLSListen, c.ProxyListen = harness.FreeAddr(t), "unix:"+socket, "off"
	_, stop := launch(t, c, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if answer, err := watch.Recv(); err != nil || answer.GetStatus() != want {
			t.Fatalf("health %v, %v; want %v", answer.GetStatus(), err, want)
		}
	}
	told(healthpb.HealthCheckResponse_NOT_SERVING)
	startPlane(t, c.ControlPlane, ledger)
	told(healthpb.HealthCheckResponse_SERVING)

	response, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{
		Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}},
	})
	if err != nil || response.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || response.GetStatuses()[0].GetCurrentLimit().GetName() != "shut" {
		t.Errorf("got %v, %v; want to be refused by the rule", response, err)
	}

	stop() // while the watch is open
	told(healthpb.HealthCheckResponse_NOT_SERVING)
	if strings.Contains(log.String(), "cut off") {
		t.Errorf("the watch held the shutdown:\n%s", log)
	}
}

// prometheus/prometheus#3886: a counter that is born at 15 shows an increase of 0.
func TestC27SeriesOfARuleExistFromItsAck(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	c := config()
	c.ControlPlane = harness.FreeAddr(t)
	startPlane(t, c.ControlPlane, ledger)
	a, _ := startSidecar(t, c)
	revision := ledger.Put(t, "d", "0/s", "new", "other")
	ledger.WaitNode(t, "n", "d", xdstest.Acked(revision))
	var want []string
	for _, outcome := range tally.Outcomes() {
		want = append(want, fmt.Sprintf(`headgate_decisions_total{domain="d",outcome="%s",rule="new",version="1"} 0`, outcome))
	}
	text := scrape(t, a.OpsAddr().String())
	for _, series := range want {
		if !strings.Contains(text, series+"\n") {
			t.Errorf("acked, and there is no %s", series)
		}
	}
	ledger.WaitNode(t, "n", "d", xdstest.Acked(ledger.Delete("d", "new")))
	if text := scrape(t, a.OpsAddr().String()); strings.Contains(text, `rule="new"`) || !strings.Contains(text, `rule="other"`) {
		t.Errorf("deleted and acked, and its series are there:\n%s", text)
	}
}

func scrape(t *testing.T, ops string) string { return get(t, "http://"+ops+"/metrics") }

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
