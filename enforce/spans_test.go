package enforce_test

import (
	"net/netip"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/rules"
)

// life is a rule with one limit, as people change it: its number, its stage and its text, never its window.
type life struct {
	g        generator
	rule     *rules.Rule
	previous *rules.Version // to which a rollback goes
	versions []*rules.Version
}

func newLife(g generator, keyed bool) *life {
	var s rules.Spec
	if keyed {
		k, err := rules.ParseKeySource("header:x-api-key")
		if err != nil {
			g.t.Fatal(err)
		}
		s.Key = []rules.KeySource{k}
	}
	l := rules.Limit{Algorithm: pick(g, "algorithm", rules.TokenBucket, rules.SlidingWindow)}
	l.Rate.Window = pick(g, "window", windows...)
	l.Rate = positive(g, l)
	s.Limits = []rules.Limit{l}
	life := &life{g: g, rule: rule("r", nil, nil)}
	life.rule.Stable = life.version(s)
	life.previous = life.rule.Stable
	return life
}

func positive(g generator, l rules.Limit) rules.Rate {
	r := g.rate(l.Algorithm, l.Rate.Window)
	r.Amount++
	if l.Algorithm == rules.SlidingWindow {
		r.Burst = r.Amount
	}
	return r
}

func (l *life) version(s rules.Spec) *rules.Version {
	v := &rules.Version{Number: int64(len(l.versions) + 1), Spec: s}
	l.versions = append(l.versions, v)
	return v
}

// change is what somebody does to the rule, if it can be done where it stands. Only the numbers of a proposal change what
// is admitted.
func (l *life) change() {
	r := *l.rule
	switch what := pick(l.g, "change", "propose", "promote", "finish", "abort", "roll back", "edit text"); {
	case what == "propose":
		s := r.Stable.Spec
		limit := s.Limits[0]
		limit.Rate = positive(l.g, limit)
		s.Limits = []rules.Limit{limit}
		r.Candidate, r.Percent, r.Salt = l.version(s), 0, rapid.Uint64().Draw(l.g.t, "salt")
		r.Epoch++
	case what == "promote" && r.Candidate != nil:
		r.Percent = pick(l.g, "percent", rules.Percent(2500), 5000, 7500)
	case what == "finish" && r.Candidate != nil:
		l.previous = r.Stable
		r.Stable, r.Candidate, r.Percent = r.Candidate, nil, 0
	case what == "abort":
		r.Percent = 0
		r.Epoch++
	case what == "roll back":
		if r.Candidate == nil {
			r.Stable = l.previous
		}
		r.Candidate, r.Percent = nil, 0
	case what == "edit text":
		s := r.Stable.Spec
		s.Description += "."
		s.Response.Status = 503
		s.Failure.Mode = rules.FailClosed
		r.Stable = l.version(s)
	}
	l.rule = &r
}

// largest returns the largest amount and burst of all versions there were.
func (l *life) largest() (amount, burst int64) {
	for _, v := range l.versions {
		amount, burst = max(amount, v.Spec.Limits[0].Rate.Amount), max(burst, v.Spec.Limits[0].Rate.Burst)
	}
	return amount, burst
}

func (l *life) binding(req *rules.Request) rules.Rate {
	v := l.rule.Stable
	if l.rule.InCohort(req) {
		v = l.rule.Candidate
	}
	return v.Spec.Limits[0].Rate
}

// admission is what was admitted at an instant, in ticks of a clock that never goes back.
type admission struct {
	at, cost, gaveBack int64
	lowered            int64 // by how much the number fell since the admission before
}

// appendForward adds an admission: to a counter, time never runs backwards.
func appendForward(list []admission, a admission) []admission {
	if len(list) > 0 {
		a.at = max(a.at, list[len(list)-1].at)
	}
	return append(list, a)
}

// step moves time: not at all, a little, about a window, or back: by less than a window from the latest instant, beyond
// which states are stale, and less than the hour for which limiters keep counters when instants are given.
func step(g generator, s *stage, latest int64, window time.Duration) {
	d := pick(g, "step", 0, 0, 1, window/7, window/3, window/2, window-1, window, 2*window, -1, -window/3)
	s.now = max(s.now+d.Microseconds(), latest-min(window, time.Hour).Microseconds())
}

// No span of time admits more than the algorithm allows on the ticked clock: the burst, and what one window's amount
// becomes over the span. That holds over promotions, aborts, rollbacks and edits, with the largest of the numbers, and
// over clocks that step back. A number that was lowered and raised again adds at most the difference.
func spans(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	l := newLife(g, true)
	s := newStage(open(), l.rule)
	rate := l.rule.Stable.Spec.Limits[0].Rate
	sliding := l.rule.Stable.Spec.Limits[0].Algorithm == rules.SlidingWindow
	tick := rules.Tick(rate.Window).Microseconds()
	window := rate.Window.Microseconds() / tick
	changing := g.oneIn(2, "changing")
	latest := s.now
	admitted := map[string][]admission{}
	burst := map[string]int64{} // that the last admission of the key met
	for range n {
		if changing && g.oneIn(4, "change now") {
			l.change()
			s.swap(l.rule)
		}
		step(g, s, latest, rate.Window)
		latest = max(latest, s.now)
		req := request(pick(g, "key", "a", "a", "b"))
		req.Hits = pick(g, "hits", int64(1), 1, 1, 2, 3, 0)
		if changing {
			req.Hits = pick(g, "hits given back", req.Hits, req.Hits, req.Hits, -1)
		}
		if !s.again(call{req: req}).Allowed {
			continue
		}
		key := req.Header["X-Api-Key"][0]
		now := l.binding(req).Burst
		a := admission{at: s.now / tick, cost: max(0, req.Hits), gaveBack: max(0, -req.Hits), lowered: max(0, burst[key]-now)}
		burst[key] = now
		admitted[key] = appendForward(admitted[key], a)
		most, full := l.largest()
		checkSpans(t, admitted[key], most, full, window, 0)
		if sliding && !changing {
			checkFormula(t, admitted[key], most, window)
		}
	}
}

// checkSpans checks all spans that end with the last admission.
func checkSpans(t *rapid.T, list []admission, amount, burst, window, extra int64) {
	last := list[len(list)-1]
	var sum, more int64
	for i := len(list) - 1; i >= 0; i-- {
		sum, more = sum+list[i].cost, more+list[i].gaveBack
		if allowed := burst + more + extra + amount*(last.at-list[i].at)/window; sum > allowed {
			t.Fatalf("%d admitted in %d ticks, want at most %d: %+v", sum, last.at-list[i].at, allowed, list[i:])
		}
		more += list[i].lowered
	}
}

// checkFormula checks the last admission against those before it: a window that ends with it holds at most the amount, of
// the aligned window before counted by the share that it still covers.
func checkFormula(t *rapid.T, list []admission, amount, window int64) {
	at := list[len(list)-1].at
	var current, previous int64
	for _, a := range list {
		switch at/window - a.at/window {
		case 0:
			current += a.cost
		case 1:
			previous += a.cost
		}
	}
	if used := previous*(window-at%window) + current*window; used > amount*window {
		t.Fatalf("the estimate is %d/%d, more than %d: %+v", used, window, amount, list)
	}
}

// Where one counter serves callers inside and outside of the cohort, all of them together are admitted no more than the
// larger number allows, and the cost of one call: each side asks a counter of its own, and charges the other's.
func sharedSpans(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	l := newLife(g, false)
	l.rule.Candidate = l.version(l.rule.Stable.Spec)
	limit := l.rule.Stable.Spec.Limits[0]
	limit.Rate = positive(g, limit)
	l.rule.Candidate.Spec.Limits = []rules.Limit{limit}
	l.rule.Percent, l.rule.Salt = pick(g, "percent", rules.Percent(2500), 5000, 7500), rapid.Uint64().Draw(t, "salt")
	s := newStage(open(), l.rule)
	tick := rules.Tick(limit.Rate.Window).Microseconds()
	latest := s.now
	var admitted []admission
	for range n {
		step(g, s, latest, limit.Rate.Window)
		latest = max(latest, s.now)
		req := request("")
		req.IP = netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "caller")})
		req.Hits = pick(g, "hits", int64(1), 1, 2, 3)
		if !s.again(call{req: req}).Allowed {
			continue
		}
		admitted = appendForward(admitted, admission{at: s.now / tick, cost: req.Hits})
		most, full := l.largest()
		checkSpans(t, admitted, most, full, limit.Rate.Window.Microseconds()/tick, 3)
	}
}

// Whatever is done to a rule, a caller then has at most the difference of the numbers more, and the same where the
// numbers are the same. It is looked at by a call that costs nothing.
func noFreshBudget(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	l := newLife(g, true)
	s := newStage(open(), l.rule)
	window := l.rule.Stable.Spec.Limits[0].Rate.Window
	for range n {
		step(g, s, s.now, window)
		req := request(pick(g, "key", "a", "a", "b"))
		req.Hits = pick(g, "hits", int64(1), 1, 2)
		s.again(call{req: req})
		req = request("a")
		req.Hits = 0
		was, before := l.binding(req), s.again(call{req: req})
		l.change()
		s.swap(l.rule)
		is, after := l.binding(req), s.again(call{req: req})
		if after.Left > before.Left+max(0, is.Burst-was.Burst) || is == was && after.Left != before.Left {
			t.Fatalf("%d of %s left, and %d of %s after the change to %s", before.Left, was, after.Left, is, l.rule.State())
		}
		if is.Burst >= was.Burst || after.Allowed {
			continue
		}
		// A lowered number locks nobody out for longer than one full bucket, or two windows.
		if longest := max(2*window, time.Duration(is.Burst)*window); after.Wait == enforce.Never || after.Wait > longest {
			t.Fatalf("lowered from %s to %s: a wait of %v", was, is, after.Wait)
		}
	}
}

// Raising a percentage keeps all callers of the cohort, lowering it returns exactly the earlier set, and text does not
// matter.
func cohortsStay(t *rapid.T, open func() limittest.Limiter, n int) {
	g := generator{t}
	l := newLife(g, g.oneIn(2, "keyed"))
	l.rule.Candidate = l.version(l.rule.Stable.Spec)
	l.rule.Salt = rapid.Uint64().Draw(t, "salt")
	s := newStage(open())
	var callers []*rules.Request
	for range n {
		req := request(pick(g, "key", "a", "b", "c", "d", "e", "f", "g"))
		req.IP = netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "caller")})
		callers = append(callers, req)
	}
	cohort := func(p rules.Percent) (in []bool) {
		r := *l.rule
		r.Percent = p
		s.swap(&r)
		for _, req := range callers {
			d := s.again(call{req: req})
			in = append(in, !d.Outcomes[0].WhatIf && d.Outcomes[0].Version == r.Candidate)
		}
		return in
	}
	least, most := rapid.Uint32Range(1, 9_999).Draw(t, "least"), rapid.Uint32Range(1, 9_999).Draw(t, "most")
	least, most = min(least, most), max(least, most)
	small, large := cohort(rules.Percent(least)), cohort(rules.Percent(most))
	for _, v := range []**rules.Version{&l.rule.Stable, &l.rule.Candidate} {
		edited := (*v).Spec
		edited.Description = "in other words"
		*v = l.version(edited)
	}
	if diff := cmp.Diff(small, cohort(rules.Percent(least))); diff != "" {
		t.Fatalf("the cohort of %d after an edit of text, from a cohort of %d (-want +got):\n%s", least, most, diff)
	}
	for i := range callers {
		if small[i] && !large[i] {
			t.Fatalf("caller %d is in the cohort of %d, not of %d", i, least, most)
		}
	}
}
