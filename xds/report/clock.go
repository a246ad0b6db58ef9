package report

import "time"

// clock is the wall clock, beside one that never jumps: so it is seen when it was set.
type clock struct {
	now    func() time.Time
	began  time.Time     // with a reading of the other clock
	wall   time.Time     // the last reading,
	passed time.Duration // and how long after began that was
	turns  int           // how often it was set
}

func newClock(now func() time.Time) clock {
	return clock{now: now, began: time.Now(), wall: micros(now())}
}

func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// setBy is from when on a difference is more than the clock's being slewed.
const setBy = time.Second

// read returns the time, and by how much the clock was set since the last reading; 0 when it was not.
func (c *clock) read() (now time.Time, by time.Duration) {
	now, passed := micros(c.now()), time.Since(c.began)
	if by = now.Sub(c.kept()); by.Abs() < setBy {
		by = 0
	} else {
		c.turns++
	}
	c.wall, c.passed = now, passed
	return now, by
}

// kept is what the clock shows when it was not set since the last reading.
func (c *clock) kept() time.Time { return c.wall.Add(time.Since(c.began) - c.passed) }
