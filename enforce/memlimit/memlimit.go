// Package memlimit keeps counters in the process: for one sidecar by itself, for tests and for replays. Its verdicts are
// those of Redis, by the same law ([enforce.Settle]).
//
// One lock serialises all decisions, so that each is one atomic step; a decision holds it for about a microsecond.
// Counters are dropped once they say the same as a counter never seen: a sweep looks at a few of them with every
// decision, so memory follows the keys that are active, and no pause grows with their number. A limiter made by
// [NewBounded] has a bound on them as well: whoever comes when it is full shares a bucket with all others who do, and
// nobody is evicted, since that would be a fresh budget for somebody.
package memlimit

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/enforce"
)

// Limiter is an [enforce.Limiter] in memory.
type Limiter struct {
	start time.Time // carries the monotonic reading
	epoch int64     // start in microseconds since the Unix epoch, to which windows are aligned

	most int // counters; 0: any number

	mu       sync.Mutex
	counters map[enforce.Counter]entry
}

type entry struct {
	state   enforce.State
	expires int64 // in ticks
	tick    int64 // microseconds
}

// New returns an empty limiter.
func New() *Limiter {
	now := time.Now()
	return &Limiter{start: now, epoch: now.UnixMicro(), counters: map[enforce.Counter]entry{}}
}

// LocalCounters is a bound for the counts of a sidecar whose store is away: 100,000 counters are about 10 MB.
const LocalCounters = 100_000

// NewBounded returns an empty limiter that keeps at most that many counters, and beside them one for each set of numbers
// (amount, burst, window) that is shared by those who find it full.
func NewBounded(counters int) *Limiter {
	l := New()
	l.most = counters
	return l
}

// Forget forgets every count, and gives their memory back.
func (l *Limiter) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counters = map[enforce.Counter]entry{}
}

// Decide judges and settles the charges at the time of the monotonic clock. It never fails.
func (l *Limiter) Decide(_ context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	return l.decide(l.epoch+time.Since(l.start).Microseconds(), 0, charges), nil
}

// DecideAt judges and settles the charges at an instant in microseconds: for tests and for replays on a virtual clock.
// Counters are then kept an hour longer than they need, since such instants may go back.
func (l *Limiter) DecideAt(_ context.Context, micros int64, charges []enforce.Charge) ([]enforce.Verdict, error) {
	return l.decide(micros, time.Hour, charges), nil
}

func (l *Limiter) decide(micros int64, slack time.Duration, charges []enforce.Charge) []enforce.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	charges = l.share(charges)
	out := enforce.Settle(charges, micros, func(c enforce.Counter) (enforce.State, bool) {
		e, ok := l.counters[c]
		return e.state, ok && !e.expired(micros)
	})
	for _, w := range out.Writes {
		tick := w.Tick.Microseconds()
		expires := micros/tick + max(1, w.Expiry) + slack.Microseconds()/tick
		l.counters[w.Counter] = entry{state: w.State, expires: expires, tick: tick}
	}
	l.sweep(micros)
	return out.Verdicts
}

// share gives charges whose counters have no place a counter that is shared.
func (l *Limiter) share(charges []enforce.Charge) []enforce.Charge {
	if l.most == 0 || len(l.counters)+len(charges) <= l.most {
		return charges
	}
	charges = slices.Clone(charges)
	for i := range charges {
		c := &charges[i]
		_, actual := l.counters[c.Actual]
		_, decides := l.counters[c.Decides]
		if !actual || !decides {
			c.Actual = shared(c)
			c.Decides = c.Actual
		}
	}
	return charges
}

// shared is the counter of all who share one with the same numbers: a name that no hash has.
func shared(c *enforce.Charge) (s enforce.Counter) {
	binary.BigEndian.PutUint64(s.Tag[:8], uint64(c.Limit.Amount)) //nolint:gosec // a name
	binary.BigEndian.PutUint64(s.Tag[8:], uint64(c.Limit.Burst))  //nolint:gosec // a name
	binary.BigEndian.PutUint64(s.ID[:8], uint64(c.Limit.Window))  //nolint:gosec // a name
	binary.BigEndian.PutUint64(s.ID[8:], uint64(c.Tick))          //nolint:gosec // a name
	if c.Limit.Sliding {
		s.ID[8] = 1
	}
	return s
}

func (e entry) expired(micros int64) bool { return micros/e.tick >= e.expires }

// sweepEach is how many counters a decision looks at. A decision adds at most a few; looking at more than it adds makes
// the sweep overtake the growth.
const sweepEach = 16

// sweep drops the expired among a few counters. Go iterates a map from a random place, so all get their turn.
func (l *Limiter) sweep(micros int64) {
	n := 0
	for c, e := range l.counters {
		if e.expired(micros) {
			delete(l.counters, c)
		}
		if n++; n == sweepEach {
			return
		}
	}
}
