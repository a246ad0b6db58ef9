package enforce_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/rules"
)

// inspected sums up what is known of the key "k" of the rule "r": a line for each limit.
func (s *stage) inspected(t *testing.T, plan string) (lines []string) {
	t.Helper()
	in, err := s.engine.Inspect(t.Context(), enforce.Inquiry{Domain: "d", Rule: "r", Key: []string{"k"}, Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range in.Versions {
		for _, l := range v.Limits {
			text := fmt.Sprintf("v%d %s %s: %d spent, %d left, wait %v, reset %v", v.Version.Number, v.Part, l.Rate, l.Spent, l.Left, l.Wait, l.Reset)
			if !l.Override.IsZero() {
				text += fmt.Sprintf(", override for %v", l.Override.Sub(s.wall()))
			}
			lines = append(lines, text)
		}
		if v.Unknown != "" {
			lines = append(lines, fmt.Sprintf("v%d %s", v.Version.Number, v.Unknown))
		}
	}
	return lines
}

func (s *stage) wantInspected(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.inspected(t, "")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func TestInspectSaysWhatAKeyHasSpentAndHasLeft(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		s := newStage(l, rule("r", version(t, 1, "6/min"), nil))
		s.wantInspected(t, "never met", "v1 binds 6/min: 0 spent, 6 left, wait 0s, reset 0s")
		s.calls("k", 4)
		s.wantInspected(t, "4 calls", "v1 binds 6/min: 4 spent, 2 left, wait 0s, reset 40s")
		s.calls("k", 4)
		s.wantInspected(t, "8 calls, 2 of them refused", "v1 binds 6/min: 6 spent, 0 left, wait 10s, reset 1m0s")
		s.now += (15 * time.Second).Microseconds()
		s.wantInspected(t, "15 s later", "v1 binds 6/min: 5 spent, 1 left, wait 0s, reset 45s")

		s.override(named{"r", []string{"k"}, rules.Override{Rate: rate(t, "12/min"), Until: s.wall().Add(time.Hour)}})
		s.wantInspected(t, "overridden", "v1 binds 12/min: 3 spent, 9 left, wait 0s, reset 15s, override for 1h0m0s")
		s.freeze(rules.Freeze{Rule: "r", Until: s.wall().Add(time.Minute)})
		s.wantInspected(t, "frozen", "v1 frozen 12/min: 3 spent, 9 left, wait 0s, reset 15s, override for 1h0m0s")
	})
}

func TestInspectShowsBothVersionsAndTheCohort(t *testing.T) {
	onBothStores(t, func(t *testing.T, l limittest.Limiter) {
		r := rule("r", version(t, 1, "6/min"), version(t, 2, "2/min"))
		s := newStage(l, r)
		s.calls("k", 1)
		s.wantInspected(t, "in shadow", "v1 binds 6/min: 1 spent, 5 left, wait 0s, reset 10s", "v2 what-if 2/min: 1 spent, 1 left, wait 0s, reset 30s")
		s.calls("k", 3) // of which the candidate would have refused two
		s.wantInspected(t, "in shadow", "v1 binds 6/min: 4 spent, 2 left, wait 0s, reset 40s", "v2 what-if 2/min: 2 spent, 0 left, wait 30s, reset 1m0s")
		r.Percent = rules.AllKeys
		s.swap(r)
		s.wantInspected(t, "in the cohort", "v1 what-if 6/min: 4 spent, 2 left, wait 0s, reset 40s", "v2 binds 2/min: 2 spent, 0 left, wait 30s, reset 1m0s")
		r.Candidate.Spec.Key = append(r.Candidate.Spec.Key, source(t, "ip"))
		s.swap(r)
		s.wantInspected(t, "another key", "v1 what-if 6/min: 4 spent, 2 left, wait 0s, reset 40s", "v2 its key has other values")
	})
}

func TestInspectTakesThePlanOfTheKey(t *testing.T) {
	t.Parallel()
	v := version(t, 1, "2/min")
	by := source(t, "header:x-plan").Source
	v.Spec.Limits[0].By, v.Spec.Limits[0].Values = &by, map[string]rules.Rate{"pro": rate(t, "6/min"), "free": {Unlimited: true}}
	s := newStage(memlimit.New(), rule("r", v, nil))
	s.callAs("pro")
	for plan, want := range map[string]string{
		"":     "v1 binds 2/min: 1 spent, 1 left, wait 0s, reset 30s",
		"pro":  "v1 binds 6/min: 1 spent, 5 left, wait 0s, reset 10s",
		"free": "v1 binds unlimited: 0 spent, 0 left, wait 0s, reset 0s",
	} {
		if got := s.inspected(t, plan); len(got) != 1 || got[0] != want {
			t.Errorf("plan %q: %q, want %q", plan, got, want)
		}
	}
}

// Where the rule has no key, the side is that of the client address.
func TestInspectFindsTheCohortAsARequestDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		keyed := rapid.Bool().Draw(rt, "keyed")
		r := rule("r", version(t, 1, "6/min"), version(t, 2, "2/min"))
		r.Percent, r.Salt = rules.Percent(rapid.Uint32Range(0, 10_000).Draw(rt, "percent")), rapid.Uint64().Draw(rt, "salt")
		req := request(rapid.String().Draw(rt, "key"))
		req.IP = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(rt, "ip")))
		q := enforce.Inquiry{Domain: "d", Rule: "r", IP: req.IP}
		if keyed {
			q.Key = req.Header["X-Api-Key"]
		} else {
			r.Stable.Spec.Key, r.Candidate.Spec.Key = nil, nil
		}
		in, err := newStage(memlimit.New(), r).engine.Inspect(t.Context(), q)
		if err != nil {
			rt.Fatal(err)
		}
		if in.InCohort == nil || *in.InCohort != r.InCohort(req) {
			rt.Errorf("in the cohort: %v, want %t", in.InCohort, r.InCohort(req))
		}
		q.IP = netip.Addr{}
		in, err = newStage(memlimit.New(), r).engine.Inspect(t.Context(), q)
		if partial := r.Percent > 0 && r.Percent < rules.AllKeys; err != nil || (in.InCohort == nil) != (partial && !keyed) {
			rt.Errorf("without an address: %v, %v", in, err)
		}
	})
}

// Two runs of the same calls have the same answers, one of them with inspections in between.
func TestInspectChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		g := generator{rt}
		r := rule("r", &rules.Version{Number: 1, Spec: g.spec()}, nil)
		if g.oneIn(2, "candidate") {
			r.Candidate = &rules.Version{Number: 2, Spec: pick(g, "kind", g.spec(), g.edited(r.Stable.Spec))}
			r.Percent = pick(g, "percent", 0, 5000, rules.AllKeys)
		}
		looked, alone := newStage(memlimit.New(), r), newStage(memlimit.New(), r)
		alone.domain.Secret = looked.domain.Secret
		alone.swap(r)
		q := enforce.Inquiry{Domain: "d", Rule: "r", IP: request("a").IP}
		for _, k := range r.Stable.Spec.Key {
			q.Key = append(q.Key, map[string]string{"ip": "192.0.2.1", "header:x-api-key": "a"}[k.String()])
		}
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			if _, err := looked.engine.Inspect(t.Context(), q); err != nil {
				rt.Fatal(err)
			}
			c := call{after: pick(g, "after", 0, time.Second, 20*time.Second), req: request(pick(g, "key", "a", "b"))}
			if got, want := said(looked.decide(c)), said(alone.decide(c)); got != want {
				rt.Fatalf("after an inspection: %s, want %s", got, want)
			}
		}
	})
}

// said is all of a decision that counters make.
func said(d enforce.Decision) string {
	text := fmt.Sprintf("%t %s %d left, wait %v", d.Allowed, d.Reason, d.Left, d.Wait)
	for _, o := range d.Outcomes {
		text += fmt.Sprintf(", v%d %s", o.Version.Number, o.Outcome)
	}
	return text
}

func TestInspectSaysWhyItCannot(t *testing.T) {
	t.Parallel()
	engine := enforce.NewEngine(broken{}, nobody{}, slog.New(slog.DiscardHandler))
	engine.Swap(rules.NewIndex(rules.Domain{Name: "d"}, []*rules.Rule{rule("r", version(t, 1, "6/min"), nil)}))
	for _, c := range []struct {
		q    enforce.Inquiry
		kind error
		text string
	}{
		{enforce.Inquiry{Domain: "e", Rule: "r", Key: []string{"secret"}}, rules.ErrNotFound, `domain "e"`},
		{enforce.Inquiry{Domain: "d", Rule: "s", Key: []string{"secret"}}, rules.ErrNotFound, `rule "s"`},
		{enforce.Inquiry{Domain: "d", Rule: "r", Key: []string{"secret", "secret"}}, rules.ErrInvalid, "2 values for a key of 1 parts: header:x-api-key"},
		{enforce.Inquiry{Domain: "d", Rule: "r", Key: []string{"secret"}}, rules.ErrUnavailable, "connection refused"},
	} {
		_, err := engine.Inspect(t.Context(), c.q)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v; want %v with %q", c.q, err, c.kind, c.text)
		}
	}
}
