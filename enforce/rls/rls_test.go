package rls_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/rules"
)

const header = `
apiVersion: headgate/v1
kind: RuleSet
domain: edge
`

// show is a response in short: the overall code, and of each status "OK", or "OVER_LIMIT", and the limit as Envoy sees it.
func show(r *ratelimitv3.RateLimitResponse) string {
	text := r.GetOverallCode().String() + ":"
	for _, s := range r.GetStatuses() {
		text += " " + s.GetCode().String()
		if l := s.GetCurrentLimit(); l != nil {
			unit := l.GetUnit().String()
			if m := l.GetUnitMultiplier(); m != nil {
				unit = fmt.Sprint(m.GetValue(), unit)
			}
			text += fmt.Sprintf("(%s %d/%s left %d", l.GetName(), l.GetRequestsPerUnit(), unit, s.GetLimitRemaining())
			if reset := s.GetDurationUntilReset(); reset != nil {
				text += " reset " + reset.AsDuration().String()
			}
			text += ")"
		} else if s.GetLimitRemaining() > 0 {
			text += fmt.Sprintf("(left %d)", s.GetLimitRemaining())
		}
	}
	return text
}

func want(t *testing.T, got *ratelimitv3.RateLimitResponse, text string) {
	t.Helper()
	if diff := cmp.Diff(text, show(got)); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

// Each descriptor has the status of its own limit, in order. A refused call takes nothing.
func TestStatusesAreOfEachDescriptor(t *testing.T) {
	t.Parallel()
	b := setup(t, header+`
rules:
  - {name: tenant, key: [attr:tenant], limit: 10/h}
  - {name: user, key: [attr:user], limit: 1/min}
  - {name: two, match: {attr: {two: x}}, key: [], limits: [{name: fast, limit: 5/s}, {name: slow, limit: 3/d}]}
`)
	descriptors := []*commonv3.RateLimitDescriptor{
		descriptor("unknown", "x"), descriptor("tenant", "a"), descriptor("user", "u"), descriptor("two", "x"),
		descriptor("tenant", "a", "user", "v"),
	}
	want(t, b.answer(t, descriptors...),
		"OK: OK OK(tenant 10/HOUR left 9 reset 6m0s) OK(user 1/MINUTE left 0 reset 1m0s) OK(two/slow 3/DAY left 2 reset 8h0m0s) OK(user 1/MINUTE left 0 reset 1m0s)")
	want(t, b.answer(t, descriptors...),
		"OVER_LIMIT: OK OK(tenant 10/HOUR left 9) OVER_LIMIT(user 1/MINUTE left 0 reset 1m0s) OK(two/slow 3/DAY left 2) OVER_LIMIT(user 1/MINUTE left 0 reset 1m0s)")
	want(t, b.answer(t, descriptor("two", "x"), descriptor("tenant", "a")),
		"OK: OK(two/slow 3/DAY left 1 reset 8h0m0s) OK(tenant 10/HOUR left 8 reset 6m0s)")
}

func TestHits(t *testing.T) {
	t.Parallel()
	own := func(n uint64, negative bool) *commonv3.RateLimitDescriptor {
		d := descriptor("tenant", "a")
		d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(n), negative
		return d
	}
	request := func(n uint32, negative bool) *ratelimitv3.RateLimitRequest {
		req := call(descriptor("tenant", "a"))
		req.HitsAddend, req.Descriptors[0].IsNegativeHits = n, negative
		return req
	}
	b := setup(t, header+`
rules:
  - {name: r, key: [attr:tenant], limit: 100/d, cost: [{match: {attr: {dear: x}}, cost: 7}, {cost: 1}]}
`)
	for _, step := range []struct {
		name string
		req  *ratelimitv3.RateLimitRequest
		left uint32
		over bool
	}{
		{name: "0 of the request is 1", req: request(0, false), left: 99},
		{name: "the request's number", req: request(9, false), left: 90},
		{name: "a descriptor's own number wins", req: &ratelimitv3.RateLimitRequest{Domain: "edge", HitsAddend: 50, Descriptors: []*commonv3.RateLimitDescriptor{own(5, false)}}, left: 85},
		{name: "its own 0 looks without spending", req: call(own(0, false)), left: 85},
		{name: "negative hits give back", req: call(own(3, true)), left: 88},
		{name: "the request's too", req: request(2, true), left: 90},
		{name: "never beyond empty", req: call(own(math.MaxUint64, true)), left: 100},
		{name: "more than it holds", req: call(own(math.MaxUint64, false)), left: 100, over: true},
		{name: "0 of an empty one", req: call(own(0, false)), left: 100},
		{name: "once for a key, with the largest cost", req: call(own(2, false), own(3, false), descriptor("tenant", "a", "dear", "x"), own(1, true)), left: 93},
	} {
		response := b.ask(t, step.req)
		for _, s := range response.GetStatuses() {
			if s.GetLimitRemaining() != step.left || (s.GetCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT) != step.over {
				t.Errorf("%s: %s, want %d left, over %v", step.name, show(response), step.left, step.over)
			}
		}
	}
}

func limited(amount uint32, unit typev3.RateLimitUnit, entries ...string) *commonv3.RateLimitDescriptor {
	d := descriptor(entries...)
	d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: amount, Unit: unit}
	return d
}

// A descriptor's own limit takes the place of amount and window of the rules it meets.
func TestLimitOfADescriptor(t *testing.T) {
	t.Parallel()
	b := setup(t, header+`
rules:
  - {name: r, key: [attr:tenant], limit: 3/d burst 5}
  - {name: any, match: {attr: {any: x}}, key: [], limit: unlimited}
`)
	times := func(m uint32, d *commonv3.RateLimitDescriptor) *commonv3.RateLimitDescriptor {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(m)
		return d
	}
	for _, step := range []struct {
		d    *commonv3.RateLimitDescriptor
		want string
	}{
		{descriptor("tenant", "a"), "OK: OK(r 3/DAY left 4 reset 8h0m0s)"},
		// The same window is the same counter, with another number.
		{limited(9, typev3.RateLimitUnit_DAY, "tenant", "a"), "OK: OK(r 9/DAY left 7 reset 2h40m0s)"},
		{limited(2, typev3.RateLimitUnit_DAY, "tenant", "a"), "OVER_LIMIT: OVER_LIMIT(r 2/DAY left 0 reset 12h0m0s)"},
		{descriptor("tenant", "a"), "OK: OK(r 3/DAY left 2 reset 8h0m0s)"},
		// Another window is another counter.
		{limited(2, typev3.RateLimitUnit_HOUR, "tenant", "a"), "OK: OK(r 2/HOUR left 1 reset 30m0s)"},
		{times(6, limited(2, typev3.RateLimitUnit_HOUR, "tenant", "a")), "OK: OK(r 2/6HOUR left 1 reset 3h0m0s)"},
		{descriptor("tenant", "a"), "OK: OK(r 3/DAY left 1 reset 8h0m0s)"},
		{limited(1, typev3.RateLimitUnit_MONTH, "tenant", "a"), "OK: OK(r 1/MONTH left 0 reset 720h0m0s)"},
		{times(2, limited(1, typev3.RateLimitUnit_MONTH, "tenant", "a")), "OK: OK(r 1/2MONTH left 0 reset 1440h0m0s)"},
		{limited(1, typev3.RateLimitUnit_YEAR, "tenant", "a"), "OK: OK(r 1/YEAR left 0 reset 8760h0m0s)"},
		{times(7, limited(1, typev3.RateLimitUnit_DAY, "tenant", "a")), "OK: OK(r 1/WEEK left 0 reset 168h0m0s)"},
		{limited(0, typev3.RateLimitUnit_SECOND, "tenant", "a"), "OVER_LIMIT: OVER_LIMIT(r 0/SECOND left 0)"},
		// It limits what no number limited before, and nothing that no rule is for.
		{limited(2, typev3.RateLimitUnit_MINUTE, "any", "x"), "OK: OK(any 2/MINUTE left 1 reset 30s)"},
		{limited(0, typev3.RateLimitUnit_MINUTE, "other", "x"), "OK: OK"},
	} {
		want(t, b.answer(t, step.d), step.want)
	}
}

// A smaller number for some calls must not forget what the others spent.
func TestLimitOfADescriptorIsNoFreshBudget(t *testing.T) {
	t.Parallel()
	b := setup(t, header+"rules: [{name: r, key: [attr:tenant], limit: 10/d}]")
	spend := descriptor("tenant", "a")
	spend.HitsAddend = wrapperspb.UInt64(10)
	want(t, b.answer(t, spend), "OK: OK(r 10/DAY left 0 reset 2h24m0s)")
	b.limiter.now += (288 * time.Minute).Microseconds() // two of ten are back
	want(t, b.answer(t, limited(5, typev3.RateLimitUnit_DAY, "tenant", "a")), "OVER_LIMIT: OVER_LIMIT(r 5/DAY left 0 reset 24h0m0s)")
	want(t, b.answer(t, descriptor("tenant", "a")), "OK: OK(r 10/DAY left 1 reset 2h24m0s)")
}

// Two descriptors of one key, each with a limit of its own: both hold, whatever their order.
func TestTwoLimitsOfOneKey(t *testing.T) {
	t.Parallel()
	second, hour := limited(2, typev3.RateLimitUnit_SECOND, "tenant", "a"), limited(3, typev3.RateLimitUnit_HOUR, "tenant", "a")
	for _, descriptors := range [][]*commonv3.RateLimitDescriptor{{second, hour}, {hour, second}} {
		b := setup(t, header+"rules: [{name: r, key: [attr:tenant], limit: 100/h}]")
		for i, over := range []bool{false, false, true} {
			if response := b.answer(t, descriptors...); (response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT) != over {
				t.Errorf("call %d: %s", i+1, show(response))
			}
		}
		b.limiter.now += time.Second.Microseconds()
		for i, over := range []bool{false, true} {
			if response := b.answer(t, descriptors...); (response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT) != over {
				t.Errorf("a second later, call %d: %s", i+1, show(response))
			}
		}
	}
}

// One of them has the numbers of the rule: the stricter ones hold, whatever the order.
func TestOrderOfDescriptorsChangesNothing(t *testing.T) {
	t.Parallel()
	given := limited(20, typev3.RateLimitUnit_DAY, "tenant", "a")
	given.HitsAddend = wrapperspb.UInt64(20)
	for _, descriptors := range [][]*commonv3.RateLimitDescriptor{
		{limited(20, typev3.RateLimitUnit_DAY, "tenant", "a"), descriptor("tenant", "a")},
		{descriptor("tenant", "a"), limited(20, typev3.RateLimitUnit_DAY, "tenant", "a")},
	} {
		b := setup(t, header+"rules: [{name: r, key: [attr:tenant], limit: 10/d}]")
		want(t, b.answer(t, given), "OK: OK(r 20/DAY left 0 reset 1h12m0s)")
		const refused = "OVER_LIMIT(r 10/DAY left 0 reset 26h24m0s)"
		want(t, b.answer(t, descriptors...), "OVER_LIMIT: "+refused+" "+refused)
	}
}

func TestWhatHasNoLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, header+`
exempt: [{name: probes, match: {path: /livez}}]
rules:
  - {name: plan, key: [attr:tenant], limit: {by: attr:plan, values: {internal: unlimited}, default: 1/d}}
  - {name: shadow, match: {attr: {tried: x}}, key: [], limit: 0/s}
  - {name: big, match: {attr: {big: x}}, key: [], limit: 10_000_000_000/min}
  - {name: quarter, match: {attr: {quarter: x}}, key: [], limit: 4/15min}
`)
	want(t, b.answer(t, descriptor("tenant", "a", "plan", "internal")), "OK: OK(left 4294967295)")
	want(t, b.answer(t, descriptor("path", "/livez", "tenant", "a"), descriptor("path", "/livez")), "OK: OK OK")
	want(t, b.answer(t, descriptor("tried", "x")), "OK: OK")
	want(t, b.answer(t, descriptor("big", "x")), "OK: OK(big 4294967295/MINUTE left 4294967295 reset 1s)")
	want(t, b.answer(t, descriptor("quarter", "x")), "OK: OK(quarter 4/15MINUTE left 3 reset 3m45s)")
	// Of a key that a descriptor has twice, the first value counts.
	want(t, b.answer(t, descriptor("tenant", "a", "tenant", "b")), "OK: OK(plan 1/DAY left 0 reset 24h0m0s)")
	want(t, b.answer(t, descriptor("tenant", "b")), "OK: OK(plan 1/DAY left 0 reset 24h0m0s)")
}

// Envoy's users expect a domain without rules to limit nothing. Its name is counted by nowhere.
func TestUnknownDomainLimitsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, header+"rules: [{name: r, key: [], limit: 0/s}]")
	want(t, b.ask(t, &ratelimitv3.RateLimitRequest{Domain: "elsewhere", Descriptors: call(descriptor("a", "b"), descriptor("c", "d")).GetDescriptors()}), "OK: OK OK")
	if len(b.records.counts) > 0 {
		t.Errorf("recorded %v, want nothing", b.records.counts)
	}
	b.wantCalls(t, map[string]int{"unknown_domain": 1})
}

// wantCalls compares the counts of calls by answer, but for those that are 0.
func (b bench) wantCalls(t *testing.T, want map[string]int) {
	t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, family := range families {
		if family.GetName() != "headgate_rls_calls_total" || len(family.GetMetric()) != 4 {
			t.Errorf("%s has %d series, want those of headgate_rls_calls_total: 4 from the start", family.GetName(), len(family.GetMetric()))
		}
		for _, m := range family.GetMetric() {
			if n := int(m.GetCounter().GetValue()); n > 0 {
				got[m.GetLabel()[0].GetValue()] = n
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestMalformedCallsAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	many := make([]*commonv3.RateLimitDescriptor, 65)
	for i := range many {
		many[i] = descriptor("a", "b")
	}
	year := limited(math.MaxUint32, typev3.RateLimitUnit_YEAR, "a", "b")
	long := limited(1, typev3.RateLimitUnit_YEAR, "a", "b")
	long.Limit.UnitMultiplier = wrapperspb.UInt32(2)
	none := limited(1, typev3.RateLimitUnit_SECOND, "a", "b")
	none.Limit.UnitMultiplier = wrapperspb.UInt32(0)
	for name, c := range map[string]struct {
		req  *ratelimitv3.RateLimitRequest
		says string
	}{
		"no domain":             {&ratelimitv3.RateLimitRequest{Descriptors: many[:1]}, "domain is empty"},
		"no descriptor":         {call(), "no descriptor"},
		"too many descriptors":  {call(many...), "65 descriptors are too many: send at most 64"},
		"no entries":            {call(descriptor("a", "b"), descriptor()), "descriptor 2: it has 0 entries"},
		"no descriptor at all":  {call(nil), "descriptor 1: it has 0 entries"},
		"too many entries":      {call(descriptor(strings.Split(strings.Repeat("a,", 130), ",")[:130]...)), "65 entries: 1 to 64"},
		"an empty key":          {call(descriptor("", "b")), "entry 1: its key has 0 bytes"},
		"a long key":            {call(descriptor(strings.Repeat("k", 257), "b")), "its key has 257 bytes: 1 to 256"},
		"a long value":          {call(descriptor("secret", strings.Repeat("v", 65<<10))), "entry 1: its value has 66560 bytes"},
		"a limit without unit":  {call(limited(1, typev3.RateLimitUnit_UNKNOWN, "a", "b")), "no known unit"},
		"a limit beyond bounds": {call(year), "too large to be enforced exactly"},
		"a window beyond them":  {call(long), "no window from 1s to 366d"},
		"no window":             {call(none), "no window from 1s to 366d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, header+"rules: [{name: r, key: [attr:secret], limit: 1/s}]")
			_, err := b.door.ShouldRateLimit(context.Background(), c.req)
			if !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "vvv") {
				t.Errorf("got %v, want an invalid call that says %q", err, c.says)
			}
			b.wantCalls(t, map[string]int{"malformed": 1})
			recorded := map[string]int{"edge malformed": 1}
			if c.req.GetDomain() == "" {
				recorded = nil
			}
			if diff := cmp.Diff(recorded, b.records.counts); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
			want(t, b.answer(t, many[0]), "OK: OK") // nothing of it stays in the next call
		})
	}
}

func headersOf(r *ratelimitv3.RateLimitResponse) []string {
	var list []string
	for _, h := range r.GetResponseHeadersToAdd() {
		list = append(list, h.GetKey()+": "+h.GetValue())
	}
	return list
}

func TestHeadersTellOfTheLimitThatSpeaks(t *testing.T) {
	t.Parallel()
	b := setup(t, header+`
rules:
  - {name: tenant, key: [attr:tenant], limit: 10/min}
  - {name: user, key: [attr:user], limit: 1/10s}
  - {name: login, match: {attr: {login: x}}, key: [], limit: 1/min, response: {headers: none}}
`)
	descriptors := []*commonv3.RateLimitDescriptor{descriptor("tenant", "a"), descriptor("user", "u")}
	got := headersOf(b.answer(t, descriptors...))
	if diff := cmp.Diff([]string{`RateLimit-Policy: "user";q=1;w=10`, `RateLimit: "user";r=0;t=10`}, got); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
	b.limiter.now += 500_000
	got = headersOf(b.answer(t, descriptors...))
	if diff := cmp.Diff([]string{"Retry-After: 10", `RateLimit-Policy: "user";q=1;w=10`, `RateLimit: "user";r=0;t=10`}, got); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	// A rule that hides its numbers hides them from Envoy as well, which can make headers of them.
	for _, text := range []string{"OK: OK", "OVER_LIMIT: OVER_LIMIT"} {
		hidden := b.answer(t, descriptor("login", "x"))
		want(t, hidden, text)
		if got := headersOf(hidden); got != nil {
			t.Errorf("%v tell of a hidden limit", got)
		}
	}
	want(t, b.answer(t, descriptor("login", "x"), descriptor("tenant", "b")), "OVER_LIMIT: OVER_LIMIT OK")
}

func TestFailureModesWithoutAStore(t *testing.T) {
	t.Parallel()
	b := setup(t, header+`
rules:
  - {name: open, key: [attr:open], limit: 1/d}
  - {name: closed, key: [attr:closed], limit: 1/d, failure: closed}
  - {name: local, key: [attr:local], limit: 9/d, failure: local 1/d}
`)
	b.limiter.away = true
	want(t, b.answer(t, descriptor("open", "x")), "OK: OK")
	want(t, b.answer(t, descriptor("open", "x"), descriptor("local", "x")), "OK: OK OK")
	want(t, b.answer(t, descriptor("open", "x"), descriptor("local", "x")), "OVER_LIMIT: OK OVER_LIMIT")
	want(t, b.answer(t, descriptor("open", "x"), descriptor("closed", "x")), "OVER_LIMIT: OK OVER_LIMIT")
	b.wantCalls(t, map[string]int{"ok": 2, "over_limit": 2})
}
