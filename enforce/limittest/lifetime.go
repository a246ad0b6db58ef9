package limittest

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/enforce"
)

// slack is how much longer a counter lives that was written at a given instant.
const slack = time.Hour

// rounding asks for lifetimes to be rounded up (CASES C10 c): a counter that vanishes a moment too early hands out what is
// not yet refilled. The clock of a store runs on between the write and the look at it, so the longest of a few is taken.
func rounding(ctx context.Context, l Limiter) error {
	k, ok := l.(Keeper)
	if !ok {
		return nil
	}
	// 5 tokens of 1,000,000 units, of which 3,000 drain in each microsecond: 1,666.7 ticks.
	charge := enforce.Charge{
		Cost: 5, Owns: true, Limit: enforce.Limit{Amount: 3_000, Burst: 3_000, Ceiling: 3_000, Window: 1_000_000}, Tick: time.Microsecond,
	}
	const want = slack + 1_667*time.Microsecond
	var longest time.Duration
	for range 300 {
		charge.Actual = NewCounter()
		charge.Decides = charge.Actual
		if _, err := l.DecideAt(ctx, Start, []enforce.Charge{charge}); err != nil {
			return err
		}
		kept, err := k.Lifetimes(ctx, Start, []enforce.Counter{charge.Actual})
		if err != nil {
			return err
		}
		if longest = max(longest, kept[0]); longest >= want {
			return nil
		}
	}
	return fmt.Errorf("a counter lives for %v at most, want at least %v", longest, want)
}

// checkLifetimes compares how long counters just written are kept with what Settle asks for: never shorter than they have
// something to tell, and no more than a millisecond longer. Since is the time before they were written, by the clock that
// a store may go by.
func checkLifetimes(ctx context.Context, k Keeper, now int64, since time.Time, writes []enforce.Write) error {
	if len(writes) == 0 {
		return nil
	}
	counters := make([]enforce.Counter, len(writes))
	for i := range writes {
		counters[i] = writes[i].Counter
	}
	kept, err := k.Lifetimes(ctx, now, counters)
	if err != nil {
		return err
	}
	passed := time.Since(since) + time.Millisecond // lifetimes may be given in whole milliseconds
	for i, w := range writes {
		// It says nothing any more from the first instant of a tick on, of which some has passed already.
		ends := enforce.TicksToDuration(w.Expiry, w.Tick) - time.Duration(now%w.Tick.Microseconds())*time.Microsecond
		least := max(0, ends) + slack - passed
		most := enforce.TicksToDuration(max(1, w.Expiry), w.Tick) + slack + time.Millisecond
		if kept[i] < least || kept[i] > most {
			return fmt.Errorf("counter %d is kept for %v, want %v to %v: %+v", i, kept[i], least, most, w)
		}
	}
	return nil
}
