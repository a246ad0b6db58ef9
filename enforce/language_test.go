package enforce_test

import (
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

func rate(t *testing.T, text string) rules.Rate {
	t.Helper()
	r, err := rules.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The plan chooses the number, and is no part of the counter: changing plan gives no new budget.
func TestPlanIsNoPartOfTheCounter(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "2/d")
	by := source(t, "header:x-plan").Source
	v.Spec.Limits[0].By = &by
	v.Spec.Limits[0].Values = map[string]rules.Rate{"pro": rate(t, "5/d"), "internal": {Unlimited: true}}
	b := setup(rule("r", v, nil))
	call := func(plan string) enforce.Decision {
		req := request("k")
		if plan != "" {
			req.Header["X-Plan"] = []string{plan}
		}
		return b.engine.Decide(t.Context(), req)
	}
	for i, c := range []struct {
		plan    string
		allowed bool
		left    int64
	}{
		{"", true, 1}, {"other", true, 0}, {"", false, 0}, {"pro", true, 2}, {"pro", true, 1}, {"free", false, 0}, {"pro", true, 0}, {"pro", false, 0},
	} {
		if d := call(c.plan); d.Allowed != c.allowed || d.Left != c.left {
			t.Errorf("call %d (%s): allowed %v with %d left, want %v and %d", i+1, c.plan, d.Allowed, d.Left, c.allowed, c.left)
		}
	}
	if d := call("internal"); !d.Allowed || d.Rule != "" {
		t.Errorf("unlimited: got %+v, want allowed by no limit", d)
	}
}

// alisaifee/limits#112, redis/redis#15113.
func TestC05Costs(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "10/d")
	b := setup(rule("r", v, nil))
	call := func(hits int64) enforce.Decision {
		req := request("k")
		req.Hits = hits
		return b.engine.Decide(t.Context(), req)
	}
	for _, c := range []struct {
		hits    int64
		allowed bool
		left    int64
	}{{8, true, 2}, {4, false, 2}, {2, true, 0}, {1, false, 0}, {0, true, 0}, {-3, true, 3}, {-100, true, 10}, {10, true, 0}} {
		if d := call(c.hits); d.Allowed != c.allowed || d.Left != c.left {
			t.Errorf("%d hits: allowed %v with %d left, want %v and %d", c.hits, d.Allowed, d.Left, c.allowed, c.left)
		}
	}
	for _, hits := range []int64{11, 1 << 62} {
		if d := call(hits); d.Allowed || d.Reason != enforce.ReasonCostExceedsLimit || d.Wait != enforce.Never {
			t.Errorf("%d hits of 10: got %+v, want refused for good", hits, d)
		}
	}
}

func TestCostOfTheFirstEntryThatMatches(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "100/d")
	v.Spec.Cost = []rules.Cost{{Match: rules.Match{Path: []string{"/v1/export"}}, Cost: 90}, {Cost: 5}}
	b := setup(rule("r", v, nil))
	if d := b.call(t, "k"); d.Left != 95 {
		t.Errorf("left %d, want 95", d.Left)
	}
	req := request("k")
	req.Path = "/v1/export"
	if d := b.engine.Decide(t.Context(), req); d.Left != 5 {
		t.Errorf("left %d, want 5", d.Left)
	}
}

func TestMissingAndRepeatedKeys(t *testing.T) {
	t.Parallel()
	without := func(descriptor bool) *rules.Request {
		return &rules.Request{Domain: "d", Method: "GET", Path: "/", IP: netip.MustParseAddr("192.0.2.1"), Hits: 1, Descriptor: descriptor}
	}
	twice := request("k")
	twice.Header["X-Api-Key"] = []string{"k", "other"}
	for name, c := range map[string]struct {
		missing  rules.MissingKey
		req      *rules.Request
		reason   enforce.Reason
		status   int
		outcomes int
	}{
		"shared by default":               {rules.MissingDefault, without(false), "", 0, 1},
		"skipped by default, descriptors": {rules.MissingDefault, without(true), "", 0, 0},
		"shared":                          {rules.MissingShared, without(true), "", 0, 1},
		"skipped":                         {rules.MissingSkip, without(false), "", 0, 0},
		"refused":                         {rules.MissingRefuse, without(false), enforce.ReasonMissingKey, http.StatusBadRequest, 1},
		"given twice":                     {rules.MissingDefault, twice, enforce.ReasonMalformed, http.StatusBadRequest, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := version(t, 1, "5/d")
			v.Spec.MissingKey = c.missing
			b := setup(rule("r", v, nil))
			d := b.engine.Decide(t.Context(), c.req)
			if d.Reason != c.reason || d.Status != c.status || len(d.Outcomes) != c.outcomes || d.Allowed != (c.reason == "") {
				t.Errorf("got %+v, want reason %q, status %d and %d outcomes", d, c.reason, c.status, c.outcomes)
			}
			shadow := setup(rule("r", nil, v))
			if d := shadow.engine.Decide(t.Context(), c.req); !d.Allowed {
				t.Errorf("in shadow: got %+v, want allowed", d)
			}
			if refused := shadow.counts["r v1 would_refuse"]; (refused == 1) != (c.reason != "") {
				t.Errorf("in shadow: %v", shadow.counts)
			}
		})
	}
}

// A version that refuses without a counter takes nothing from the others.
func TestRefusalWithoutACounterTakesNothing(t *testing.T) {
	t.Parallel()
	b := setup(rule("key", version(t, 1, "5/d"), nil), rule("all", &rules.Version{Number: 1, Spec: rules.Spec{
		Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rate(t, "10/d")}},
	}}, nil))
	twice := request("k")
	twice.Header["X-Api-Key"] = []string{"k", "other"}
	for range 3 {
		if d := b.engine.Decide(t.Context(), twice); d.Allowed {
			t.Fatal("a key given twice is allowed")
		}
	}
	b.swap(rule("all", &rules.Version{Number: 1, Spec: rules.Spec{
		Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rate(t, "10/d")}},
	}}, nil))
	if d := b.call(t, "k"); d.Left != 9 {
		t.Errorf("left %d, want 9: the refused calls took nothing", d.Left)
	}
}

func TestExemptMeetsNoRule(t *testing.T) {
	t.Parallel()
	b := setup()
	b.engine.Swap(rules.NewIndex(rules.Domain{
		Name: "d", Revision: 7, Exempt: []rules.Exemption{{Name: "health", Match: rules.Match{Path: []string{"/livez"}}}},
	}, []*rules.Rule{rule("r", version(t, 1, "0/s"), nil)}))
	req := request("k")
	if d := b.engine.Decide(t.Context(), req); d.Allowed {
		t.Error("0/s allows")
	}
	req.Path = "/livez"
	want := enforce.Decision{Allowed: true, Exempt: "health", Revision: 7}
	if diff := cmp.Diff(want, b.engine.Decide(t.Context(), req)); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// Within one call a rule is charged at most once for a key, with the largest cost.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "10/d")
	v.Spec.Key = []rules.KeySource{source(t, "attr:tenant")}
	v.Spec.Cost = []rules.Cost{{Match: rules.Match{Path: []string{"/x"}}, Cost: 4}, {Cost: 1}}
	b := setup(rule("r", v, nil))
	d := b.engine.DecideAll(t.Context(), []*rules.Request{
		rules.FromDescriptor("d", map[string]string{"tenant": "a"}, 1),
		rules.FromDescriptor("d", map[string]string{"tenant": "a", "path": "/x?y=1"}, 1),
		rules.FromDescriptor("d", map[string]string{"tenant": "b"}, 1),
		rules.FromDescriptor("d", map[string]string{"remote_address": "192.0.2.1"}, 1),
	})
	if !d.Allowed || d.Left != 6 || len(d.Outcomes) != 2 {
		t.Errorf("got %+v, want 6 left and the outcomes of two keys", d)
	}
	only := b.engine.DecideAll(t.Context(), []*rules.Request{rules.FromDescriptor("d", map[string]string{"tenant": "b"}, 0)})
	if only.Left != 9 {
		t.Errorf("tenant b has %d left, want 9", only.Left)
	}
}

// The limit depended on the order of the descriptors, and one with an unlimited plan let the others avoid it.
func TestDescriptorsOfOneKeyGetTheStricterPlan(t *testing.T) {
	t.Parallel()
	for _, plans := range [][]string{{"in", "free"}, {"free", "in"}, {"pro", "free"}, {"free", "pro"}} {
		v := version(t, 1, "1/d")
		v.Spec.Key = []rules.KeySource{source(t, "attr:t")}
		by := source(t, "attr:plan").Source
		v.Spec.Limits[0].By = &by
		v.Spec.Limits[0].Values = map[string]rules.Rate{"in": {Unlimited: true}, "free": rate(t, "2/d"), "pro": rate(t, "5/d")}
		b := setup(rule("r", v, nil))
		var reqs []*rules.Request
		for _, plan := range plans {
			reqs = append(reqs, rules.FromDescriptor("d", map[string]string{"t": "a", "plan": plan}, 1))
		}
		for i, want := range []bool{true, true, false} {
			if d := b.engine.DecideAll(t.Context(), reqs); d.Allowed != want || len(d.Outcomes) != 1 {
				t.Errorf("%v, call %d: allowed %v with %d outcomes, want %v and one", plans, i+1, d.Allowed, len(d.Outcomes), want)
			}
		}
	}
}

func TestExactDemandsNoOtherEntries(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "10/d")
	v.Spec.Key, v.Spec.Exact = []rules.KeySource{source(t, "attr:tenant")}, true
	b := setup(rule("r", v, nil))
	for n, entries := range map[int]map[string]string{
		1: {"tenant": "a"}, 0: {"tenant": "a", "other": "b"},
	} {
		if d := b.engine.Decide(t.Context(), rules.FromDescriptor("d", entries, 1)); len(d.Outcomes) != n {
			t.Errorf("%v: %d outcomes, want %d", entries, len(d.Outcomes), n)
		}
	}
}

func TestResponse(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "0/s")
	v.Spec.Response = rules.Response{Status: 503, Title: "Busy", Headers: rules.HeadersNone}
	b := setup(rule("a-loud", version(t, 1, "0/s"), nil), rule("quiet", v, nil))
	if d := b.call(t, "k"); d.Rule != "a-loud" || d.Status != 429 || !d.HideHeaders {
		t.Errorf("got %+v, want a-loud with 429, and headers hidden for the sake of the other", d)
	}
	b.swap(rule("quiet", v, nil))
	if d := b.call(t, "k"); d.Status != 503 || d.Title != "Busy" {
		t.Errorf("got %+v, want 503 Busy", d)
	}
}

func TestC20LocalLimitWithoutTheStore(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "100/d")
	v.Spec.Failure = rules.Failure{Mode: rules.FailLocal, Local: rate(t, "2/d")}
	counted := counts{}
	e := enforce.NewEngine(broken{}, counted, slog.New(slog.DiscardHandler), enforce.WithLocal(memlimit.New()))
	e.Swap(rules.NewIndex(rules.Domain{Name: "d", Revision: 7}, []*rules.Rule{rule("local", v, nil), rule("open", version(t, 1, "9/d"), nil)}))
	var last enforce.Decision
	for range 3 {
		last = e.Decide(t.Context(), request("k"))
	}
	if last.Allowed || last.Rule != "local" || last.Limit != "local" || last.Status != 429 || last.Wait <= 11*time.Hour {
		t.Errorf("the third call: got %+v, want refused by the local 2/d", last)
	}
	want := counts{"local v1 local_allowed": 2, "local v1 local_refused": 1, "open v1 failed_open": 2, "open v1 refused_by_other": 1}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
