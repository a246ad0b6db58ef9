package rollout_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally"
)

// However often the leader dies, and at whichever of its calls, the next one goes on where the plan is.
func TestPlanSurvivesTheDeathOfItsLeader(t *testing.T) {
	for _, after := range []bool{false, true} {
		for call := 1; call <= 12; call++ {
			synctest.Test(t, func(t *testing.T) {
				p := newPlanned(t)
				p.start("", "1% 30s, 10% 30s, 50% 30s, 100%", "maxWouldRefuse 2%")
				deaths := 0
				for range 40 {
					p.tick()
					ctx, die := context.WithCancel(p.ctx())
					leader := p.newRunner(&mortal{Memory: p.memory, calls: call, after: after, die: die})
					if err := leader.Look(ctx); err != nil {
						deaths++
					}
					die()
					p.look() // by the next one
				}
				if deaths == 0 && call < 6 {
					t.Errorf("nobody died at call %d", call)
				}
				if got := p.percents(); !slices.Equal(got, []rules.Percent{0, 100, 1000, 5000, 10000}) || p.done() != 1 {
					t.Errorf("died at call %d (after it: %t): it went through %v, done %d times", call, after, got, p.done())
				}
				p.stepsAreRight()
			})
		}
	}
}

func TestTwoLeadersTakeEachStepOnce(t *testing.T) {
	virtually(t, func(p *planned) {
		p.start("", "1% 30s, 10% 30s, 50% 30s, 100%", "maxWouldRefuse 2%")
		leaders := []*rollout.Runner{p.newRunner(p.memory), p.newRunner(p.memory), p.newRunner(p.memory)}
		for range 30 {
			p.tick()
			var all sync.WaitGroup
			for _, l := range leaders {
				all.Go(func() {
					if err := l.Look(p.ctx()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		if got := p.percents(); !slices.Equal(got, []rules.Percent{0, 100, 1000, 5000, 10000}) || p.done() != 1 {
			t.Errorf("it went through %v, done %d times", got, p.done())
		}
		p.stepsAreRight()
	})
}

// A stale judgement is of a rule that somebody changed since.
func TestPlanThatWasChangedMeanwhileIsLeftAlone(t *testing.T) {
	virtually(t, func(p *planned) {
		p.start("", "1% 30s, 100%", "maxWouldRefuse 2%")
		for range 4 {
			p.tick()
		}
		late := p.newRunner(&between{Memory: p.memory, do: func() { p.resume() }})
		if err := late.Look(p.ctx()); err != nil {
			t.Fatal(err)
		}
		p.wants("v2 at 1%, step 1 of 2, beside stable v1", "running")
	})
}

// between does something before the first commit.
type between struct {
	*rollouttest.Memory
	once sync.Once
	do   func()
}

func (b *between) Commit(ctx context.Context, domain string, decide func(rollout.Tx) (*rollout.Change, error)) (int64, error) {
	b.once.Do(b.do)
	return b.Memory.Commit(ctx, domain, decide)
}

// A clock that jumps makes no step shorter.
func TestClockThatJumpsShortensNoStep(t *testing.T) {
	for name, jump := range map[string]time.Duration{"ahead": 24 * time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(p *planned) {
				p.start("", "1% 15m, 10% 15m, 100%", "maxWouldRefuse 2%")
				p.pass(5 * time.Minute)
				p.jump = jump
				p.pass(10*time.Minute - 2*tally.Span)
				if got := p.rule().Percent; got != 100 {
					t.Fatalf("it is at %s after less than 15 minutes", got)
				}
				p.pass(3 * time.Hour)
				if got := p.percents(); !slices.Equal(got, []rules.Percent{0, 100, 1000, 10000}) {
					t.Errorf("it went through %v", got)
				}
			})
		})
	}
}

func TestRunnerLooksAgainAndAgain(t *testing.T) {
	virtually(t, func(p *planned) {
		p.start("", "1% 15s, 100%", "maxWouldRefuse 2%")
		ctx, stop := context.WithCancel(p.ctx())
		ended := make(chan error, 1)
		go func() { ended <- p.runner.Run(ctx) }()
		p.tick()
		p.memory.Fail(errors.New("away"))
		wait(time.Minute)
		p.memory.Fail(nil)
		for range 4 {
			p.tick()
		}
		synctest.Wait()
		p.wants("v2 stable", "done")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// stepsAreRight checks what a plan's life may be: each step of its plan, in its order, by one revision each.
func (p *planned) stepsAreRight() {
	p.t.Helper()
	var last *rules.Course
	for _, e := range p.history() {
		c := e.Rule.Course
		if c == nil {
			last = nil
			continue
		}
		at := e.Rule.Percent
		if e.Rule.Candidate == nil {
			at = rules.AllKeys
		}
		if at != c.At().Percent {
			p.t.Fatalf("revision %d is at %s, and its plan in %s", e.Rule.Revision, at, c.At())
		}
		switch {
		case last == nil || last.Begun != c.Begun:
			if c.Step != 0 {
				p.t.Fatalf("revision %d begins a plan in %s", e.Rule.Revision, c)
			}
		case c.Step != last.Step && c.Step != last.Step+1, c.Step == last.Step+1 && c.Since.Sub(last.Since) < last.At().Hold && e.Actor.Name != "bob":
			p.t.Fatalf("revision %d by %s takes it from %s (since %s) to %s (since %s)", e.Rule.Revision, e.Actor.Name, last, last.Since, c, c.Since)
		case c.Step == last.Step && e.Action == rollout.ActionPromote:
			p.t.Fatalf("revision %d repeats %s", e.Rule.Revision, c)
		}
		last = c
	}
}

// The law: whatever happens, the percentages of a plan's life are its steps, in order, and each only when its time was over.
func TestPercentagesOfAPlansLifeAreItsSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SampledFrom([]string{"shadow 40s, 1% 30s, 100%", "+30% 20s", "+20% 1m, max 50%", "5% 10s, 6% 10s, 7% 10s, 8%", "100%"}).Draw(rt, "plan")
		onTrip := rapid.SampledFrom([]string{"pause", "rollback"}).Draw(rt, "on trip")
		synctest.Test(t, func(t *testing.T) {
			p := newPlanned(t)
			p.start(onTrip, steps, "maxWouldRefuse 2%")
			for range rapid.IntRange(1, 40).Draw(rt, "ticks") {
				p.judged = rapid.SampledFrom([]int64{100, 100, 100, 0, 10}).Draw(rt, "judged")
				p.refused = min(p.judged, rapid.SampledFrom([]int64{0, 0, 0, 0, 1, 30}).Draw(rt, "refused"))
				p.silent["n2"] = rapid.IntRange(0, 5).Draw(rt, "silent") == 0
				p.tick()
				somebodyActs(rt, p)
				before := p.rule()
				if err := p.newOrOld(rt).Look(p.ctx()); err != nil && !errors.Is(err, errDead) {
					t.Fatal(err)
				}
				if was, is := before.Course, p.rule().Course; was != nil && is != nil && is.Step > was.Step {
					p.wasReported(was)
				}
			}
			p.stepsAreRight()
		})
	})
}

// wasReported checks that all is known that was counted in a step.
func (p *planned) wasReported(c *rules.Course) {
	p.t.Helper()
	for _, s := range p.tallies.sources {
		if end := c.Since.Add(c.At().Hold); s.Until.Before(end) {
			p.t.Fatalf("it left %s, which ended at %s, when %s had reported until %s", c, end, s.Node, s.Until)
		}
	}
}

// newOrOld is the leader, another one, or one that will die.
func (p *planned) newOrOld(rt *rapid.T) *rollout.Runner {
	switch rapid.IntRange(0, 5).Draw(rt, "leader") {
	case 0:
		p.runner = p.newRunner(p.memory)
	case 1:
		return p.newRunner(&mortal{
			Memory: p.memory, calls: rapid.IntRange(1, 12).Draw(rt, "dies at"), after: rapid.Bool().Draw(rt, "after"), die: func() {},
		})
	}
	return p.runner
}

// somebodyActs now and then.
func somebodyActs(rt *rapid.T, p *planned) {
	var err error
	switch rapid.IntRange(0, 20).Draw(rt, "somebody") {
	case 0:
		_, err = p.service.Pause(p.ctx(), "d", "r", somebody)
	case 1, 2:
		_, err = p.service.Resume(p.ctx(), "d", "r", somebody)
	case 3:
		_, err = p.service.PromoteBy(p.ctx(), "d", "r", rollout.Promotion{Next: true, Force: true}, somebody)
	case 4:
		_, err = p.service.Freeze(p.ctx(), "d", rollout.Freeze{Rule: "r", For: 30 * time.Second}, somebody)
	}
	if err != nil && !errors.Is(err, rules.ErrConflict) {
		p.t.Fatal(err)
	}
}
