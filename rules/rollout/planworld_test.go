package rollout_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally"
)

// counted is what sidecars counted and reported.
type counted struct {
	mu      sync.Mutex
	points  []tally.Point
	sources []tally.Progress
	missing []tally.Missing
}

func (c *counted) Series(_ context.Context, q tally.Query) (list []tally.Point, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.points {
		if slices.Contains(q.UIDs, p.UID) && !p.Start.Before(q.From) && p.Start.Before(q.To) {
			list = append(list, p)
		}
	}
	return list, nil
}

func (c *counted) Sources(context.Context) ([]tally.Progress, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sources), nil
}

func (c *counted) Missing(_ context.Context, from, to time.Time) (list []tally.Missing, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.missing {
		if m.From.Before(to) && m.To.After(from) {
			list = append(list, m)
		}
	}
	return list, nil
}

// planned is a rule with a stable v1 and a candidate v2 in shadow, its two sidecars and their callers, on virtual time.
type planned struct {
	t       testing.TB
	memory  *rollouttest.Memory
	tallies *counted
	service *rollout.Service
	runner  *rollout.Runner
	uid     string
	jump    time.Duration // by how much the clock of the day is wrong

	judged, refused int64 // by v2, of every ten seconds
	silent, deaf    map[string]bool
	nacks           map[string]bool // sidecars that refuse the newest revision
}

func newPlanned(t testing.TB) *planned {
	p := &planned{
		t: t, memory: rollouttest.New(), tallies: &counted{}, judged: 100,
		silent: map[string]bool{}, deaf: map[string]bool{}, nacks: map[string]bool{},
	}
	p.service = rollout.NewService(p.memory, p.now).WithTallies(p.tallies)
	p.runner = p.newRunner(p.memory)
	for _, amount := range []int64{100, 50} {
		proposal := rollout.Proposal{Rules: []rules.NamedSpec{{Name: "r", Spec: spec(amount)}}}
		if _, err := p.service.Apply(p.ctx(), "d", proposal, ann); err != nil {
			t.Fatal(err)
		}
		if amount == 100 {
			p.promote(rollout.Promotion{To: rules.AllKeys})
		}
	}
	p.uid = p.rule().UID
	p.report()
	return p
}

func (p *planned) ctx() context.Context { return p.t.Context() }

func (p *planned) now() time.Time { return time.Now().Add(p.jump) }

func (p *planned) newRunner(store rollout.Store) *rollout.Runner {
	return rollout.NewRunner(rollout.NewService(store, p.now).WithTallies(p.tallies), slog.New(slog.DiscardHandler))
}

func (p *planned) promote(how rollout.Promotion) {
	p.t.Helper()
	if _, err := p.service.PromoteBy(p.ctx(), "d", "r", how, ann); err != nil {
		p.t.Fatal(err)
	}
}

// start starts a plan.
func (p *planned) start(onTrip, steps string, gates ...string) {
	p.t.Helper()
	plan, err := rules.NewPlan(steps, gates, onTrip)
	if err != nil {
		p.t.Fatal(err)
	}
	p.promote(rollout.Promotion{Plan: &plan})
}

func (p *planned) history() []rollout.Entry {
	p.t.Helper()
	history, err := p.memory.History(p.ctx(), "d", "r")
	if err != nil {
		p.t.Fatal(err)
	}
	return history
}

func (p *planned) rule() *rules.Rule {
	history := p.history()
	return &history[len(history)-1].Rule
}

// report lets the sidecars, but those that are deaf or silent, acknowledge what there is and report until now.
func (p *planned) report() {
	p.t.Helper()
	head, err := p.memory.Head(p.ctx())
	if err != nil {
		p.t.Fatal(err)
	}
	p.tallies.mu.Lock()
	defer p.tallies.mu.Unlock()
	for _, id := range []string{"n1", "n2"} {
		if !p.deaf[id] {
			n := rollout.Node{ID: id, Domain: "d", Connected: true, Stream: 1, Seen: p.now(), Lineage: head.Lineage, Sent: head.Revision, Acked: head.Revision}
			if p.nacks[id] {
				n.Acked, n.Nacked, n.NackReason, n.Refused = head.Revision-1, head.Revision, "HG0107: no", []string{"r"}
			}
			if err := p.memory.SaveNodes(p.ctx(), []rollout.Node{n}); err != nil {
				p.t.Fatal(err)
			}
		}
		if p.silent[id] {
			continue
		}
		state := tally.Progress{Source: tally.Source{Node: id, Epoch: "e"}, Until: p.now().Truncate(tally.Span)}
		if at := slices.IndexFunc(p.tallies.sources, func(s tally.Progress) bool { return s.Node == id }); at >= 0 {
			p.tallies.sources[at] = state
		} else {
			p.tallies.sources = append(p.tallies.sources, state)
		}
	}
}

// count counts what v2 judged in the ten seconds that are over.
func (p *planned) count() {
	if p.judged == 0 {
		return
	}
	c := tally.Counts{}
	c[tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, false)] = p.refused
	c[tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false)] = p.judged - p.refused
	p.tallies.mu.Lock()
	defer p.tallies.mu.Unlock()
	p.tallies.points = append(p.tallies.points, tally.Point{
		Domain: "d", UID: p.uid, Version: 2, Start: p.now().Add(-tally.Span).Truncate(tally.Span), Counts: c,
	})
}

// pass lets time pass, with callers, reports and a runner that looks.
func (p *planned) pass(d time.Duration) {
	p.t.Helper()
	for range d / tally.Span {
		p.tick()
		p.look()
	}
}

func (p *planned) tick() {
	wait(tally.Span)
	p.count()
	p.report()
}

func (p *planned) look() {
	p.t.Helper()
	if err := p.runner.Look(p.ctx()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *planned) status() rollout.Status {
	p.t.Helper()
	st, err := p.service.RolloutStatus(p.ctx(), "d", "r")
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

// wants checks where the rule is, how its plan goes, and what that waits for.
func (p *planned) wants(state, standing string, waits ...string) {
	p.t.Helper()
	st := p.status()
	if st.Rule.State() != state || st.Standing() != standing {
		p.t.Fatalf("it is %q, and %s (%+v); want %q, and %s", st.Rule.State(), st.Standing(), st.Plan, state, standing)
	}
	for _, wait := range waits {
		if !slices.ContainsFunc(st.Plan.Waits, func(w string) bool { return containsText(w, wait) }) {
			p.t.Fatalf("it waits for %q, want among them %q", st.Plan.Waits, wait)
		}
	}
}

// percents are those that the rule went through, one for each change of it; 100 for a stable v2.
func (p *planned) percents() (list []rules.Percent) {
	for _, e := range p.history() {
		now := e.Rule.Percent
		switch {
		case e.Rule.Candidate == nil && e.Rule.Stable != nil && e.Rule.Stable.Number == 2:
			now = rules.AllKeys
		case e.Rule.Candidate == nil || e.Rule.Candidate.Number != 2:
			continue
		}
		if len(list) == 0 || list[len(list)-1] != now {
			list = append(list, now)
		}
	}
	return list
}

// done is how often it was recorded that the plan is done.
func (p *planned) done() (n int) {
	p.t.Helper()
	records, err := p.memory.Audit(p.ctx(), rollout.AuditQuery{Limit: 1000})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range records {
		if r.Action == rollout.ActionPlanDone {
			n++
		}
	}
	return n
}

// mortal is a store whose user dies at one of its calls: before it is made, or after, without hearing of it.
type mortal struct {
	*rollouttest.Memory
	calls int
	after bool
	die   context.CancelFunc
}

var errDead = errors.New("dead")

// at counts a call, and reports that it is the last one.
func (m *mortal) at() bool {
	m.calls--
	if m.calls == 0 {
		m.die()
	}
	return m.calls == 0
}

func lastCall[T any](m *mortal, do func() (T, error)) (T, error) {
	var none T
	if m.at() && !m.after {
		return none, errDead
	}
	if m.calls < 0 {
		return none, errDead
	}
	v, err := do()
	if m.calls == 0 {
		return none, errDead
	}
	return v, err
}

func (m *mortal) Changes(_ context.Context, since int64) (rollout.Changes, error) {
	return lastCall(m, func() (rollout.Changes, error) { return m.Memory.Changes(context.Background(), since) })
}

func (m *mortal) Domains(_ context.Context, domain string) ([]rules.Domain, error) {
	return lastCall(m, func() ([]rules.Domain, error) { return m.Memory.Domains(context.Background(), domain) })
}

func (m *mortal) Nodes(_ context.Context, domain string) ([]rollout.Node, error) {
	return lastCall(m, func() ([]rollout.Node, error) { return m.Memory.Nodes(context.Background(), domain) })
}

func (m *mortal) Head(context.Context) (rollout.Head, error) {
	return lastCall(m, func() (rollout.Head, error) { return m.Memory.Head(context.Background()) })
}

func (m *mortal) Commit(_ context.Context, domain string, decide func(rollout.Tx) (*rollout.Change, error)) (int64, error) {
	return lastCall(m, func() (int64, error) { return m.Memory.Commit(context.Background(), domain, decide) })
}

func (m *mortal) Note(_ context.Context, r rollout.Record, key string) error {
	_, err := lastCall(m, func() (struct{}, error) { return struct{}{}, m.Memory.Note(context.Background(), r, key) })
	return err
}

var somebody = rollout.Why{Who: access.Local("bob"), Message: "I looked"}

// wait moves the clock of the bubble.
func wait(d time.Duration) { <-time.After(d) }
