package enforce

import (
	"math"
	"time"

	"github.com/headgate/headgate/enforce/slidingwindow"
	"github.com/headgate/headgate/enforce/tokenbucket"
	"github.com/headgate/headgate/rules"
)

// Limit are the numbers of one limit, with time in ticks: see tokenbucket.Params and slidingwindow.Params.
type Limit struct {
	Sliding bool  // sliding-window instead of token-bucket
	Amount  int64 // in one window; 0 refuses always
	Burst   int64 // what a bucket holds; of a sliding window the amount
	Ceiling int64 // the largest burst over all values of the limit
	Window  int64 // in ticks
}

// NewLimit returns the numbers of one rate of a limit.
func NewLimit(l *rules.Limit, rate rules.Rate) Limit {
	window := l.Window()
	n := Limit{
		Sliding: l.Algorithm == rules.SlidingWindow, Amount: rate.Amount, Burst: rate.Burst, Ceiling: l.Ceiling(),
		Window: int64(window / rules.Tick(window)),
	}
	if n.Amount == 0 {
		n.Burst = n.Ceiling // nothing fits in any case; what passes since nothing binds is charged whole
	}
	return n
}

// under returns the numbers with a ceiling of at least that.
func (l Limit) under(ceiling int64) Limit {
	l.Ceiling = max(l.Ceiling, ceiling)
	if l.Amount == 0 {
		l.Burst = l.Ceiling
	}
	return l
}

// overrideLimit returns the numbers of an override of a limit; without a window where it is unlimited. It takes the place
// of every value of the limit, so the counter is read as at most what it can hold itself: a lowered number locks nobody
// out for longer than one full bucket. Only one of 0, which holds nothing, must not forget what was spent.
func overrideLimit(l *rules.Limit, rate rules.Rate) Limit {
	if rate.Unlimited {
		return Limit{}
	}
	n := NewLimit(l, rate)
	if n.Amount == 0 {
		return n
	}
	if n.Sliding {
		n.Burst = n.Amount // the override was made for a bucket
	}
	n.Ceiling = n.Burst
	return n
}

// State is a stored counter. Level is a bucket's level, or the count of a sliding window, of which Previous is the count
// of the window before; Time is in ticks.
type State struct {
	Level, Previous, Time int64
}

func (l *Limit) bucket() tokenbucket.Params {
	return tokenbucket.Params{Amount: l.Amount, Burst: l.Burst, Ceiling: l.Ceiling, Window: l.Window}
}

func (l *Limit) window() slidingwindow.Params {
	return slidingwindow.Params{Amount: l.Amount, Ceiling: l.Ceiling, Window: l.Window}
}

func (s State) bucket() tokenbucket.State { return tokenbucket.State{Level: s.Level, Time: s.Time} }

func (s State) window() slidingwindow.State {
	return slidingwindow.State{Current: s.Level, Previous: s.Previous, Time: s.Time}
}

func fromBucket(s tokenbucket.State) State { return State{Level: s.Level, Time: s.Time} }

func fromWindow(s slidingwindow.State) State {
	return State{Level: s.Current, Previous: s.Previous, Time: s.Time}
}

func (l *Limit) read(s State, now int64) (State, bool) {
	if l.Sliding {
		at, stale := l.window().Read(s.window(), now)
		return fromWindow(at), stale
	}
	at, stale := l.bucket().Read(s.bucket(), now)
	return fromBucket(at), stale
}

func (l *Limit) fits(at State, cost int64) bool {
	if l.Sliding {
		return l.window().Fits(at.window(), cost)
	}
	return l.bucket().Fits(at.bucket(), cost)
}

func (l *Limit) spend(at State, cost int64) State {
	if l.Sliding {
		return fromWindow(l.window().Spend(at.window(), cost))
	}
	return fromBucket(l.bucket().Spend(at.bucket(), cost))
}

func (l *Limit) left(at State) int64 {
	if l.Sliding {
		return l.window().Left(at.window())
	}
	return l.bucket().Left(at.bucket())
}

func (l *Limit) wait(at State, now, cost int64) (int64, bool) {
	if l.Sliding {
		return l.window().Wait(at.window(), now, cost)
	}
	return l.bucket().Wait(at.bucket(), now, cost)
}

func (l *Limit) expiry(at State, now int64) int64 {
	if l.Sliding {
		return l.window().Expiry(at.window(), now)
	}
	return l.bucket().Expiry(at.bucket(), now)
}

// TicksToDuration converts a number of ticks; beyond what a Duration holds (292 years) it returns the longest one.
func TicksToDuration(ticks int64, tick time.Duration) time.Duration {
	if ticks > math.MaxInt64/int64(tick) {
		return math.MaxInt64
	}
	return time.Duration(ticks) * tick
}
