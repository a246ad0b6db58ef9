package rollout_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
)

func containsText(text, part string) bool { return strings.Contains(text, part) }

// virtually runs a test on virtual time.
func virtually(t *testing.T, test func(*planned)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(newPlanned(t)) })
}

// C28 (a): steps that do not add up end at 100 %, and done is only what all sidecars have.
func TestPlanGoesThroughItsStepsAndIsDoneWhenAllSidecarsHaveTheLast(t *testing.T) {
	virtually(t, func(p *planned) {
		p.start("", "+30% 15m", "maxWouldRefuse 2%", "maxDelta 1%")
		p.wants("v2 at 30%, step 1 of 4, beside stable v1", "running")
		p.pass(15*time.Minute - tally.Span)
		p.wants("v2 at 30%, step 1 of 4, beside stable v1", "running")
		p.pass(2 * tally.Span)
		p.wants("v2 at 60%, step 2 of 4, beside stable v1", "running")
		p.pass(16 * time.Minute)
		p.wants("v2 at 90%, step 3 of 4, beside stable v1", "running")
		p.pass(13 * time.Minute)
		p.deaf["n2"] = true
		p.pass(3 * time.Minute)
		// n2 is not gone yet: it is waited for, and heard of.
		p.wants("v2 stable", "finishing", "sidecar n2 is away")
		if p.done() != 0 {
			t.Error("it is done before n2 has it")
		}
		p.deaf["n2"] = false
		p.pass(time.Minute)
		p.wants("v2 stable", "done")
		p.runner = p.newRunner(p.memory)
		p.pass(time.Minute)
		if n := p.done(); n != 1 {
			t.Errorf("it is recorded as done %d times, want once", n)
		}
		if diff := cmp.Diff([]rules.Percent{0, 3000, 6000, 9000, 10000}, p.percents()); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		last := p.history()[len(p.history())-1]
		if last.Actor.Name != "plan of ann" || last.Action != rollout.ActionPromote || !strings.Contains(last.Message, "step 3 of 4 passed, on to 100%: maxWouldRefuse 2%: pass") {
			t.Errorf("the last step is of %+v: %s %q", last.Actor, last.Action, last.Message)
		}
	})
}

func TestPlanEndsWhereItsMostIs(t *testing.T) {
	virtually(t, func(p *planned) {
		p.start("", "+20% 1m, max 50%", "maxWouldRefuse 2%")
		p.pass(time.Hour)
		p.wants("v2 at 50%, step 3 of 3, beside stable v1", "done")
		if got := p.percents(); !slices.Equal(got, []rules.Percent{0, 2000, 4000, 5000}) || p.done() != 1 {
			t.Errorf("it went through %v, done %d times; want 20, 40, 50, once", got, p.done())
		}
	})
}

// C28 (b): neither silence nor doubt ever promotes.
func TestPlanHoldsForAsLongAsNothingSpeaksForIt(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(*planned)
		wait    string
		goesOn  func(*planned)
	}{
		"no traffic":        {func(p *planned) { p.judged = 0 }, "no traffic: v2 has judged no request since", func(p *planned) { p.judged = 100 }},
		"undecided":         {func(p *planned) { p.refused = 2 }, "maxWouldRefuse 2%: undecided, it is 2%", func(p *planned) { p.refused = 0 }},
		"no reports":        {func(p *planned) { p.silent["n2"] = true }, "sidecar n2 has reported only what it counted until", func(p *planned) { p.silent["n2"] = false }},
		"frozen":            {func(p *planned) { p.freeze() }, "it is frozen until", func(p *planned) { p.unfreeze() }},
		"paused":            {func(p *planned) { p.pause() }, "it is paused", func(p *planned) { p.resume() }},
		"windows are lost":  {func(p *planned) { p.lose("n1") }, "what sidecar n1 counted from", func(p *planned) { p.resume() }},
		"a rule is refused": {func(p *planned) { p.nacks["n2"] = true }, "sidecar n2 refuses revision", func(p *planned) { p.nacks["n2"] = false }},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(p *planned) {
				p.start("rollback", "shadow 1m, 1% 15m, 10% 15m, 100%", "maxWouldRefuse 2%")
				for p.rule().Percent == 0 {
					p.pass(tally.Span)
				}
				c.trouble(p)
				p.pass(time.Hour)
				st := p.status()
				if !strings.HasPrefix(st.Rule.State(), "v2 at 1%, step 2 of 4") || st.Standing() != "holding" && st.Standing() != "paused" ||
					!slices.ContainsFunc(st.Plan.Waits, func(w string) bool { return strings.Contains(w, c.wait) }) {
					t.Fatalf("it is %s, %s, and waits for %q; want that it holds for %q", st.Rule.State(), st.Standing(), st.Plan.Waits, c.wait)
				}
				c.goesOn(p)
				p.pass(20 * time.Minute)
				if strings.HasPrefix(p.rule().State(), "v2 at 1%") && name != "undecided" { // old doubt weighs on
					st := p.status()
					t.Errorf("it does not go on after the trouble: %s, it waits for %q", st.Rule.State(), st.Plan.Waits)
				}
				if _, err := p.service.Rollback(p.ctx(), "d", "r", 0, somebody); err != nil || p.rule().State() != "v1 stable" {
					t.Errorf("rollback: %v, it is %s", err, p.rule().State())
				}
				p.pass(time.Hour)
				if p.rule().State() != "v1 stable" {
					t.Errorf("after a rollback it became %s", p.rule().State())
				}
			})
		})
	}
}

// Whoever froze a rule in an incident may be busy when that ends: callers are refused again, and not more of them at once.
func TestStepBeginsAnewWhenAFreezeEnds(t *testing.T) {
	virtually(t, func(p *planned) {
		p.start("rollback", "1% 15m, 100%", "maxWouldRefuse 2%")
		p.pass(5 * time.Minute)
		if _, err := p.service.Freeze(p.ctx(), "d", rollout.Freeze{For: time.Hour}, somebody); err != nil {
			t.Fatal(err)
		}
		p.pass(time.Hour + 14*time.Minute)
		p.wants("v2 at 1%, step 1 of 2, beside stable v1", "running")
		p.runner = p.newRunner(p.memory) // another leader
		p.pass(30 * time.Second)
		p.wants("v2 at 1%, step 1 of 2, beside stable v1", "running")
		p.pass(2 * time.Minute)
		p.wants("v2 stable", "done")
	})
}

func (p *planned) freeze() {
	if _, err := p.service.Freeze(p.ctx(), "d", rollout.Freeze{Rule: "r", For: 24 * time.Hour}, somebody); err != nil {
		p.t.Fatal(err)
	}
}

func (p *planned) unfreeze() {
	if _, err := p.service.Unfreeze(p.ctx(), "d", "r", somebody); err != nil {
		p.t.Fatal(err)
	}
}

func (p *planned) pause() {
	if _, err := p.service.Pause(p.ctx(), "d", "r", somebody); err != nil {
		p.t.Fatal(err)
	}
}

func (p *planned) resume() {
	if _, err := p.service.Resume(p.ctx(), "d", "r", somebody); err != nil {
		p.t.Fatal(err)
	}
}

func (p *planned) lose(node string) {
	p.tallies.mu.Lock()
	defer p.tallies.mu.Unlock()
	p.tallies.missing = append(p.tallies.missing, tally.Missing{
		Source: tally.Source{Node: node, Epoch: "0"}, From: p.now(), To: p.now().Add(tally.Span),
	})
}

func TestTrippedGatePausesOrRollsBack(t *testing.T) {
	for onTrip, want := range map[string]string{"pause": "v2 at 1%, step 1 of 2, paused, beside stable v1", "rollback": "v1 stable"} {
		t.Run(onTrip, func(t *testing.T) {
			virtually(t, func(p *planned) {
				p.start(onTrip, "1% 15m, 100%", "maxWouldRefuse 2%")
				p.refused = 10
				p.pass(5 * time.Minute)
				last := p.history()[len(p.history())-1]
				if last.Rule.State() != want || last.Actor.Name != "plan of ann" || !strings.Contains(last.Message, "step 1 of 2 tripped: maxWouldRefuse 2%: tripped, it is 10%") {
					t.Fatalf("it is %s by %s: %q; want %s", last.Rule.State(), last.Actor.Name, last.Message, want)
				}
				if onTrip == "rollback" {
					return
				}
				p.wants(want, "tripped", "a gate tripped: maxWouldRefuse 2%: tripped")
				p.refused = 0
				p.resume()
				p.wants("v2 at 1%, step 1 of 2, beside stable v1", "running")
				p.pass(16 * time.Minute)
				p.wants("v2 stable", "done")
			})
		})
	}
}

// The shadow that was there before the plan counts; afterwards only what came since the step began.
func TestEvidenceIsOfTheStep(t *testing.T) {
	virtually(t, func(p *planned) {
		p.refused = 10
		p.pass(time.Hour)
		plan, err := rules.NewPlan("shadow 1h, 50% 15m, 100%", []string{"maxWouldRefuse 2%"}, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.service.PromoteBy(p.ctx(), "d", "r", rollout.Promotion{Plan: &plan}, ann); !errors.Is(err, rules.ErrGuarded) {
			t.Fatalf("start a plan whose gate has tripped already: %v, want that it is guarded", err)
		}
		p.promote(rollout.Promotion{Plan: &plan, Force: true})
		p.pass(tally.Span)
		p.wants("v2 in shadow, step 1 of 3, paused, beside stable v1", "tripped")
		p.refused = 0
		p.resume()
		p.pass(61 * time.Minute)
		p.wants("v2 at 50%, step 2 of 3, beside stable v1", "running")
		if st := p.status(); st.Evidence.Refusing != 0 || st.Evidence.From.Before(st.Rule.Course.Since) {
			t.Errorf("the evidence of the second step is %+v, of a step since %s", st.Evidence, st.Rule.Course.Since)
		}
	})
}

// A candidate's first window began before it did, and holds nothing else of it; a step's first window holds what came before.
func TestEvidenceOfANewCandidateBeginsWithItsFirstRequest(t *testing.T) {
	virtually(t, func(p *planned) {
		wait(3 * time.Second)
		proposal := rollout.Proposal{Rules: []rules.NamedSpec{{Name: "r", Spec: spec(25)}}}
		if _, err := p.service.Apply(p.ctx(), "d", proposal, ann); err != nil {
			t.Fatal(err)
		}
		c := tally.Counts{}
		c[tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false)] = 7
		p.tallies.points = []tally.Point{{Domain: "d", UID: p.uid, Version: 3, Start: p.now().Truncate(tally.Span), Counts: c}}
		if n := p.status().Evidence.Judged; n != 7 {
			t.Errorf("in shadow it has judged %d requests, want 7", n)
		}
		wait(time.Second)
		p.promote(rollout.Promotion{To: 5000})
		if n := p.status().Evidence.Judged; n != 0 {
			t.Errorf("at 50%% it has judged %d requests, of a window that began in shadow", n)
		}
		if from := p.status().Evidence.From; from.After(p.now()) {
			t.Errorf("evidence since %s, at %s", from, p.now())
		}
	})
}

func TestShadowBeforeThePlanCountsForItsShadow(t *testing.T) {
	virtually(t, func(p *planned) {
		p.pass(2 * time.Hour)
		p.start("", "shadow 1h, 50% 15m, 100%", "maxWouldRefuse 2%")
		p.pass(tally.Span)
		p.wants("v2 at 50%, step 2 of 3, beside stable v1", "running")
	})
}

func TestPeopleTakeOverFromAPlan(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*planned) error
		want string
	}{
		"next": {func(p *planned) error {
			_, err := p.service.PromoteBy(p.ctx(), "d", "r", rollout.Promotion{Next: true}, somebody)
			return err
		}, "v2 at 10%, step 2 of 3, beside stable v1"},
		"a percentage": {func(p *planned) error {
			_, err := p.service.PromoteBy(p.ctx(), "d", "r", rollout.Promotion{To: 2000}, somebody)
			return err
		}, "v2 at 20% beside stable v1"},
		"the same percentage": {func(p *planned) error {
			_, err := p.service.PromoteBy(p.ctx(), "d", "r", rollout.Promotion{To: 100}, somebody)
			return err
		}, "v2 at 1% beside stable v1"},
		"abort": {func(p *planned) error {
			_, err := p.service.Promote(p.ctx(), "d", "r", 0, somebody)
			return err
		}, "v2 in shadow beside stable v1"},
		"rollback": {func(p *planned) error {
			_, err := p.service.Rollback(p.ctx(), "d", "r", 0, somebody)
			return err
		}, "v1 stable"},
		"delete": {func(p *planned) error {
			_, err := p.service.Delete(p.ctx(), "d", "r", somebody)
			return err
		}, "deleted"},
		"another plan": {func(p *planned) error {
			plan, err := rules.NewPlan("5% 1h, 6%", nil, "")
			if err == nil {
				_, err = p.service.PromoteBy(p.ctx(), "d", "r", rollout.Promotion{Plan: &plan}, somebody)
			}
			return err
		}, "v2 at 5%, step 1 of 2, beside stable v1"},
		"another text": {func(p *planned) error {
			_, err := p.service.Apply(p.ctx(), "d", rollout.Proposal{Rules: []rules.NamedSpec{{Name: "r", Spec: described(spec(50), "new")}}}, somebody)
			return err
		}, "v3 at 1%, step 1 of 3, beside stable v1"},
		"another spec": {func(p *planned) error {
			_, err := p.service.Apply(p.ctx(), "d", rollout.Proposal{Replace: true, Rules: []rules.NamedSpec{{Name: "r", Spec: spec(60)}}}, somebody)
			return err
		}, "v3 in shadow beside stable v1"},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(p *planned) {
				p.start("", "1% 15m, 10% 30m, 100%", "maxWouldRefuse 2%")
				p.pass(14 * time.Minute)
				if err := c.do(p); err != nil {
					t.Fatal(err)
				}
				if got := p.rule().State(); got != c.want {
					t.Fatalf("it is %s, want %s", got, c.want)
				}
				p.pass(10 * time.Minute) // a step that began anew is not over
				if got := p.rule().State(); got != c.want {
					t.Errorf("it went on to %s", got)
				}
			})
		})
	}
}

func TestRollbackEndsAPlanInShadowWithoutAStable(t *testing.T) {
	t.Parallel()
	plan, err := rules.NewPlan("shadow 1h, 100%", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, op := range map[string]rollout.Operation{"rollback": rollout.Rollback{}, "abort": rollout.Promote{}, "restore": rollout.Restore{}} {
		l := begin(t).do(apply(100), rollout.StartPlan{Plan: plan, By: rollout.Actor{Name: "ann"}})
		l.wants("v1 in shadow, step 1 of 2, with no stable version")
		l.do(op)
		if l.wants("v1 in shadow with no stable version"); l.is.Rule.Course != nil {
			t.Errorf("%s leaves the plan", name)
		}
	}
}

func TestStartPlanIsRefusedWhereItDoesNotFit(t *testing.T) {
	t.Parallel()
	plan, err := rules.NewPlan("10% 1h, 100%", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	start := rollout.StartPlan{Plan: plan}
	for name, c := range map[string]struct {
		ops  []rollout.Operation
		hint string
	}{
		"no candidate": {[]rollout.Operation{apply(100), promote(100)}, "no candidate"},
		"further":      {[]rollout.Operation{apply(100), promote(11)}, "only goes up"},
		"paused":       {[]rollout.Operation{apply(100), rollout.Pause{}}, "resumed"},
		"deleted":      {[]rollout.Operation{apply(100), rollout.Delete{}}, "rollback restores it"},
	} {
		l := begin(t).do(c.ops...)
		if _, err := l.try(start); !errors.Is(err, rules.ErrConflict) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%s: %v, want a conflict with %q", name, err, c.hint)
		}
	}
	l := begin(t).do(apply(100), start)
	for _, op := range []rollout.Operation{
		rollout.Advance{Begun: 1, From: 0}, rollout.Advance{Begun: 2, From: 1}, rollout.Trip{Begun: 1}, rollout.Trip{Begun: 2, From: 1},
	} {
		if _, err := l.try(op); !errors.Is(err, rules.ErrConflict) {
			t.Errorf("%+v of a plan begun at 2 in its first step: %v, want a conflict", op, err)
		}
	}
	l.do(rollout.Advance{Begun: 2, From: 0}).wants("v1 stable")
	if _, err := l.try(rollout.Advance{Begun: 2, From: 1}); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("beyond the last step: %v, want a conflict", err)
	}
}

func TestGateStopsWhoPromotesByHand(t *testing.T) {
	virtually(t, func(p *planned) {
		gates, err := rules.ParseGates("maxWouldRefuse 2%")
		if err != nil {
			t.Fatal(err)
		}
		promote := func(p *planned, how rollout.Promotion, why rollout.Why) error {
			_, err := p.service.PromoteBy(p.ctx(), "d", "r", how, why)
			return err
		}
		if err := promote(p, rollout.Promotion{To: 100, Gates: gates}, somebody); err != nil {
			t.Errorf("without evidence: %v, want that nothing stops it", err)
		}
		p.refused = 20
		p.pass(time.Minute)
		if err := promote(p, rollout.Promotion{To: 1000, Gates: gates}, somebody); !errors.Is(err, rules.ErrGuarded) || !strings.Contains(err.Error(), "--force-gate") {
			t.Errorf("%v, want that the gate stops it, and how to force it", err)
		}
		if err := promote(p, rollout.Promotion{To: 1000, Gates: gates, Force: true}, rollout.Why{Who: somebody.Who}); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%v, want that force wants a message", err)
		}
		if err := promote(p, rollout.Promotion{To: 10, Gates: gates}, somebody); err != nil {
			t.Errorf("going down: %v", err)
		}
		p.pass(time.Minute)
		if err := promote(p, rollout.Promotion{To: 1000, Gates: gates, Force: true}, somebody); err != nil {
			t.Fatal(err)
		}
		if last := p.history()[len(p.history())-1]; !strings.HasPrefix(last.Message, "I looked (by force past maxWouldRefuse 2%: tripped") {
			t.Errorf("the message is %q", last.Message)
		}
		if err := promote(p, rollout.Promotion{Next: true}, somebody); !errors.Is(err, rules.ErrConflict) {
			t.Errorf("next without a plan: %v, want a conflict", err)
		}
	})
}

// In the cohort the stable is what is only judged; what the candidate did there counts together with what it would do elsewhere.
func TestEvidenceTakesBothSidesOfTheCohortTogether(t *testing.T) {
	virtually(t, func(p *planned) {
		wait(time.Second)
		p.promote(rollout.Promotion{To: 1000})
		start := p.now().Truncate(tally.Span).Add(tally.Span)
		wait(time.Minute)
		counts := func(version int64, cells map[tally.Cell]int64) {
			point := tally.Point{Domain: "d", UID: p.uid, Version: version, Start: start}
			for cell, n := range cells {
				point.Counts[cell] = n
			}
			p.tallies.points = append(p.tallies.points, point)
		}
		counts(1, map[tally.Cell]int64{
			tally.CellAllowed: 890, tally.CellRefused + 1: 10,
			tally.WhatIfCell(tally.WouldAllow, tally.BesideRefused, false):  7,
			tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, false): 3,
			tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false):  90,
		})
		counts(2, map[tally.Cell]int64{
			tally.CellAllowed: 85, tally.CellRefused + 1: 7, tally.CellRefusedByOther: 8, tally.CellFailedOpen: 1000,
			tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, false): 50,
			tally.WhatIfCell(tally.WouldRefuse, tally.BesideRefused, true):  9,
			tally.WhatIfCell(tally.WouldAllow, tally.BesideRefused, false):  1,
			tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false):  840,
			tally.WhatIfCell(tally.Unknown, tally.BesideAllowed, false):     500,
		})
		st := p.status()
		want := rollout.Evidence{
			From: start, To: st.Now, Judged: 1000, Refusing: 57, Shared: 17, Compared: 1000, NewlyRefused: 57, NoLongerRefused: 4,
		}
		if diff := cmp.Diff(want, st.Evidence); diff != "" || !st.Evidence.Estimate() {
			t.Errorf("evidence (-want +got):\n%s", diff)
		}
		if share, ok := st.Actual(); !ok || share != 1100.0/2000 {
			t.Errorf("the candidate decided %v (%t) of the requests, want 1100 of 2000", share, ok)
		}
	})
}

// The share that a candidate has is not that of the percentage before: 0 % is not "nine percent" after a rollback.
func TestActualShareIsOfThePercentageThatStands(t *testing.T) {
	virtually(t, func(p *planned) {
		decided := func(version, n int64) {
			wait(tally.Span)
			point := tally.Point{Domain: "d", UID: p.uid, Version: version, Start: p.now().Add(-tally.Span).Truncate(tally.Span)}
			point.Counts[tally.CellAllowed] = n
			p.tallies.points = append(p.tallies.points, point)
		}
		actual := func() (float64, bool) {
			st := p.status()
			return st.Actual()
		}
		p.promote(rollout.Promotion{To: 5000})
		decided(2, 100)
		if share, ok := actual(); !ok || share != 1 {
			t.Errorf("at 50%% it decided %v (%t), want all", share, ok)
		}
		p.promote(rollout.Promotion{To: 0})
		wait(tally.Span)
		if share, ok := actual(); ok {
			t.Errorf("back in shadow it decided %v of the requests, want none of none", share)
		}
		decided(1, 100)
		if share, ok := actual(); !ok || share != 0 {
			t.Errorf("back in shadow it decided %v (%t) of the requests, want none", share, ok)
		}
	})
}
