package rls

import (
	"math"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/answer"
)

// told is one status with all that it points to, in one piece of memory.
type told struct {
	status ratelimitv3.RateLimitResponse_DescriptorStatus
	limit  ratelimitv3.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// respond makes the response out of the decision and the status of each descriptor.
func respond(d *enforce.Decision, statuses []enforce.Status) *ratelimitv3.RateLimitResponse {
	response := &ratelimitv3.RateLimitResponse{
		OverallCode:          code(!d.Allowed),
		Statuses:             make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(statuses)),
		ResponseHeadersToAdd: headers(d),
	}
	all := make([]told, len(statuses))
	for i := range statuses {
		all[i].fill(&statuses[i], d.HideHeaders)
		response.Statuses[i] = &all[i].status
	}
	return response
}

func code(refused bool) ratelimitv3.RateLimitResponse_Code {
	if refused {
		return ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	return ratelimitv3.RateLimitResponse_OK
}

// fill says of a limit what a rule does not hide: Envoy can make headers of it.
func (t *told) fill(s *enforce.Status, hide bool) {
	t.status.Code = code(s.Refused)
	switch {
	case s.Unlimited:
		t.status.LimitRemaining = math.MaxUint32
	case s.Rate.Window > 0 && !hide && !s.HideHeaders:
		multiplier := t.window(s.Rate.Window)
		t.limit.Name, t.limit.RequestsPerUnit = enforce.PolicyName(s.Rule, s.Limit), saturated(s.Rate.Amount)
		if multiplier != 1 {
			t.limit.UnitMultiplier = wrapperspb.UInt32(saturated(multiplier))
		}
		t.status.CurrentLimit, t.status.LimitRemaining = &t.limit, saturated(s.Left)
		if s.Wait > 0 { // else nothing is told: waiting helps nobody, or nobody needs to
			t.reset.Seconds = seconds(s.Wait)
			t.status.DurationUntilReset = &t.reset
		}
	}
}

// units from the longest to the shortest. Month and year are those of envoyproxy/ratelimit.
var units = []struct {
	length time.Duration
	unit   ratelimitv3.RateLimitResponse_RateLimit_Unit
}{
	{365 * day, ratelimitv3.RateLimitResponse_RateLimit_YEAR},
	{30 * day, ratelimitv3.RateLimitResponse_RateLimit_MONTH},
	{7 * day, ratelimitv3.RateLimitResponse_RateLimit_WEEK},
	{day, ratelimitv3.RateLimitResponse_RateLimit_DAY},
	{time.Hour, ratelimitv3.RateLimitResponse_RateLimit_HOUR},
	{time.Minute, ratelimitv3.RateLimitResponse_RateLimit_MINUTE},
	{time.Second, ratelimitv3.RateLimitResponse_RateLimit_SECOND},
}

// window sets the longest unit of which the window is a multiple, and returns the multiplier. Windows are whole seconds.
func (t *told) window(w time.Duration) (multiplier int64) {
	for _, u := range units {
		if w%u.length == 0 {
			t.limit.Unit = u.unit
			return int64(w / u.length)
		}
	}
	return 1
}

// seconds rounds up: Envoy cuts to whole seconds, and a caller must not come back too early.
func seconds(wait time.Duration) int64 {
	whole := int64(wait / time.Second)
	if wait%time.Second > 0 {
		whole++
	}
	return whole
}

// headers are those that Envoy adds to its answer, whether the call is refused or not.
func headers(d *enforce.Decision) []*corev3.HeaderValue {
	var buffer [6]answer.Field
	fields := answer.Fields(buffer[:0], d)
	if len(fields) == 0 {
		return nil
	}
	values, list := make([]corev3.HeaderValue, len(fields)), make([]*corev3.HeaderValue, len(fields))
	for i, f := range fields {
		values[i].Key, values[i].Value = f.Name, f.Value
		list[i] = &values[i]
	}
	return list
}
