// Package tokenbucket is the arithmetic of a token bucket, in integers and without a clock.
//
// A bucket stores what was spent, never what is left: a level in units of 1/W token, where W is the window in ticks. It
// drains Amount units per tick, which is Amount tokens per window, and never below zero. A cost of c tokens adds c·W and
// fits while the level stays at or below Burst·W. A key never seen has the level 0, that is, its whole burst to spend.
// The verdicts are those of GCRA (ITU-T I.371), of which this is the form without fractions.
//
// Example: 6 per 60 s with burst 6. W = 60,000 ticks of 1 ms, so a token is 60,000 units and 6 drain each tick. Six calls
// at 0 s bring the level to 360,000 = Burst·W. The seventh needs 60,000 units to drain: 10,000 ticks, a wait of 10 s. At
// 9.9 s the level is 300,600 and the call must wait 100 ticks more; at 10.0 s it is 300,000 and the call fits.
//
// The numbers stay exact: validation (package rules) keeps 2·Burst·W and 3·Amount·W below 2^53, and elapsed time is cut
// to what empties the bucket before it is multiplied. The same arithmetic in Lua (package redislimit) therefore agrees
// unit for unit.
//
// All functions are pure.
package tokenbucket

// Params are a bucket's numbers.
type Params struct {
	Amount int64 // tokens that drain in one window; 0 refuses always
	Burst  int64 // tokens it holds
	// Ceiling is the largest burst over all values of a limit that share the counter, at least Burst. A stored level
	// is read as at most Ceiling tokens: lowering a number never locks a caller out for longer than one full bucket.
	Ceiling int64
	Window  int64 // W, in ticks
}

// State is a bucket's level (1/W token) at a time (ticks). The zero State is a bucket never seen.
type State struct {
	Level int64
	Time  int64
}

// Read returns the bucket as it is at now: cut to the ceiling, then drained. Time never runs backwards for a key: when
// now is before the state's time, the state's time holds. A state more than one window ahead of now is from another
// clock (a failover); it is dropped, and stale is true.
func (p Params) Read(s State, now int64) (at State, stale bool) {
	if s.Time > now+p.Window {
		return State{Time: now}, true
	}
	level := min(s.Level, p.Ceiling*p.Window)
	if now <= s.Time {
		return State{Level: level, Time: s.Time}, false
	}
	return State{Level: p.drain(level, now-s.Time), Time: now}, false
}

func (p Params) drain(level, elapsed int64) int64 {
	if elapsed >= p.emptyIn(level) {
		return 0
	}
	return level - elapsed*p.Amount
}

// emptyIn returns the ticks after which a level has drained. With an amount of 0 it never does: it is remembered for as
// long as the slowest amount takes, since other values of the limit, such as plans, read the same level.
func (p Params) emptyIn(level int64) int64 { return ceilDiv(level, max(1, p.Amount)) }

// Fits reports whether the cost can be spent from the state that Read returned.
func (p Params) Fits(at State, cost int64) bool {
	return p.Amount > 0 && cost <= p.Burst && (cost < 0 || at.Level+cost*p.Window <= p.Burst*p.Window)
}

// Spend returns the state with the cost spent; a negative cost gives back, never beyond empty. Costs above Burst are cut
// to it and the level to twice the ceiling, which only concerns a counter that is charged for another version of its rule.
func (p Params) Spend(at State, cost int64) State {
	cost = max(min(cost, p.Burst), -2*p.Ceiling)
	at.Level = max(0, min(at.Level+cost*p.Window, 2*p.Ceiling*p.Window))
	return at
}

// Left returns the whole tokens left.
func (p Params) Left(at State) int64 {
	if p.Amount == 0 {
		return 0
	}
	return max(0, p.Burst*p.Window-at.Level) / p.Window
}

// Wait returns the ticks from now until the cost fits if nothing else is spent; 0 when it fits now. It reports false
// when waiting cannot help: the cost is above Burst, or Amount is 0.
func (p Params) Wait(at State, now, cost int64) (int64, bool) {
	if p.Amount == 0 || cost > p.Burst {
		return 0, false
	}
	if p.Fits(at, cost) {
		return 0, true
	}
	over := at.Level + cost*p.Window - p.Burst*p.Window
	return at.Time - now + ceilDiv(over, p.Amount), true
}

// Expiry returns the ticks from now after which the state equals one never seen.
func (p Params) Expiry(at State, now int64) int64 {
	level := min(at.Level, p.Ceiling*p.Window)
	if level == 0 {
		return 0
	}
	return at.Time - now + p.emptyIn(level)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
