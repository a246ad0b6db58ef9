package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/rulectl/replay"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/redislimit"
	"github.com/headgate/headgate/enforce/rls"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/rpcstatus"
)

const rlsRules = `
apiVersion: headgate/v1
kind: RuleSet
domain: edge
rules:
  - {name: tenant, key: [attr:tenant], limit: 2/d}
  - {name: address, key: [ip], limit: 1_000/d}
  - {name: load, key: [attr:load], limit: 500/d}
`

// calledOn counts decisions, and those that failed open.
type calledOn struct{ allowed, refused, failedOpen atomic.Int64 }

func (c *calledOn) Record(_ string, d *enforce.Decision) {
	if d.Allowed {
		c.allowed.Add(1)
	} else {
		c.refused.Add(1)
	}
	for _, o := range d.Outcomes {
		if o.Outcome == tally.FailedOpen {
			c.failedOpen.Add(1)
		}
	}
}

// startRLS serves the rate limit service over Redis, on a TCP address and a Unix socket.
func startRLS(t *testing.T) (counts *calledOn, address, socket string) {
	t.Helper()
	sets, err := rulefile.Decode("rules.yaml", []byte(rlsRules))
	if err != nil {
		t.Fatal(err)
	}
	limiter := redislimit.New(redislimit.Options{Addr: harness.RedisAddr(t), Budget: time.Second})
	t.Cleanup(func() { _ = limiter.Close() })
	counts = &calledOn{}
	engine := enforce.NewEngine(limiter, counts, slog.New(slog.DiscardHandler))
	engine.Swap(rules.NewIndex(replay.NewDomain(&sets[0]), replay.NewRules(&sets[0], nil)))
	door := rls.New(engine, rpcstatus.UnaryServer(slog.New(slog.DiscardHandler), nil), nil)
	door.SetServing(true)
	socket = filepath.Join(t.TempDir(), "rls.sock")
	for _, at := range []string{"127.0.0.1:0", "unix:" + socket} {
		l, err := rls.Listen(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if l.Addr().Network() == "tcp" {
			address = l.Addr().String()
		}
		served := make(chan error, 1)
		go func() { served <- door.Serve(l) }()
		t.Cleanup(func() {
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := door.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return counts, address, socket
}

// foreign builds a client that others wrote, from one of test/tools' module files, and returns its path.
func foreign(t *testing.T, modfile, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=test/tools/"+modfile, "-n", name)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// run returns what a client printed, and its exit code.
func run(t *testing.T, client string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, client, args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// rlsAnswer is a response as grpcurl prints it.
type rlsAnswer struct {
	OverallCode string
	Statuses    []struct {
		Code         string
		CurrentLimit struct {
			Name            string
			RequestsPerUnit uint32
			Unit            string
		}
		LimitRemaining     uint32
		DurationUntilReset string
	}
	ResponseHeadersToAdd []struct{ Key, Value string }
}

func (a rlsAnswer) String() string {
	text := a.OverallCode
	for _, s := range a.Statuses {
		l := s.CurrentLimit
		if reset, err := time.ParseDuration(s.DurationUntilReset); err == nil {
			s.DurationUntilReset = reset.Round(time.Hour).String() // the test itself takes some seconds
		}
		text += fmt.Sprintf(" %s(%s %d/%s left %d reset %s)", s.Code, l.Name, l.RequestsPerUnit, l.Unit, s.LimitRemaining, s.DurationUntilReset)
	}
	for _, h := range a.ResponseHeadersToAdd {
		text += " " + h.Key
	}
	return text
}

const rlsService = "envoy.service.ratelimit.v3.RateLimitService"

// A client that knows only what reflection tells it.
func TestGrpcurlAsksTheRateLimitService(t *testing.T) {
	t.Parallel()
	counts, address, socket := startRLS(t)
	client := foreign(t, "go.mod", "grpcurl")
	for name, to := range map[string][]string{"tcp": {"-plaintext", address}, "unix": {"-plaintext", "-unix", socket}} {
		list, code := run(t, client, append(slices.Clone(to), "list")...)
		if code != 0 || !strings.Contains(list, rlsService) {
			t.Errorf("%s: list: exit code %d\n%s", name, code, list)
		}
		healthy, code := run(t, client, append(slices.Clone(to), "grpc.health.v1.Health/Check")...)
		if code != 0 || !strings.Contains(healthy, `"SERVING"`) {
			t.Errorf("%s: health: exit code %d\n%s", name, code, healthy)
		}
		two := fmt.Sprintf(`"descriptors": [
			{"entries": [{"key": "tenant", "value": "over-%s"}]},
			{"entries": [{"key": "remote_address", "value": "192.0.2.1"}], "hitsAddend": 0}
		]`, name)
		one := fmt.Sprintf(`"entries": [{"key": "load", "value": "over-%s"}]`, name)
		const looked = "OK(address 1000/DAY left 1000 reset )"
		for i, step := range []struct{ sent, want string }{
			{two, "OK OK(tenant 2/DAY left 1 reset 12h0m0s) " + looked + " RateLimit-Policy RateLimit"},
			{two, "OK OK(tenant 2/DAY left 0 reset 12h0m0s) " + looked + " RateLimit-Policy RateLimit"},
			{two, "OVER_LIMIT OVER_LIMIT(tenant 2/DAY left 0 reset 12h0m0s) " + looked + " Retry-After RateLimit-Policy RateLimit"},
			{`"hitsAddend": 400, "descriptors": [{` + one + `}]`, "OK OK(load 500/DAY left 100 reset 0s) RateLimit-Policy RateLimit"},
			{`"descriptors": [{"hitsAddend": 50, "isNegativeHits": true, ` + one + `}]`, "OK OK(load 500/DAY left 150 reset 0s) RateLimit-Policy RateLimit"},
			{`"descriptors": [{"limit": {"requestsPerUnit": 2, "unit": "MONTH"}, ` + one + `}]`, "OK OK(load 2/MONTH left 1 reset 360h0m0s) RateLimit-Policy RateLimit"},
		} {
			printed, code := run(t, client, slices.Concat([]string{"-d", `{"domain": "edge", ` + step.sent + `}`}, to, []string{rlsService + "/ShouldRateLimit"})...)
			var answer rlsAnswer
			if err := json.Unmarshal([]byte(printed), &answer); err != nil || code != 0 {
				t.Fatalf("%s, call %d: exit code %d: %v\n%s", name, i+1, code, err, printed)
			}
			if diff := cmp.Diff(step.want, answer.String()); diff != "" {
				t.Errorf("%s, call %d (-want +got):\n%s", name, i+1, diff)
			}
		}
		refused, code := run(t, client, slices.Concat([]string{"-d", `{"domain": "edge"}`}, to, []string{rlsService + "/ShouldRateLimit"})...)
		if code == 0 || !strings.Contains(refused, "InvalidArgument") || !strings.Contains(refused, "no descriptor") {
			t.Errorf("%s: a call without descriptors: exit code %d\n%s", name, code, refused)
		}
	}
	if n := counts.failedOpen.Load(); n != 0 {
		t.Errorf("%d decisions failed open", n)
	}
}

// Many callers at once spend a limit exactly.
func TestGhzSpendsALimitExactly(t *testing.T) {
	t.Parallel()
	counts, address, _ := startRLS(t)
	printed, code := run(t, foreign(t, "ghz.mod", "ghz"),
		"--insecure", "--call", rlsService+".ShouldRateLimit", "-n", "800", "-c", "16", "--connections", "4", "-O", "json",
		"-d", `{"domain": "edge", "descriptors": [{"entries": [{"key": "load", "value": "x"}]}]}`, address)
	var report struct {
		Count                  int
		Rps                    float64
		StatusCodeDistribution map[string]int
	}
	if err := json.Unmarshal([]byte(printed), &report); err != nil || code != 0 {
		t.Fatalf("exit code %d: %v\n%s", code, err, printed)
	}
	t.Logf("%d calls, %.0f per second", report.Count, report.Rps)
	if diff := cmp.Diff(map[string]int{"OK": 800}, report.StatusCodeDistribution); diff != "" {
		t.Errorf("codes of the calls (-want +got):\n%s", diff)
	}
	if allowed, refused := counts.allowed.Load(), counts.refused.Load(); allowed != 500 || refused != 300 || counts.failedOpen.Load() != 0 {
		t.Errorf("%d allowed and %d refused, of which %d failed open; want 500 and 300", allowed, refused, counts.failedOpen.Load())
	}
}
