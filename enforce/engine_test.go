package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// clocked is a limiter on a virtual clock.
type clocked struct {
	limiter limittest.Limiter
	now     int64
}

func newClocked() *clocked { return &clocked{limiter: memlimit.New(), now: limittest.Start} }

func (c *clocked) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	return c.limiter.DecideAt(ctx, c.now, charges)
}

func (c *clocked) pass(d time.Duration) { c.now += d.Microseconds() }

// broken is a store that does not answer.
type broken struct{}

func (broken) Decide(context.Context, []enforce.Charge) ([]enforce.Verdict, error) {
	return nil, errors.New("connection refused")
}

// counts is a recorder: "rule v1 allowed" to how often.
type counts map[string]int

func (c counts) Record(_ string, d *enforce.Decision) {
	for _, o := range d.Outcomes {
		c[fmt.Sprintf("%s v%d %s", o.Rule.Name, o.Version.Number, o.Outcome)]++
	}
}

type bundle struct {
	engine *enforce.Engine
	clock  *clocked
	counts counts
}

func setup(list ...*rules.Rule) bundle {
	b := bundle{clock: newClocked(), counts: counts{}}
	b.engine = enforce.NewEngine(b.clock, b.counts, slog.New(slog.DiscardHandler))
	b.swap(list...)
	return b
}

func (b bundle) swap(list ...*rules.Rule) {
	b.engine.Swap(rules.NewIndex(rules.Domain{Name: "d", Revision: 7, Secret: [16]byte{1, 2, 3}}, list))
}

// version is a spec by API key with the limits, as "60/min" or "name=60/min".
func version(t *testing.T, number int64, limits ...string) *rules.Version {
	t.Helper()
	v := &rules.Version{Number: number, Spec: rules.Spec{Key: []rules.KeySource{source(t, "header:x-api-key")}}}
	for _, text := range limits {
		name, rate, found := strings.Cut(text, "=")
		if !found {
			name, rate = "", text
		}
		r, err := rules.ParseRate(rate)
		if err != nil {
			t.Fatal(err)
		}
		v.Spec.Limits = append(v.Spec.Limits, rules.Limit{Name: name, Algorithm: rules.TokenBucket, Rate: r})
	}
	return v
}

func source(t *testing.T, text string) rules.KeySource {
	t.Helper()
	k, err := rules.ParseKeySource(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func rule(name string, stable, candidate *rules.Version) *rules.Rule {
	return &rules.Rule{Domain: "d", Name: name, UID: "uid-" + name, Stable: stable, Candidate: candidate, Salt: 1, Epoch: 1}
}

func request(key string) *rules.Request {
	return &rules.Request{
		Domain: "d", Method: "GET", Path: "/v1/x", IP: netip.MustParseAddr("192.0.2.1"),
		Header: map[string][]string{"X-Api-Key": {key}}, Hits: 1,
	}
}

func (b bundle) call(t *testing.T, key string) enforce.Decision {
	t.Helper()
	return b.engine.Decide(t.Context(), request(key))
}

// letters sums decisions up as in the cases: A allowed, R refused.
func (b bundle) letters(t *testing.T, key string, n int) string {
	t.Helper()
	var s strings.Builder
	for range n {
		if b.call(t, key).Allowed {
			s.WriteByte('A')
		} else {
			s.WriteByte('R')
		}
	}
	return s.String()
}

// envoyproxy/ratelimit#427: a refused call counted for the other limit too.
func TestC03RefusedCallEatsNoOtherLimit(t *testing.T) {
	t.Parallel()
	b := setup(rule("group", version(t, 1, "10/min"), nil), rule("route", version(t, 1, "3/min"), nil))
	if got := b.letters(t, "k", 5); got != "AAARR" {
		t.Errorf("got %s, want AAARR", got)
	}
	b.swap(rule("group", version(t, 1, "10/min"), nil))
	if d := b.call(t, "k"); d.Left != 6 {
		t.Errorf("the group has %d left after one more call, want 6 of the 7", d.Left)
	}
}

// envoyproxy/envoy#46390: when the shadow rule ran out, the enforced one was no longer spent.
func TestC23ShadowRuleDoesNotWeakenAnEnforcedOne(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a-shadow", "z-shadow"} { // before and after the enforced rule
		b := setup(rule("enforced", version(t, 1, "3/d"), nil), rule(name, nil, version(t, 1, "1/d")))
		alone := setup(rule("enforced", version(t, 1, "3/d"), nil))
		for i := range 5 {
			got, want := b.call(t, "k"), alone.call(t, "k")
			got.Outcomes, got.Reference, want.Outcomes, want.Reference = nil, "", nil, ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("call %d with a shadow rule differs from without (-without +with):\n%s", i+1, diff)
			}
		}
		want := counts{
			"enforced v1 allowed": 3, "enforced v1 refused": 2, name + " v1 would_allow": 1, name + " v1 would_refuse": 4,
		}
		if diff := cmp.Diff(want, b.counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	}
}

// erpc/erpc#1058: two rules over the same key used one counter, and each call counted twice.
func TestC04RulesOverTheSameKeyHaveTheirOwnCounters(t *testing.T) {
	t.Parallel()
	b := setup(rule("any", version(t, 1, "1000/min"), nil), rule("call", version(t, 1, "10/min"), nil))
	if got, want := b.letters(t, "k", 12), "AAAAAAAAAARR"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// apache/apisix#187, hookaido#239: a changed number waited for the counter to expire; any push refilled every bucket.
func TestC18ChangedNumberWorksAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(rule("r", version(t, 1, "100/min"), nil))
	b.letters(t, "k", 10)
	b.swap(rule("r", version(t, 2, "2/min"), nil))
	if d := b.call(t, "k"); d.Allowed || d.Left != 0 {
		t.Errorf("after the push of 2: got %+v, want refused with nothing left", d)
	}
	b.swap(rule("r", version(t, 3, "1500/min"), nil))
	if d := b.call(t, "k"); !d.Allowed || d.Left != 1489 {
		t.Errorf("after the push of 1500: got %+v, want 1489 left", d)
	}
	b.swap(rule("r", version(t, 1, "100/min"), nil))
	if d := b.call(t, "k"); !d.Allowed || d.Left != 88 {
		t.Errorf("after the rollback: got %+v, want 88 left", d)
	}
}

// kuadrant, 3scale/apisonator#54: the answer described another limit than the one that refused (CASES C13).
func TestC13RefusalDescribesTheLimitThatRefused(t *testing.T) {
	t.Parallel()
	b := setup(rule("plan", version(t, 1, "minute=60/min", "budget=3/h"), nil))
	if got := b.letters(t, "k", 3); got != "AAA" {
		t.Fatalf("got %s, want AAA", got)
	}
	d := b.call(t, "k")
	want := enforce.Decision{
		Revision: 7, Rule: "plan", Version: 1, Limit: "budget", Left: 0, Reason: enforce.ReasonOverLimit, Status: http.StatusTooManyRequests,
		Wait: 20 * time.Minute, Rate: rules.Rate{Amount: 3, Window: time.Hour, Burst: 3}, Violated: []string{"plan/budget"},
	}
	if len(d.Reference) != 13 {
		t.Errorf("reference %q, want 13 random letters", d.Reference)
	}
	d.Outcomes, d.Reference = nil, ""
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	b.clock.pass(20*time.Minute - time.Second)
	if b.call(t, "k").Allowed {
		t.Error("allowed one second before the promised wait is over")
	}
	b.clock.pass(time.Second)
	if !b.call(t, "k").Allowed {
		t.Error("refused after the promised wait")
	}
}

func TestPartialBindsOnlyTheCohort(t *testing.T) {
	t.Parallel()
	r := rule("r", version(t, 1, "1000/min"), version(t, 2, "1/min"))
	r.Percent = 2500
	b := setup(r)
	for i := range 200 {
		key := fmt.Sprintf("key-%d", i)
		want := "AA"
		if r.InCohort(request(key)) {
			want = "AR"
		}
		if got := b.letters(t, key, 2); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	if b.counts["r v2 refused"] == 0 || b.counts["r v2 would_refuse"] == 0 {
		t.Errorf("counts %v: want refusals inside the cohort and would-be refusals outside", b.counts)
	}
}

// Promotion and rollback hand out no fresh budget, and what-if counters start as copies of the actual one.
func TestPromotionAndRollbackKeepWhatWasSpent(t *testing.T) {
	t.Parallel()
	stable, candidate := version(t, 1, "10/d"), version(t, 2, "5/d")
	b := setup(rule("r", stable, nil))
	b.letters(t, "k", 4)
	b.swap(rule("r", stable, candidate))
	b.letters(t, "k", 2)
	if b.counts["r v2 would_allow"] != 1 || b.counts["r v2 would_refuse"] != 1 {
		t.Errorf("counts %v: want the shadow to begin with the 4 already spent", b.counts)
	}
	b.swap(rule("r", candidate, nil))
	if got := b.letters(t, "k", 1); got != "R" {
		t.Errorf("after the promotion: got %s, want R", got)
	}
	b.swap(rule("r", stable, nil))
	if d := b.call(t, "k"); d.Left != 3 {
		t.Errorf("after the rollback: %d left, want 3: 7 of 10 spent", d.Left)
	}
}

// One counter serves callers inside and outside of the cohort: the candidate counts by its own, as if it bound for all.
func TestSharedCounterInTheCohort(t *testing.T) {
	t.Parallel()
	stable, candidate := version(t, 1, "1000/d"), version(t, 2, "3/d")
	r := rule("r", stable, candidate)
	r.Percent = 5000
	b := setup(r)
	shared := func(host int) *rules.Request {
		return &rules.Request{Domain: "d", Method: "GET", Path: "/", IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(host)}), Hits: 1}
	}
	var inside, outside *rules.Request
	for host := range 250 {
		if req := shared(host); r.InCohort(req) {
			inside = req
		} else {
			outside = req
		}
	}
	var got strings.Builder
	for _, req := range []*rules.Request{outside, inside, outside, inside, outside} {
		if b.engine.Decide(t.Context(), req).Allowed {
			got.WriteByte('A')
		} else {
			got.WriteByte('R')
		}
	}
	if got.String() != "AAARA" {
		t.Errorf("got %s, want AAARA: the candidate's 3 are used up by callers of both sides", got.String())
	}
}

func TestC20WithoutTheStoreFailureModesDecide(t *testing.T) {
	t.Parallel()
	closed := version(t, 1, "10/min")
	closed.Spec.Failure = rules.Failure{Mode: rules.FailClosed}
	for name, c := range map[string]struct {
		rules []*rules.Rule
		want  enforce.Decision
		count counts
	}{
		"open": {
			[]*rules.Rule{rule("open", version(t, 1, "10/min"), nil)},
			enforce.Decision{Allowed: true, Revision: 7},
			counts{"open v1 failed_open": 1},
		},
		"closed beside open": {
			[]*rules.Rule{rule("closed", closed, nil), rule("open", version(t, 1, "10/min"), version(t, 2, "1/min"))},
			enforce.Decision{
				Revision: 7, Rule: "closed", Version: 1, Reason: enforce.ReasonStoreUnavailable, Status: http.StatusServiceUnavailable,
				Wait: time.Second, Violated: []string{"closed"},
			},
			counts{"closed v1 failed_closed": 1, "open v1 refused_by_other": 1, "open v2 unknown": 1},
		},
		"closed in shadow": {
			[]*rules.Rule{rule("closed", nil, closed)},
			enforce.Decision{Allowed: true, Revision: 7},
			counts{"closed v1 unknown": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counted := counts{}
			e := enforce.NewEngine(broken{}, counted, slog.New(slog.DiscardHandler))
			e.Swap(rules.NewIndex(rules.Domain{Name: "d", Revision: 7}, c.rules))
			d := e.Decide(t.Context(), request("k"))
			d.Outcomes, d.Reference = nil, ""
			if diff := cmp.Diff(c.want, d); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.count, counted); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

// zulip/zulip#21578 and others: keys joined by a plain character coincided.
func TestC25ValuesThatLookLikeSeparators(t *testing.T) {
	t.Parallel()
	two := version(t, 1, "1/d")
	two.Spec.Key = []rules.KeySource{source(t, "header:realm"), source(t, "header:user")}
	long := strings.Repeat("x", 10_000)
	pairs := []map[string][]string{
		{"Realm": {"21"}, "User": {"1"}},
		{"Realm": {"2"}, "User": {"11"}},
		{"Realm": {"x|y"}, "User": {"z"}},
		{"Realm": {"x"}, "User": {"y|z"}},
		{"Realm": {""}, "User": {"m"}},
		{"User": {"m"}},
		{"Realm": {"{tag}"}, "User": {"t"}},
		{"Realm": {"{tag"}, "User": {"}t"}},
		{"Realm": {long}, "User": {"1"}},
		{"Realm": {long + "x"}, "User": {"1"}},
		{"Realm": {"\xff"}, "User": {"\n"}},
		{"Realm": {"\xfe"}, "User": {"\n"}},
	}
	b := setup(rule("r", two, nil))
	for round, want := range []bool{true, false} {
		for _, h := range pairs {
			d := b.engine.Decide(t.Context(), &rules.Request{Domain: "d", Method: "GET", Path: "/", Header: h, Hits: 1})
			if d.Allowed != want {
				t.Errorf("round %d, %.40q: allowed %v, want %v", round+1, h, d.Allowed, want)
			}
		}
	}
}

func TestUnmatchedAndUnknownDomains(t *testing.T) {
	t.Parallel()
	b := setup()
	if d := b.call(t, "k"); !d.Allowed || d.Revision != 7 || len(d.Outcomes) != 0 {
		t.Errorf("no rule matches: got %+v, want allowed by revision 7", d)
	}
	if d := b.engine.Decide(t.Context(), &rules.Request{Domain: "other"}); !d.Allowed || d.Revision != 0 {
		t.Errorf("no rules for the domain: got %+v, want allowed by revision 0", d)
	}
}
