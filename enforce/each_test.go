package enforce_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// The statuses change no decision. A request's says that it is refused exactly when a version that binds for it refuses,
// and the call is refused exactly when one of its requests is; that of a single request is the decision's own.
func eachStatus(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	list := g.rules()
	s, without := newStage(open(), list...), newStage(open(), list...)
	index := rules.NewIndex(s.domain, list)
	for calls := g.calls(n); len(calls) > 0; {
		size := min(len(calls), rapid.IntRange(1, 3).Draw(t, "descriptors"))
		var reqs []*rules.Request
		for _, c := range calls[:size] {
			s.pass(c.after)
			reqs = append(reqs, c.req)
		}
		calls = calls[size:]
		without.now = s.now
		statuses := make([]enforce.Status, size)
		statuses[0].Rule = "of the call before"
		d := s.engine.DecideEach(t.Context(), reqs, statuses)
		if diff := cmp.Diff(withoutWhatIf(without.engine.DecideAll(t.Context(), reqs)), withoutWhatIf(d)); diff != "" {
			t.Fatalf("decision without (-) and with statuses (+):\n%s", diff)
		}
		if refused := slices.ContainsFunc(statuses, func(s enforce.Status) bool { return s.Refused }); refused == d.Allowed {
			t.Fatalf("allowed %v with statuses %+v", d.Allowed, statuses)
		}
		for i, req := range reqs {
			if got, want := statuses[i].Refused, refusedFor(index, req, d); got != want {
				t.Fatalf("request %d: refused %v, want %v: %+v", i, got, want, d)
			}
		}
		if own := (enforce.Status{
			Refused: !d.Allowed, Unlimited: statuses[0].Unlimited, HideHeaders: d.HideHeaders,
			Rule: d.Rule, Limit: d.Limit, Rate: d.Rate, Left: d.Left, Wait: d.Wait,
		}); size == 1 && own != statuses[0] {
			t.Fatalf("the only request (-decision +status):\n%s", cmp.Diff(own, statuses[0]))
		}
	}
}

// refusedFor reports whether a version that binds for the request refuses in the decision of its call.
func refusedFor(x *rules.Index, req *rules.Request, d enforce.Decision) bool {
	for _, hit := range x.Lookup(req, nil) {
		for _, o := range d.Outcomes {
			if o.Version == hit.Binding && o.Outcome == tally.Refused && sameKey(&o.Version.Spec, o.Request, req) {
				return true
			}
		}
	}
	return false
}

// sameKey reports whether two requests have the same key, and the spec applies to the second one.
func sameKey(s *rules.Spec, a, b *rules.Request) bool {
	key := rules.KeyOf(s, b)
	return bytes.Equal(rules.KeyOf(s, a).Encoded(), key.Encoded()) && (!key.Missing() || s.Missing(b) != rules.MissingSkip)
}

// Requests that bring a rate along are decided as if every limit of the rules had that one. With the window of a limit they
// meet what others spent of it, so the windows are none of the rules'.
func givenRates(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	rate, err := rules.GivenRate(rapid.Int64Range(0, 6).Draw(t, "amount"), pick(g, "window", 2*time.Second, 5*time.Minute, 4*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	list := g.rules()
	var having []*rules.Rule
	for _, r := range list {
		with := *r
		for _, v := range []**rules.Version{&with.Stable, &with.Candidate} {
			if *v == nil {
				continue
			}
			edited := **v
			edited.Spec.Limits = nil
			for _, l := range (*v).Spec.Limits {
				edited.Spec.Limits = append(edited.Spec.Limits, rules.Limit{Name: l.Name, Algorithm: l.Algorithm, Rate: rate})
			}
			*v = &edited
		}
		having = append(having, &with)
	}
	given, had := newStage(open(), list...), newStage(open(), having...)
	for i, c := range g.calls(n) {
		want := had.decide(c)
		req := *c.req
		req.Given = &rate
		got := given.decide(call{after: c.after, req: &req})
		if diff := cmp.Diff(withoutWhatIf(want), withoutWhatIf(got)); diff != "" {
			t.Fatalf("call %d by rules that have the rate (-), by requests that bring it (+):\n%s", i, diff)
		}
		for _, r := range list {
			for _, number := range []int64{1, 2} {
				if got, want := refusedBy(got, number, r.Name), refusedBy(want, number, r.Name); got != want {
					t.Fatalf("call %d: v%d of %s says %s, want %s", i, number, r.Name, got, want)
				}
			}
		}
	}
}

func TestRatesThatRequestsBringKeepToTheBounds(t *testing.T) {
	t.Parallel()
	for amount, windows := range map[int64]map[time.Duration]bool{
		0:           {time.Second: true, 366 * 24 * time.Hour: true, 367 * 24 * time.Hour: false, time.Millisecond: false, 0: false},
		90_000_000:  {time.Second: true, 366 * 24 * time.Hour: true, -time.Second: false},
		100_000_000: {time.Second: true, 365 * 24 * time.Hour: false},
	} {
		for window, ok := range windows {
			if _, err := rules.GivenRate(amount, window); (err == nil) != ok {
				t.Errorf("%d per %v: %v, want accepted %v", amount, window, err, ok)
			}
		}
	}
}

// What only is judged has no status: neither a frozen rule nor a version in shadow.
func TestStatusOfWhatDoesNotBind(t *testing.T) {
	t.Parallel()
	b := setup(rule("frozen", version(t, 1, "5/s"), nil), rule("shadow", nil, version(t, 1, "5/s")))
	if err := b.engine.Freeze("d", rules.Freeze{Rule: "frozen", Until: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	statuses := make([]enforce.Status, 1)
	if d := b.engine.DecideEach(t.Context(), []*rules.Request{request("k")}, statuses); !d.Allowed || statuses[0] != (enforce.Status{}) {
		t.Errorf("allowed %v with %+v", d.Allowed, statuses[0])
	}
}
