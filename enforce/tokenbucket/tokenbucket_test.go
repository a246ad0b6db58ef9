package tokenbucket_test

import (
	"testing"

	"github.com/headgate/headgate/enforce/tokenbucket"
)

const (
	ms  = 1 // one tick of the windows below
	sec = 1000
)

type moment struct {
	at   int64
	cost int64
	want bool
	left int64
	wait int64
}

func run(t *testing.T, p tokenbucket.Params, timeline []moment) {
	t.Helper()
	var s tokenbucket.State
	for i, m := range timeline {
		at, _ := p.Read(s, m.at)
		wait, _ := p.Wait(at, m.at, m.cost)
		fits := p.Fits(at, m.cost)
		if fits {
			s = p.Spend(at, m.cost)
			at = s
		}
		if left := p.Left(at); fits != m.want || left != m.left || wait != m.wait {
			t.Errorf("call %d at %d: got fits %v, left %d, wait %d; want %v, %d, %d", i+1, m.at, fits, left, wait, m.want, m.left, m.wait)
		}
	}
}

// Losant/redis-gcra#3, go-redis/redis_rate#42: half a token was rounded up to one.
func TestC12WaitIsExact(t *testing.T) {
	t.Parallel()
	p := tokenbucket.Params{Amount: 6, Burst: 6, Ceiling: 6, Window: 60 * sec}
	run(t, p, []moment{
		{at: 0, cost: 1, want: true, left: 5},
		{at: 0, cost: 1, want: true, left: 4},
		{at: 0, cost: 1, want: true, left: 3},
		{at: 0, cost: 1, want: true, left: 2},
		{at: 0, cost: 1, want: true, left: 1},
		{at: 0, cost: 1, want: true, left: 0},
		{at: 0, cost: 1, want: false, left: 0, wait: 10 * sec},
		{at: 5100 * ms, cost: 1, want: false, left: 0, wait: 4900},
		{at: 9900 * ms, cost: 1, want: false, left: 0, wait: 100},
		{at: 10 * sec, cost: 1, want: true, left: 0},
	})
}

// mailgun/gubernator#77: every call reset the drip timer.
func TestC08DripsWhileCallsKeepComing(t *testing.T) {
	t.Parallel()
	p := tokenbucket.Params{Amount: 10, Burst: 10, Ceiling: 10, Window: 30 * sec}
	var timeline []moment
	for i, left := range []int64{9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2} {
		timeline = append(timeline, moment{at: int64(i) * sec, cost: 1, want: true, left: left})
	}
	run(t, p, timeline)
}

// redis/redis#15113: a call above the capacity reported full remaining and "resets now".
func TestC05CostAboveBurstNeverFits(t *testing.T) {
	t.Parallel()
	p := tokenbucket.Params{Amount: 1, Burst: 6, Ceiling: 6, Window: 60 * sec}
	at, _ := p.Read(tokenbucket.State{}, 0)
	if p.Fits(at, 10) {
		t.Error("a cost of 10 fits a bucket of 6")
	}
	if _, helps := p.Wait(at, 0, 10); helps {
		t.Error("waiting is said to help a cost above the burst")
	}
	run(t, p, []moment{{at: 0, cost: 1, want: true, left: 5}})
}

func TestReadCutsToCeilingThenDrains(t *testing.T) {
	t.Parallel()
	p := tokenbucket.Params{Amount: 2, Burst: 2, Ceiling: 2, Window: 60 * sec}
	at, _ := p.Read(tokenbucket.State{Level: 10 * 60 * sec}, 30*sec)
	if want := int64(1 * 60 * sec); at.Level != want {
		t.Errorf("level %d, want %d: cut to 2 tokens, less the one that drains in 30 s", at.Level, want)
	}
}

func TestTimeNeverRunsBackwards(t *testing.T) {
	t.Parallel()
	p := tokenbucket.Params{Amount: 10, Burst: 10, Ceiling: 10, Window: 10 * sec}
	full := tokenbucket.State{Level: 10 * 10 * sec, Time: 5 * sec}
	at, stale := p.Read(full, 4*sec)
	if stale || at != full {
		t.Errorf("read one second early: got %+v, stale %v; want it unchanged", at, stale)
	}
	if wait, _ := p.Wait(at, 4*sec, 1); wait != 2*sec {
		t.Errorf("wait %d, want 2 s: one until the state's time, one for a token", wait)
	}
	if at, stale := p.Read(full, -6*sec); !stale || at.Level != 0 {
		t.Errorf("a state 11 s ahead of a 10 s window: got %+v, stale %v; want it dropped", at, stale)
	}
}

func TestZeroAmountAlwaysRefuses(t *testing.T) {
	t.Parallel()
	p := tokenbucket.Params{Amount: 0, Burst: 5, Ceiling: 5, Window: sec}
	at, _ := p.Read(tokenbucket.State{}, 0)
	if _, helps := p.Wait(at, 0, 1); p.Fits(at, 0) || helps || p.Left(at) != 0 {
		t.Error("0/s admits, has something left or promises a wait")
	}
}

func TestExpiryIsWhenNothingIsRemembered(t *testing.T) {
	t.Parallel()
	p := tokenbucket.Params{Amount: 3, Burst: 3, Ceiling: 3, Window: 7 * sec}
	s := p.Spend(tokenbucket.State{Time: 100}, 1) // 7000 units, 3 a tick: 2334 ticks
	expiry := p.Expiry(s, 100)
	if expiry != 2334 {
		t.Fatalf("expiry %d ticks, want 2334", expiry)
	}
	if at, _ := p.Read(s, 100+expiry); at.Level != 0 {
		t.Errorf("level %d at expiry, want 0", at.Level)
	}
	if at, _ := p.Read(s, 100+expiry-1); at.Level == 0 {
		t.Error("nothing left to remember one tick before expiry")
	}
}
