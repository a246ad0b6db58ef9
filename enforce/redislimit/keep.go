package redislimit

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/headgate/headgate/enforce"
)

const (
	// probeEach is how often a store that nobody asks is asked whether it answers.
	probeEach = time.Second
	// policyEach is how often it is asked for its maxmemory-policy, which somebody may change.
	policyEach = 10 * time.Minute
)

// Watch names the function that is told when the store stops to answer, and why, and when it answers again: each change
// once, in their order, on a goroutine of the limiter's.
func (l *Limiter) Watch(changed func(up bool, cause error)) {
	l.mu.Lock()
	l.watch = changed
	l.mu.Unlock()
	l.wake()
}

// wake has the keeper tell of a change.
func (l *Limiter) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// keep looks after the store until ctx ends.
func (l *Limiter) keep(ctx context.Context) {
	defer close(l.kept)
	tick := time.NewTicker(probeEach)
	defer tick.Stop()
	var policyAt time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
			if l.tell() {
				policyAt = time.Time{} // it may be another server, or another configuration
			}
		case <-tick.C:
			if !l.asked.Swap(false) {
				l.probe(ctx)
			}
			if l.up() && !time.Now().Before(policyAt) && l.checkPolicy(ctx) {
				policyAt = time.Now().Add(policyEach)
			}
		}
	}
}

func (l *Limiter) up() bool { return l.breaker.State() == gobreaker.StateClosed }

// tell tells the watcher if the store came or went since it was last told.
func (l *Limiter) tell() (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if up := l.up(); l.watch != nil && up == l.toldDown {
		l.toldDown = !up
		var cause error
		if failed := l.failed.Load(); failed != nil && !up {
			cause = *failed
		}
		l.watch(up, cause)
		return true
	}
	return false
}

// probe asks for a decision that spends nothing, of a counter that nobody else has: it takes the way of every decision,
// so it fails where they fail, on a full server and on a replica too. Its counter is gone after a millisecond.
func (l *Limiter) probe(ctx context.Context) {
	var own enforce.Counter
	_, _ = rand.Read(own.Tag[:])
	look := enforce.Charge{
		Limit: enforce.Limit{Amount: 1, Burst: 1, Ceiling: 1, Window: 1}, Tick: time.Microsecond, Decides: own, Actual: own, Owns: true,
	}
	keys, args := encode(serverClock, []enforce.Charge{look})
	_, _ = l.ask(ctx, keys, args) // the breaker keeps what comes of it
}
