// Package slidingwindow is the arithmetic of a sliding-window counter, in integers and without a clock.
//
// Time is divided into windows of W ticks, aligned to the Unix epoch. A counter holds what was spent in the current window
// and in the one just before it, whose share that a window ending now still covers is counted as well: elapsed ticks into
// the current window, a cost c passes when
//
//	previous·(W−elapsed) + (current+c)·W ≤ Amount·W
//
// which is the estimate of Cloudflare's counter (C. Desgats, "How we built rate limiting capable of scaling to millions of
// domains", 2017) without fractions. Refused calls are not counted.
//
// Example: 50 per 60 s, W = 60,000 ticks of 1 ms. The window before had 42 calls, this one 18, and 15 s have passed: the
// estimate is 42·45/60 + 18 = 49.5, so one more call would make 50.5 and is refused. It first passes when 42·(W−e) ≤
// (50−18−1)·W, that is e ≥ 15,714.3 ticks: after a wait of 715 ticks. After a full window the wait can be longer than a
// window: its whole count is still "previous" at the beginning of the next one.
//
// The numbers stay exact: validation (package rules) keeps 3·Amount·W below 2^53, and counts are cut to what a version can
// hold before they are multiplied. The same arithmetic in Lua (package redislimit) therefore agrees unit for unit.
//
// All functions are pure.
package slidingwindow

// Params are a counter's numbers.
type Params struct {
	Amount int64 // 0 refuses always
	// Ceiling is the largest amount over all values of a limit that share the counter, at least Amount. Each stored count
	// is read as at most Ceiling: lowering a number never locks a caller out for longer than two windows.
	Ceiling int64
	Window  int64 // W, in ticks
}

// State is what was spent in the window that holds Time (ticks), and in the one before it. The zero State is a counter
// never seen.
type State struct {
	Current  int64
	Previous int64
	Time     int64
}

// Read returns the counter as it is at now: its counts cut to the ceiling and moved on to now's window. Time never runs
// backwards for a key: when now is before the state's time, the state's time holds. A state more than one window ahead of
// now is from another clock (a failover); it is dropped, and stale is true.
func (p Params) Read(s State, now int64) (at State, stale bool) {
	if s.Time > now+p.Window {
		return State{Time: now}, true
	}
	at = State{Current: min(s.Current, p.Ceiling), Previous: min(s.Previous, p.Ceiling), Time: max(now, s.Time)}
	switch at.Time/p.Window - s.Time/p.Window {
	case 0:
	case 1:
		at.Current, at.Previous = 0, at.Current
	default:
		at.Current, at.Previous = 0, 0
	}
	return at, false
}

// used is what counts at the state's time, in units of 1/W call.
func (p Params) used(at State) int64 {
	return at.Previous*(p.Window-at.Time%p.Window) + at.Current*p.Window
}

// Fits reports whether the cost can be spent from the state that Read returned.
func (p Params) Fits(at State, cost int64) bool {
	return p.Amount > 0 && cost <= p.Amount && (cost < 0 || p.used(at)+cost*p.Window <= p.Amount*p.Window)
}

// Spend returns the state with the cost spent; a negative cost gives back what the current window has, never beyond
// empty. Costs above Amount are cut to it and the count to twice the ceiling, which only concerns a counter that is
// charged for another version of its rule.
func (p Params) Spend(at State, cost int64) State {
	at.Current = max(0, min(at.Current+min(cost, p.Amount), 2*p.Ceiling))
	return at
}

// Left returns the whole calls left.
func (p Params) Left(at State) int64 {
	return max(0, p.Amount*p.Window-p.used(at)) / p.Window
}

// Wait returns the ticks from now until the cost fits if nothing else is spent; 0 when it fits now. It reports false
// when waiting cannot help: the cost is above Amount, or Amount is 0.
func (p Params) Wait(at State, now, cost int64) (int64, bool) {
	if p.Amount == 0 || cost > p.Amount {
		return 0, false
	}
	if p.Fits(at, cost) {
		return 0, true
	}
	start := at.Time - at.Time%p.Window
	if room := p.Amount - at.Current - cost; room >= 0 {
		return start + p.passed(at.Previous, room) - now, true
	}
	return start + p.Window + p.passed(at.Current, p.Amount-cost) - now, true
}

// passed returns how many ticks of a window must pass until no more than room of the window before counts. Previous is
// above room, so it is above 0.
func (p Params) passed(previous, room int64) int64 {
	return max(0, p.Window-room*p.Window/previous)
}

// Expiry returns the ticks from now after which the state equals one never seen.
func (p Params) Expiry(at State, now int64) int64 {
	start := at.Time - at.Time%p.Window
	switch {
	case at.Current > 0:
		return start + 2*p.Window - now
	case at.Previous > 0:
		return start + p.Window - now
	}
	return 0
}
