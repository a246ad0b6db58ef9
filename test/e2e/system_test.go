package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patience bounds every wait for something that is expected to happen. It is long because machines that test are busy.
const patience = 30 * time.Second

// system is a control plane with its database, and what sidecars need.
type system struct {
	t        *testing.T
	redis    *harness.RedisServer
	database string
	grpc     string
	http     string
	upstream *upstream
	plane    *harness.Process
	binaries map[string]string
	env      []string // of programs that are started from now on, beside the test's own

	redisFailed bool // by the test
}

// upstream counts what reaches it.
type upstream struct {
	*httptest.Server
	requests atomic.Int64
}

func start(t *testing.T, planeFlags ...string) *system {
	t.Helper()
	s := &system{
		t: t, redis: harness.Redis(t), database: harness.Postgres(t),
		grpc: harness.FreeAddr(t), http: harness.FreeAddr(t), upstream: &upstream{}, binaries: map[string]string{},
	}
	for _, name := range []string{"controlplane", "sidecar", "rulectl"} {
		s.binaries[name] = harness.Build(t, "./cmd/"+name)
	}
	s.upstream.Server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		s.upstream.requests.Add(1)
	}))
	t.Cleanup(s.upstream.Close)
	s.startPlane(planeFlags...)
	return s
}

func (s *system) startPlane(flags ...string) {
	s.t.Helper()
	args := append([]string{"--database-url", s.database, "--grpc-listen", s.grpc, "--http-listen", s.http}, flags...)
	s.plane = s.run("controlplane", "controlplane", args)
	s.waitReady(s.http)
}

func (s *system) run(name, binary string, args []string) *harness.Process {
	s.t.Helper()
	cmd := exec.Command(s.binaries[binary], args...)
	cmd.Env = append(os.Environ(), s.env...)
	return harness.StartCmd(s.t, name, cmd)
}

func (s *system) waitReady(ops string) {
	s.t.Helper()
	harness.Eventually(s.t, patience, func() error {
		if status := get(s.t, "http://"+ops+"/readyz"); status != http.StatusOK {
			return fmt.Errorf("%s/readyz answers %d", ops, status)
		}
		return nil
	})
}

// get returns the status of an answer, 0 when there is none.
func get(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// sidecar is one sidecar in proxy mode before the upstream.
type sidecar struct {
	system  *system
	name    string
	proxy   string
	ops     string
	args    []string
	process *harness.Process
	client  *http.Client
}

func (s *system) sidecar(name, domain string, flags ...string) *sidecar {
	s.t.Helper()
	c := &sidecar{system: s, name: name, proxy: harness.FreeAddr(s.t), ops: harness.FreeAddr(s.t)}
	transport := &http.Transport{}
	c.client = &http.Client{Transport: transport}
	s.t.Cleanup(transport.CloseIdleConnections)
	// The store's budget is long so that nothing fails open on a busy machine; tests of the failure modes set it.
	c.args = append([]string{
		"--node-id", name, "--domain", domain, "--controlplane", s.grpc, "--store", "redis://" + s.redis.Addr,
		"--store-budget", "1s", "--upstream", s.upstream.URL, "--listen", c.proxy, "--rls-listen", "off", "--ops-listen", c.ops,
		"--trusted-proxy", "127.0.0.1", "--last-good", filepath.Join(s.t.TempDir(), "last-good"),
	}, flags...)
	c.start()
	s.t.Cleanup(c.nothingFailed)
	return c
}

func (c *sidecar) start() {
	c.system.t.Helper()
	c.process = c.system.run(c.name, "sidecar", c.args)
	c.system.waitReady(c.ops)
}

// answer is what a call through a sidecar got; status 0 when there was none.
type answer struct {
	status     int
	retryAfter string
}

// call sends a request for a client through the sidecar.
func (c *sidecar) call(method, path, client string) answer {
	c.system.t.Helper()
	return c.callWith(method, path, http.Header{"X-Forwarded-For": {client}})
}

// callWith sends a request with headers through the sidecar.
func (c *sidecar) callWith(method, path string, header http.Header) answer {
	c.system.t.Helper()
	req, err := http.NewRequestWithContext(c.system.t.Context(), method, "http://"+c.proxy+path, nil)
	if err != nil {
		c.system.t.Fatal(err)
	}
	req.Header = header
	resp, err := c.client.Do(req)
	if err != nil {
		c.system.t.Error(err)
		return answer{}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return answer{resp.StatusCode, resp.Header.Get("Retry-After")}
}

// outcomes returns headgate_decisions_total of a rule by outcome, over its versions.
func (c *sidecar) outcomes(rule string) map[string]int {
	c.system.t.Helper()
	sum := map[string]int{}
	c.metric("headgate_decisions_total", func(labels map[string]string, m *dto.Metric) {
		if labels["rule"] == rule {
			sum[labels["outcome"]] += int(m.GetCounter().GetValue())
		}
	})
	return sum
}

// revision returns headgate_config_revision of the only domain.
func (c *sidecar) revision() (revision int) {
	c.system.t.Helper()
	c.metric("headgate_config_revision", func(_ map[string]string, m *dto.Metric) { revision = int(m.GetGauge().GetValue()) })
	return revision
}

// metric scrapes the sidecar and visits the series of one metric.
func (c *sidecar) metric(name string, visit func(labels map[string]string, m *dto.Metric)) {
	c.system.t.Helper()
	families, err := c.scrape(c.system.t.Context())
	if err != nil {
		c.system.t.Fatal(err)
	}
	for _, m := range families[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		visit(labels, m)
	}
}

func (c *sidecar) scrape(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.ops+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// nothingFailed wants that Redis made every decision, at the end of a test that did not take it away. A sidecar that has
// been stopped by then, or hangs, is not asked.
func (c *sidecar) nothingFailed() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	families, err := c.scrape(ctx)
	if err != nil || c.system.redisFailed {
		return
	}
	for _, m := range families["headgate_degraded_decisions_total"].GetMetric() {
		if n := m.GetCounter().GetValue(); n > 0 {
			c.system.t.Errorf("%s: %.0f decisions were made without Redis: %s", c.name, n, m.GetLabel()[0].GetValue())
		}
	}
}

// rulectl runs the command and returns what it printed and its exit code.
func (s *system) rulectl(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binaries["rulectl"], args...)
	// A race-built command otherwise sleeps a second before it exits.
	cmd.Env = append(append(os.Environ(), s.env...), "RULECTL_SERVER="+s.grpc, "GORACE=atexit_sleep_ms=10")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs rulectl, wants exit code 0, and returns all it printed.
func (s *system) must(args ...string) string {
	s.t.Helper()
	stdout, stderr, code := s.rulectl(args...)
	if code != 0 {
		s.t.Fatalf("rulectl %s: exit %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout + stderr
}

// apply applies a rule file and waits for all acknowledgements.
func (s *system) apply(content string) string {
	s.t.Helper()
	return s.must("apply", "-f", s.file(content), "-m", "e2e", "--yes", "--wait")
}

func (s *system) file(content string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("got\n%s\nwant it to say %q", got, w)
		}
	}
}

func containsAll(got string, want ...string) bool {
	for _, w := range want {
		if !strings.Contains(got, w) {
			return false
		}
	}
	return true
}
