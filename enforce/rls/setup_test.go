package rls_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/rls"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/xds/rpcstatus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frozen is a limiter whose clock stands, unless a test moves it.
type frozen struct {
	limiter *memlimit.Limiter
	now     int64
	away    bool
}

func (f *frozen) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	if f.away {
		return nil, errors.New("connection refused")
	}
	return f.limiter.DecideAt(ctx, f.now, charges)
}

// records counts decisions by domain: "allowed", "refused", or a reason.
type records struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *records) Record(domain string, d *enforce.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	switch {
	case d.Allowed:
		r.counts[domain+" allowed"]++
	default:
		r.counts[domain+" "+string(d.Reason)]++
	}
}

type bench struct {
	door    *rls.Door
	limiter *frozen
	records *records
	metrics *prometheus.Registry
}

// setup returns a door with a file's rules in force; those named shadow are only judged.
func setup(tb testing.TB, file string) bench {
	tb.Helper()
	sets, err := rulefile.Decode("rules.yaml", []byte(file))
	if err != nil {
		tb.Fatal(err)
	}
	b := bench{limiter: &frozen{limiter: memlimit.New(), now: limittest.Start}, records: &records{}, metrics: prometheus.NewRegistry()}
	engine := enforce.NewEngine(b.limiter, b.records, slog.New(slog.DiscardHandler), enforce.WithLocal(memlimit.New()))
	for _, set := range sets {
		var list []*rules.Rule
		for _, r := range set.Rules {
			rule := &rules.Rule{Domain: set.Domain, Name: r.Name, UID: r.Name}
			if version := (&rules.Version{Number: 1, Spec: r.Spec}); r.Name == "shadow" {
				rule.Candidate = version
			} else {
				rule.Stable = version
			}
			list = append(list, rule)
		}
		engine.Swap(rules.NewIndex(rules.Domain{Name: set.Domain, Exempt: set.Exempt}, list))
	}
	b.door = rls.New(engine, translate, b.metrics)
	return b
}

var translate = rpcstatus.UnaryServer(slog.New(slog.DiscardHandler), nil)

// descriptor of entries: "key", "value", "key", "value" …
func descriptor(entries ...string) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	return d
}

func call(descriptors ...*commonv3.RateLimitDescriptor) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors}
}

func (b bench) answer(tb testing.TB, descriptors ...*commonv3.RateLimitDescriptor) *ratelimitv3.RateLimitResponse {
	tb.Helper()
	return b.ask(tb, call(descriptors...))
}

func (b bench) ask(tb testing.TB, req *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
	tb.Helper()
	response, err := b.door.ShouldRateLimit(context.Background(), req)
	if err != nil {
		tb.Fatal(err)
	}
	return response
}
