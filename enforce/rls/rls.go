// Package rls is the sidecar's door for Envoy and for others that speak its rate limit service, version 3, over gRPC.
//
// The picture to hold: every descriptor is one request ([rules.FromDescriptor]); the engine decides all of a call at once,
// and each descriptor gets the status of the limit that speaks for it. Where Envoy's service and its reference server
// (envoyproxy/ratelimit) say how something is, this door does the same: a domain without rules limits nothing, hits_addend
// 0 means 1, months have 30 days. Windows that no unit says, such as 15min, are a unit and its multiplier.
//
// What it cannot say: the HTTP status of a refusal is Envoy's rate_limited_status, and of an entry that a descriptor has
// twice, only the first is seen. Numbers beyond 32 bits are told as the largest of them.
//
// Calls are bounded in size, descriptors and entries; one beyond the bounds is refused as invalid, and counted. A Door is
// safe for concurrent use.
package rls

import (
	"context"
	"fmt"
	"math"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// Decider decides calls; [enforce.Engine] is one.
type Decider interface {
	// Index is nil for a domain that has no rules yet, or none here.
	Index(domain string) *rules.Index
	DecideEach(ctx context.Context, reqs []*rules.Request, statuses []enforce.Status) enforce.Decision
	Malformed(domain, detail string) enforce.Decision
}

// The bounds of the server. A caller that vanished without a word is noticed within 30 + 10 s.
const (
	maxMessage = 256 << 10
	maxHeaders = 16 << 10
	maxStreams = 1000 // calls under way on one connection; Envoy has one for each of its threads
	handshake  = 10 * time.Second
)

// Door is the gRPC server. It is not serving, as its health service says, until [Door.SetServing] says so; calls are
// answered all the same.
type Door struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	decider Decider
	server  *grpc.Server
	health  *health.Server
	ending  context.Context // ends with Shutdown
	end     context.CancelFunc

	ok, overLimit, unknown, malformed prometheus.Counter
}

// New returns a door with health and reflection services. Translate makes gRPC statuses of errors of the kinds of package
// rules: the door's own is [rules.ErrInvalid]. The registerer may be nil. Options are the server's, beside the door's own.
func New(decider Decider, translate grpc.UnaryServerInterceptor, reg prometheus.Registerer, options ...grpc.ServerOption) *Door {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_rls_calls_total",
		Help: "Calls of the rate limit service by answer: ok, over_limit, unknown_domain (ok, since no rules are here), malformed.",
	}, []string{"answer"})
	if reg != nil {
		reg.MustRegister(answers)
	}
	d := &Door{
		decider: decider,
		health:  health.NewServer(),
		ok:      answers.WithLabelValues("ok"), overLimit: answers.WithLabelValues("over_limit"),
		unknown: answers.WithLabelValues("unknown_domain"), malformed: answers.WithLabelValues("malformed"),
	}
	d.ending, d.end = context.WithCancel(context.Background())
	d.server = grpc.NewServer(append(options,
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshake), grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(newCodec(d.malformed)),
		grpc.UnaryInterceptor(translate), grpc.StreamInterceptor(d.endWithDoor),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)...)
	d.SetServing(false)
	ratelimitv3.RegisterRateLimitServiceServer(d.server, d)
	healthpb.RegisterHealthServer(d.server, d.health)
	reflection.Register(d.server)
	return d
}

// services are the names under which health is asked: the whole server, the service, and what envoyproxy/ratelimit calls
// itself, so that a probe of that one works here.
var services = []string{"", ratelimitv3.RateLimitService_ServiceDesc.ServiceName, "ratelimit"}

// SetServing says whether there are rules: what the health service answers. After [Door.Shutdown] it says nothing.
func (d *Door) SetServing(serving bool) {
	answer := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		answer = healthpb.HealthCheckResponse_SERVING
	}
	for _, s := range services {
		d.health.SetServingStatus(s, answer)
	}
}

// ShouldRateLimit answers one call.
func (d *Door) ShouldRateLimit(ctx context.Context, req *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	served := d.decider.Index(req.GetDomain()) != nil
	c := newCall()
	defer c.release()
	if problem := c.read(req); problem != "" {
		d.malformed.Inc()
		if served { // a name that only the caller knows is not counted by: there is no end of them
			d.decider.Malformed(req.GetDomain(), problem)
		}
		return nil, fmt.Errorf("%w: %s", rules.ErrInvalid, problem)
	}
	decision := enforce.Decision{Allowed: true}
	if served {
		decision = d.decider.DecideEach(ctx, c.reqs, c.statuses)
	}
	switch {
	case !served:
		d.unknown.Inc()
	case decision.Allowed:
		d.ok.Inc()
	default:
		d.overLimit.Inc()
	}
	return respond(&decision, c.statuses), nil
}

// saturated cuts a number to what 32 bits hold.
func saturated(n int64) uint32 { return uint32(max(0, min(n, math.MaxUint32))) }
