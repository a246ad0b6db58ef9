package slidingwindow_test

import (
	"testing"

	"github.com/headgate/headgate/enforce/slidingwindow"
)

const sec = 1000 // ticks of the windows below

// blog.cloudflare.com, "counting things": limit 50 per 60 s, 42 calls before, 18 now, 15 s in.
func TestC07PublishedExample(t *testing.T) {
	t.Parallel()
	p := slidingwindow.Params{Amount: 50, Ceiling: 50, Window: 60 * sec}
	s := slidingwindow.State{Current: 18, Previous: 42, Time: 60*sec + 15*sec}
	at, _ := p.Read(s, 75*sec)
	if p.Fits(at, 1) {
		t.Error("an estimate of 50.5 passes")
	}
	wait, helps := p.Wait(at, 75*sec, 1)
	if !helps || wait != 715 {
		t.Errorf("wait %d ticks, want 715: first admissible at 15.714… s, rounded up to a tick", wait)
	}
	early, _ := p.Read(s, 75*sec+wait-1)
	then, _ := p.Read(s, 75*sec+wait)
	if p.Fits(early, 1) || !p.Fits(then, 1) {
		t.Error("the wait is not the first moment at which the call passes")
	}
}

func TestC07EdgeOfTheWindow(t *testing.T) {
	t.Parallel()
	p := slidingwindow.Params{Amount: 10, Ceiling: 10, Window: 60 * sec}
	var s slidingwindow.State
	admitted := 0
	for _, now := range []int64{59_900, 60_100} {
		for range 10 {
			if at, _ := p.Read(s, now); p.Fits(at, 1) {
				s = p.Spend(at, 1)
				admitted++
			}
		}
	}
	if admitted != 10 {
		t.Errorf("%d admitted around the edge, want 10 (a fixed window admits 20)", admitted)
	}
	if at, _ := p.Read(s, 59_900+2*60*sec); at.Current != 0 || at.Previous != 0 {
		t.Errorf("two windows later: %+v, want nothing", at)
	}
}

func TestWaitAfterAFullWindowIsLongerThanTheWindow(t *testing.T) {
	t.Parallel()
	p := slidingwindow.Params{Amount: 5, Ceiling: 5, Window: 60 * sec}
	var s slidingwindow.State
	for range 5 {
		at, _ := p.Read(s, 0)
		s = p.Spend(at, 1)
	}
	at, _ := p.Read(s, 0)
	if wait, _ := p.Wait(at, 0, 1); wait != 72*sec {
		t.Errorf("wait %d, want 72 s: a fifth of the next window must pass as well", wait)
	}
}

// apache/apisix#187: a changed number works at once on what was spent (CASES C18 a, without its next window).
func TestC18CountsAreReadAsAtMostTheAmount(t *testing.T) {
	t.Parallel()
	s := slidingwindow.State{Current: 10}
	two := slidingwindow.Params{Amount: 2, Ceiling: 2, Window: 60 * sec}
	at, _ := two.Read(s, 0)
	if two.Fits(at, 1) || two.Left(at) != 0 {
		t.Error("2 with 10 spent admits a call, or has something left")
	}
	more := slidingwindow.Params{Amount: 1500, Ceiling: 1500, Window: 60 * sec}
	at, _ = more.Read(s, 0)
	if !more.Fits(at, 1) || more.Left(more.Spend(at, 1)) != 1489 {
		t.Errorf("1500 with 10 spent: %d left after a call, want 1489", more.Left(more.Spend(at, 1)))
	}
}

func TestTimeNeverRunsBackwards(t *testing.T) {
	t.Parallel()
	p := slidingwindow.Params{Amount: 10, Ceiling: 10, Window: 10 * sec}
	s := slidingwindow.State{Current: 10, Time: 25 * sec}
	at, stale := p.Read(s, 19*sec) // in the window before
	if stale || at != s {
		t.Errorf("read six seconds early: got %+v, stale %v; want it unchanged", at, stale)
	}
	if wait, _ := p.Wait(at, 19*sec, 1); wait != 12*sec {
		t.Errorf("wait %d, want 12 s: until the next window, and a tenth of it", wait)
	}
	if _, stale := p.Read(s, 14*sec); !stale {
		t.Error("a state 11 s ahead of a 10 s window is not dropped")
	}
}

func TestExpiryIsWhenNothingIsRemembered(t *testing.T) {
	t.Parallel()
	p := slidingwindow.Params{Amount: 10, Ceiling: 10, Window: 7 * sec}
	for _, s := range []slidingwindow.State{{Current: 1, Time: 9 * sec}, {Previous: 3, Time: 9 * sec}} {
		expiry := p.Expiry(s, 9*sec)
		then, _ := p.Read(s, 9*sec+expiry)
		before, _ := p.Read(s, 9*sec+expiry-1)
		if then.Current+then.Previous != 0 || before.Current+before.Previous == 0 {
			t.Errorf("%+v expires after %d: %+v then, %+v a tick before", s, expiry, then, before)
		}
	}
}

func TestZeroAlwaysRefuses(t *testing.T) {
	t.Parallel()
	p := slidingwindow.Params{Window: sec}
	if _, helps := p.Wait(slidingwindow.State{}, 0, 0); p.Fits(slidingwindow.State{}, 0) || helps {
		t.Error("0/s admits, or promises a wait")
	}
}
