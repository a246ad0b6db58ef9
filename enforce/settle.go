package enforce

import (
	"slices"
	"time"
)

// A Write sets a counter, to be forgotten after Expiry ticks. An Expiry below 1 still stores it for the shortest time.
type Write struct {
	Counter Counter
	State   State
	Expiry  int64 // in ticks of Tick
	Tick    time.Duration
}

// Settlement is what becomes of one request's charges.
type Settlement struct {
	Verdicts []Verdict
	Writes   []Write
	Stale    int // stored states that were dropped: more than one window ahead of now
}

// Settle is the law every limiter keeps; the Lua script of package redislimit is its twin. Now is in microseconds, load
// returns a stored counter, or false where there is none.
//
//   - A request is admitted when every binding charge fits. Then each actual counter is charged once, by the charge that
//     owns it. When any binding charge does not fit, no actual counter changes.
//   - A what-if version is taken when all its charges fit, those of all its keys, and no other rule's binding charges refuse:
//     as if it stood in place of its rule's binding version, all else as it really is. So a refused request changes one counter that may
//     bind: where both sides of a cohort share the actual counter, the candidate decides by its what-if counter, which
//     also takes what it would have admitted of requests that the stable refused.
//   - A what-if counter that is met for the first time is stored as a copy of the actual one, even when the version
//     refuses. It lives at least as long as the actual one has anything to tell its version, so it is written again
//     whenever the actual one is. Where nothing is taken it is written as it was, as with a refusal of what binds: how
//     much of it has drained depends on the numbers of the next request, which may have another plan.
func Settle(charges []Charge, now int64, load func(Counter) (State, bool)) Settlement {
	s := settling{charges: charges, now: now, load: load, met: make([]met, len(charges))}
	s.out.Verdicts = make([]Verdict, len(charges))
	s.judge()
	s.writeActual()
	s.writeWhatIf()
	return s.out
}

type settling struct {
	charges []Charge
	now     int64
	load    func(Counter) (State, bool)
	met     []met // by charge
	out     Settlement

	refusing []int // rules with a binding charge that does not fit, each once
	unfit    []int // versions with a charge that does not fit
}

// met is the counter by which a charge is decided.
type met struct {
	first  bool  // it is a what-if counter that is met for the first time: the states are the actual one's
	stored State // the zero State where there is none
	at     State // as it is now
}

func (s *settling) tick(c *Charge) int64 { return s.now / c.Tick.Microseconds() }

func (s *settling) judge() {
	for i := range s.charges {
		c := &s.charges[i]
		m := &s.met[i]
		stored, ok := s.load(c.Decides)
		if !ok && c.Decides != c.Actual {
			m.first = true
			stored, _ = s.load(c.Actual)
		}
		now := s.tick(c)
		at, stale := c.Limit.read(stored, now)
		if stale {
			s.out.Stale++
		}
		m.stored, m.at = stored, at
		v := &s.out.Verdicts[i]
		v.Fits, v.Left = c.Limit.fits(at, c.Cost), c.Limit.left(at)
		v.Wait = Never
		if wait, helps := c.Limit.wait(at, now, c.Cost); helps {
			v.Wait = TicksToDuration(wait, c.Tick)
		}
		if v.Fits {
			continue
		}
		s.unfit = addOnce(s.unfit, c.Version)
		if !c.WhatIf {
			s.refusing = addOnce(s.refusing, c.Rule)
		}
	}
}

func (s *settling) admitted() bool { return len(s.refusing) == 0 }

// taken reports whether the charge's version takes its cost.
func (s *settling) taken(c *Charge) bool {
	if !c.WhatIf {
		return s.admitted()
	}
	if slices.Contains(s.unfit, c.Version) {
		return false
	}
	return len(s.refusing) == 0 || len(s.refusing) == 1 && s.refusing[0] == c.Rule
}

// actualAfter returns the actual counter of a charge as it stands after this request.
func (s *settling) actualAfter(c *Charge) State {
	stored, _ := s.load(c.Actual)
	if !s.admitted() {
		return stored
	}
	for i := range s.charges {
		if owner := &s.charges[i]; owner.Owns && owner.Actual == c.Actual {
			keep := owner.Limit
			keep.Ceiling = max(keep.Ceiling, owner.Keep)
			at, _ := keep.read(stored, s.tick(owner))
			return keep.spend(at, owner.Cost)
		}
	}
	return stored
}

func (s *settling) writeActual() {
	if !s.admitted() {
		return
	}
	for i := range s.charges {
		owner := &s.charges[i]
		if !owner.Owns {
			continue
		}
		after := s.actualAfter(owner)
		w := Write{Counter: owner.Actual, State: after, Tick: owner.Tick}
		for j := range s.charges {
			if reader := &s.charges[j]; reader.Actual == owner.Actual {
				w.Expiry = max(w.Expiry, reader.Limit.expiry(after, s.tick(reader)))
			}
		}
		s.out.Writes = append(s.out.Writes, w)
		if owner.Decides == owner.Actual {
			s.tell(i, owner.Limit.spend(s.met[i].at, owner.Cost))
		}
	}
}

// tell puts into the verdict of a charge that was taken what it leaves.
func (s *settling) tell(charge int, after State) {
	c, v := &s.charges[charge], &s.out.Verdicts[charge]
	v.Left = c.Limit.left(after)
	ticks, _ := c.Limit.wait(after, s.tick(c), v.Left+1)
	v.Wait = TicksToDuration(ticks, c.Tick)
}

func (s *settling) writeWhatIf() {
	for i := range s.charges {
		c := &s.charges[i]
		if c.Decides == c.Actual {
			continue
		}
		m := &s.met[i]
		_, hasActual := s.load(c.Actual)
		taken := s.taken(c)
		if !taken && !s.admitted() && (!m.first || !hasActual) {
			continue
		}
		now := s.tick(c)
		actual, _ := c.Limit.read(s.actualAfter(c), now)
		after, stored := m.at, m.stored
		if taken {
			after = c.Limit.spend(m.at, c.Cost)
			stored = after
			s.tell(i, after)
		}
		s.out.Writes = append(s.out.Writes, Write{
			Counter: c.Decides, State: stored, Tick: c.Tick,
			Expiry: max(c.Limit.expiry(after, now), c.Limit.expiry(actual, now)),
		})
	}
}

func addOnce(list []int, n int) []int {
	if slices.Contains(list, n) {
		return list
	}
	return append(list, n)
}
