package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api/adminpb"
)

func TestMain(m *testing.M) { harness.Main(m) }

// buffer is written by one goroutine and read by another.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// dev runs `controlplane dev` on free ports until the test ends, and returns the addresses it printed.
func dev(t *testing.T, dataDir string) (proxy, admin string, stop func()) {
	t.Helper()
	config := defaultDevConfig()
	for _, address := range []*string{
		&config.controlPlane.GRPCListen, &config.controlPlane.HTTPListen, &config.sidecar.ProxyListen, &config.sidecar.RLSListen, &config.sidecar.OpsListen,
	} {
		*address = "127.0.0.1:0"
	}
	config.dataDir = dataDir
	var out, log buffer
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runDev(ctx, config, &out, &log) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("dev ended with %v", err)
		}
		if strings.Contains(log.String(), "level=ERROR") { // such as that the last counts were lost
			t.Error("whoever stops it is told of an error")
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	t.Cleanup(stop)
	harness.Eventually(t, 30*time.Second, func() error {
		if !strings.Contains(out.String(), "Stop it with Ctrl-C") {
			return fmt.Errorf("it has printed %q", out.String())
		}
		return nil
	})
	if strings.Contains(log.String(), "level=WARN") {
		t.Errorf("whoever tries it is warned of something:\n%s", log.String())
	}
	find := func(what string) string {
		m := regexp.MustCompile(what + ` +(?:http://)?([0-9.:]+)`).FindStringSubmatch(out.String())
		if m == nil {
			t.Fatalf("no %s in\n%s", what, out.String())
		}
		return m[1]
	}
	return find("service behind the sidecar"), find("control plane"), stop
}

func statuses(t *testing.T, proxy, key string, n int) string {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var got []string
	for range n {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+proxy+"/v1/hello", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", key)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		got = append(got, resp.Status[:3])
	}
	return strings.Join(got, " ")
}

// The whole path in one process: shadow, everybody, and back.
func TestDev(t *testing.T) {
	t.Parallel()
	proxy, address, _ := dev(t, "")
	if got, want := statuses(t, proxy, "k1", 7), "200 200 200 200 200 200 200"; got != want {
		t.Errorf("in shadow: %s, want %s", got, want)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	admin := adminpb.NewAdminServiceClient(conn)
	trail, err := admin.ListAudit(t.Context(), &adminpb.ListAuditRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := trail.GetRecords()[0].GetActor(), app.OperatingSystemUser(); got != want {
		t.Errorf("the demo rules were applied by %s, want %s", got, want)
	}
	promoted, err := admin.Promote(t.Context(), &adminpb.PromoteRequest{Domain: demoDomain, Rule: "api-key", To: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	await(t, admin, promoted.GetOutcome())
	if got := statuses(t, proxy, "k1", 1); got != "429" {
		t.Errorf("after the promotion: %s, want 429: the calls in shadow are spent", got)
	}
	if got, want := statuses(t, proxy, "k2", 7), "200 200 200 200 200 429 429"; got != want {
		t.Errorf("another key: %s, want %s", got, want)
	}
	back, err := admin.Rollback(t.Context(), &adminpb.RollbackRequest{Domain: demoDomain, Rule: "api-key"})
	if err != nil {
		t.Fatal(err)
	}
	await(t, admin, back.GetOutcome())
	if got := statuses(t, proxy, "k1", 1); got != "200" {
		t.Errorf("after the rollback: %s, want 200", got)
	}
}

func await(t *testing.T, admin adminpb.AdminServiceClient, o *adminpb.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := admin.Await(ctx, &adminpb.AwaitRequest{Domain: o.GetDomain(), Revision: o.GetRevision()})
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF { //nolint:errorlint // gRPC returns it bare
		t.Fatal(err)
	}
}

// With a folder the rules outlive the process, at the stage they had.
func TestDevKeepsItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, _, stop := dev(t, dir)
	stop()
	proxy, _, _ := dev(t, dir)
	if got := statuses(t, proxy, "k1", 1); got != "200" {
		t.Errorf("second run: %s, want 200", got)
	}
}

func TestCommandRefusesArguments(t *testing.T) {
	t.Parallel()
	c := command()
	c.SetArgs([]string{"dve"})
	if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "dve") {
		t.Errorf("got %v, want an error that names the word", err)
	}
}
