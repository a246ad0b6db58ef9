package enforce_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// generator draws rule sets and streams of calls that meet them.
type generator struct{ t *rapid.T }

func (g generator) oneIn(n int, what string) bool { return rapid.IntRange(1, n).Draw(g.t, what) == n }

func pick[V any](g generator, what string, of ...V) V { return rapid.SampledFrom(of).Draw(g.t, what) }

// windows of all three ticks, and one that no tick divides into round numbers.
var windows = []time.Duration{time.Second, 7 * time.Second, time.Minute, 3 * time.Hour}

func (g generator) limit(name string) rules.Limit {
	l := rules.Limit{Name: name, Algorithm: pick(g, "algorithm", rules.TokenBucket, rules.SlidingWindow)}
	window := pick(g, "window", windows...)
	l.Rate = g.rate(l.Algorithm, window)
	if g.oneIn(3, "by plan") {
		by, err := rules.ParseSource("header:x-plan")
		if err != nil {
			g.t.Fatal(err)
		}
		l.By = &by
		l.Values = map[string]rules.Rate{"pro": g.rate(l.Algorithm, window), "internal": {Unlimited: true}}
	}
	return l
}

func (g generator) rate(a rules.Algorithm, window time.Duration) rules.Rate {
	r := rules.Rate{Amount: rapid.Int64Range(0, 6).Draw(g.t, "amount"), Window: window}
	r.Burst = r.Amount
	if a == rules.TokenBucket {
		r.Burst = rapid.Int64Range(1, 8).Draw(g.t, "burst")
	}
	return r
}

func (g generator) spec() rules.Spec {
	var s rules.Spec
	s.Match.Method = pick(g, "match", nil, nil, []string{"POST"})
	s.MissingKey = pick(g, "missing", rules.MissingDefault, rules.MissingShared, rules.MissingSkip, rules.MissingRefuse)
	for _, text := range pick(g, "key", []string{"header:x-api-key"}, []string{"header:x-api-key"}, []string{"ip", "header:x-api-key"}, []string{"ip"}, nil) {
		k, err := rules.ParseKeySource(text)
		if err != nil {
			g.t.Fatal(err)
		}
		s.Key = append(s.Key, k)
	}
	s.Limits = []rules.Limit{g.limit("one")}
	if g.oneIn(3, "two limits") {
		s.Limits = append(s.Limits, g.limit("two"))
	}
	s.Cost = pick(g, "cost", nil, nil, []rules.Cost{{Match: rules.Match{Method: []string{"POST"}}, Cost: 3}}, []rules.Cost{{Cost: 2}})
	s.Response.Headers = pick(g, "headers", rules.HeadersStandard, rules.HeadersNone)
	return s
}

// edited returns the spec with other numbers in the same window, so that its counters are kept.
func (g generator) edited(s rules.Spec) rules.Spec {
	limits := make([]rules.Limit, len(s.Limits))
	for i, l := range s.Limits {
		l.Rate = g.rate(l.Algorithm, l.Window())
		limits[i] = l
	}
	s.Limits = limits
	return s
}

// rule draws a rule in any stage; a candidate is mostly an edit of the stable.
func (g generator) rule(name string) *rules.Rule {
	r := rule(name, &rules.Version{Number: 1, Spec: g.spec()}, nil)
	if g.oneIn(4, "stable only") {
		return r
	}
	r.Candidate = &rules.Version{Number: 2, Spec: g.edited(r.Stable.Spec)}
	switch pick(g, "candidate", "edited", "edited", "for other requests", "another") {
	case "for other requests": // with the same counters
		s, other := &r.Candidate.Spec, g.spec()
		s.Match, s.MissingKey, s.Cost = other.Match, other.MissingKey, other.Cost
	case "another":
		r.Candidate.Spec = g.spec()
	}
	if g.oneIn(4, "no stable") {
		r.Stable = nil
	}
	r.Percent = pick(g, "percent", rules.Percent(0), 0, 2500, 5000, 7500)
	r.Salt = rapid.Uint64().Draw(g.t, "salt")
	return r
}

func (g generator) rules() []*rules.Rule {
	var list []*rules.Rule
	for i := range rapid.IntRange(1, 3).Draw(g.t, "rules") {
		list = append(list, g.rule(fmt.Sprintf("rule-%d", i)))
	}
	return list
}

// overrides draws overrides of a few keys, which do not end.
func (g generator) overrides(list []*rules.Rule) []named {
	var all []named
	for _, r := range list {
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if v == nil || !g.oneIn(3, "overrides") {
				continue
			}
			o := named{rule: r.Name, override: rules.Override{Until: time.Unix(1<<40, 0)}}
			for _, k := range v.Spec.Key {
				o.values = append(o.values, map[string]string{"ip": "192.0.2.1", "header:x-api-key": "a"}[k.String()])
			}
			l := pick(g, "override of", v.Spec.Limits...)
			o.override.Limit, o.override.Rate = l.Name, g.rate(l.Algorithm, l.Window())
			if g.oneIn(4, "unlimited") {
				o.override.Rate = rules.Rate{Unlimited: true}
			}
			all = append(all, o)
		}
	}
	return all
}

// call is a request, some time after the one before it.
type call struct {
	after time.Duration
	req   *rules.Request
}

// GoString shows the call where a law fails.
func (c call) GoString() string {
	return fmt.Sprintf("{+%v %s %v %v hits %d}", c.after, c.req.Method, c.req.IP, c.req.Header, c.req.Hits)
}

func (g generator) calls(most int) []call {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) call { return generator{t}.call() }), 1, most).Draw(g.t, "calls")
}

func (g generator) call() call {
	c := call{req: &rules.Request{Domain: "d", Path: "/", Header: map[string][]string{}}}
	c.after = pick(g, "after", 0, 0, 0, time.Microsecond, time.Millisecond, 333*time.Millisecond, 2*time.Second, 40*time.Second, time.Hour)
	c.req.Method = pick(g, "method", "GET", "POST")
	c.req.Hits = pick(g, "hits", int64(1), 1, 1, 1, 2, 0, -1)
	c.req.IP = pick(g, "ip", netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.Addr{})
	if keys := pick(g, "keys", []string{"a"}, []string{"a"}, []string{"b"}, []string{"c"}, nil, []string{"a", "b"}); keys != nil {
		c.req.Header["X-Api-Key"] = keys
	}
	if plan := pick(g, "plan", "", "", "pro", "internal"); plan != "" {
		c.req.Header["X-Plan"] = []string{plan}
	}
	return c
}

// stage plays calls to an engine over a limiter, on a virtual clock.
type stage struct {
	*clocked
	engine *enforce.Engine
	domain rules.Domain
	rules  []*rules.Rule
	// The wall clock, by which freezes and overrides end, is so much ahead of the limiter's.
	ahead     time.Duration
	overrides []named
	counts    *meter.Meter // nil: nobody counts
}

// named is an override by the name of its rule and the values of its key.
type named struct {
	rule     string
	values   []string
	override rules.Override
}

// nobody records nothing.
type nobody struct{}

func (nobody) Record(string, *enforce.Decision) {}

// newStage returns one whose counters nobody else has, also where the limiter is shared.
func newStage(l limittest.Limiter, list ...*rules.Rule) *stage {
	s := &stage{clocked: &clocked{limiter: l, now: limittest.Start}, domain: rules.Domain{Name: "d", Revision: 7}}
	_, _ = rand.Read(s.domain.Secret[:])
	s.engine = enforce.NewEngine(s, s, slog.New(slog.DiscardHandler), enforce.WithClock(s.wall))
	s.swap(list...)
	return s
}

func (s *stage) wall() time.Time { return time.UnixMicro(s.now).Add(s.ahead).UTC() }

func (s *stage) swap(list ...*rules.Rule) {
	s.rules = list
	var all []*rules.Rule
	for _, r := range list {
		all = append(all, s.overridden(r))
	}
	index := rules.NewIndex(s.domain, all)
	if s.counts != nil {
		s.counts.Install(index)
	}
	s.engine.Swap(index)
}

// Record hands the decision to the meter, where there is one.
func (s *stage) Record(domain string, d *enforce.Decision) {
	if s.counts != nil {
		s.counts.Record(domain, d)
	}
}

// overridden returns the rule with its overrides.
func (s *stage) overridden(r *rules.Rule) *rules.Rule {
	with := *r
	for _, o := range s.overrides {
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if o.rule != r.Name || v == nil {
				continue
			}
			if key, err := rules.KeyOfValues(&v.Spec, o.values); err == nil { // a version with another key has none
				o.override.Key = rules.NewOverrideKey(s.domain.Secret, r.UID, &v.Spec, key)
				with.Overrides = append(with.Overrides, o.override)
			}
		}
	}
	return &with
}

// override replaces the overrides that are in force.
func (s *stage) override(list ...named) {
	s.overrides = list
	s.swap(s.rules...)
}

// freeze replaces the freezes that came with the domain.
func (s *stage) freeze(list ...rules.Freeze) {
	s.domain.Freezes = list
	s.swap(s.rules...)
}

func (s *stage) decide(c call) enforce.Decision {
	s.pass(c.after)
	return s.again(c)
}

// again repeats the call at once.
func (s *stage) again(c call) enforce.Decision { return s.engine.Decide(context.Background(), c.req) }

// looks is a limiter that looks at the actual counters before and after each decision: what is left of them, and how long
// it takes until all of it is.
type looks struct {
	limittest.Limiter
	before, after []enforce.Verdict // of the binding charges of the last decision
}

func (l *looks) DecideAt(ctx context.Context, micros int64, charges []enforce.Charge) (verdicts []enforce.Verdict, err error) {
	if l.before, err = l.look(ctx, micros, charges); err != nil {
		return nil, err
	}
	if verdicts, err = l.Limiter.DecideAt(ctx, micros, charges); err != nil {
		return nil, err
	}
	l.after, err = l.look(ctx, micros, charges)
	return verdicts, err
}

// look asks for the whole burst. Such a charge owns nothing, so it is a look only.
func (l *looks) look(ctx context.Context, micros int64, charges []enforce.Charge) ([]enforce.Verdict, error) {
	var asked []enforce.Charge
	for _, c := range charges {
		if !c.WhatIf {
			c.Cost, c.Decides, c.Owns = c.Limit.Burst, c.Actual, false
			asked = append(asked, c)
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	return l.Limiter.DecideAt(ctx, micros, asked)
}

// seen is a decision without what its what-if versions said.
type seen struct {
	Decision enforce.Decision
	Binding  string
}

func withoutWhatIf(d enforce.Decision) seen {
	var b strings.Builder
	for _, o := range d.Outcomes {
		if !o.WhatIf {
			fmt.Fprintf(&b, "%s v%d %s, other %v\n", o.Rule.Name, o.Version.Number, o.Outcome, o.OtherRefused)
		}
	}
	d.Outcomes, d.Reference = nil, ""
	return seen{d, b.String()}
}

// refusedBy returns what a version said to each request that it matched: "r" refused, "a" did not.
func refusedBy(d enforce.Decision, number int64, rule string) string {
	for _, o := range d.Outcomes {
		if o.Rule.Name == rule && o.Version.Number == number {
			if o.Outcome == tally.Refused || o.Outcome == tally.WouldRefuse {
				return "r"
			}
			return "a"
		}
	}
	return "-"
}
