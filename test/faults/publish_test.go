package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/web/api/adminpb"
)

// change is one call of a publisher, and what it should make of its rules.
type change struct {
	tag   string // the message, which the audit record has
	rules []string
	acked int64               // the revision that was acknowledged; 0: no answer came, or one that nothing changed
	limit int64               // that it makes the stable one; 0: the rule has none
	is    func(*state) string // what it should be and is not; "" when it is

	revision int64 // in the audit trail; 0: it is not there
}

// state is what a rule holds, as far as the publishers change it.
type state struct {
	stable, candidate int64 // limits
	percent           uint32
}

// publisher makes one change after the other to rules of its own.
type publisher struct {
	name    string
	number  int64
	changes []*change
	next    func(ctx context.Context, p *plane) (*change, int64, error)
	restart func() // after a crash
}

func (u *publisher) tag() string { u.number++; return fmt.Sprintf("%s #%d", u.name, u.number) }

// pair returns a publisher that gives two rules the same limit, higher each time.
func pair(name string) *publisher {
	u := &publisher{name: name, restart: func() {}}
	u.next = func(ctx context.Context, p *plane) (*change, int64, error) {
		c := &change{tag: u.tag(), rules: []string{name + "-a", name + "-b"}}
		limit := u.number
		c.limit = limit
		c.is = func(s *state) string {
			if *s != (state{stable: limit}) {
				return fmt.Sprintf("the stable limit %d", limit)
			}
			return ""
		}
		revision, err := p.apply(ctx, c.tag, limit, c.rules...)
		return c, revision, err
	}
	return u
}

// trial returns a publisher that tries specs of one rule: it applies one, promotes it, and rolls it back.
func trial(name string, random *rand.Rand) *publisher {
	u := &publisher{name: name}
	step := 0
	u.restart = func() { step = 0 }
	u.next = func(ctx context.Context, p *plane) (*change, int64, error) {
		c := &change{tag: u.tag(), rules: []string{name}}
		why := &adminpb.Why{Message: c.tag}
		step++
		switch step % 3 {
		case 1:
			limit := u.number
			c.is = func(s *state) string {
				if *s != (state{candidate: limit}) {
					return fmt.Sprintf("a candidate in shadow with limit %d", limit)
				}
				return ""
			}
			answer, err := p.admin.Apply(ctx, &adminpb.ApplyRequest{Files: file(limit, name), Why: why, Replace: true, Again: true, Confirmed: true})
			if err != nil {
				return c, 0, err
			}
			return c, answer.GetOutcomes()[0].GetRevision(), nil
		case 2:
			percent := 1 + random.Uint32N(9999)
			c.is = func(s *state) string {
				if s.percent != percent {
					return fmt.Sprintf("a candidate at %d of 10000", percent)
				}
				return ""
			}
			answer, err := p.admin.Promote(ctx, &adminpb.PromoteRequest{Domain: domain, Rule: name, To: percent, Why: why})
			return c, answer.GetOutcome().GetRevision(), err
		default:
			c.is = func(s *state) string {
				if s.percent != 0 {
					return "a candidate in shadow"
				}
				return ""
			}
			answer, err := p.admin.Rollback(ctx, &adminpb.RollbackRequest{Domain: domain, Rule: name, Why: why})
			return c, answer.GetOutcome().GetRevision(), err
		}
	}
	return u
}

// publishing runs the publishers, each in a goroutine, until a call fails. A failure before the kill fails the test.
type publishing struct {
	killed  atomic.Bool
	acked   chan struct{} // one for each acknowledgement that somebody waits for
	workers sync.WaitGroup
}

func publish(p *plane, publishers []*publisher) *publishing {
	run := &publishing{acked: make(chan struct{}, 100)}
	for _, u := range publishers {
		u.restart()
		run.workers.Go(func() {
			for {
				c, revision, err := u.next(p.t.Context(), p)
				c.acked = revision
				u.changes = append(u.changes, c)
				if err != nil {
					if !run.killed.Load() {
						p.t.Errorf("%s: %v", c.tag, err)
					}
					return
				}
				select {
				case run.acked <- struct{}{}:
				default:
				}
			}
		})
	}
	return run
}

// await returns when at least n changes were acknowledged.
func (r *publishing) await(t *testing.T, n int) {
	t.Helper()
	late := time.After(patience)
	for range n {
		select {
		case <-r.acked:
		case <-late:
			t.Fatalf("fewer than %d changes were acknowledged within %v", n, patience)
		}
	}
}

// kill ends the control plane under way, and waits for the publishers.
func (r *publishing) kill(p *plane) {
	r.killed.Store(true)
	p.kill()
	r.workers.Wait()
}
