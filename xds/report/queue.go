package report

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/xdspb"
)

const (
	// windowBytes is about the most that a window takes on the wire: one with more becomes several.
	windowBytes = 512 << 10
	// messageBytes and messageWindows are about the most that goes in one message; gRPC receives 4 MiB by default.
	messageBytes   = 1 << 20
	messageWindows = 100
	// unstoredBytes and unstoredWindows are how much is sent and not yet stored. What is beyond it waits and can be merged.
	unstoredBytes   = 2 * messageBytes
	unstoredWindows = 2 * messageWindows
	// keysBytes is about how much memory the keys of windows that wait may take.
	keysBytes = 16 << 20
)

// A level is how coarse a window that waits is: as it was closed, or merged with others of the same minute, hour or day.
// Of each level so many wait before the oldest goes to the next.
var levels = [...]struct {
	step time.Duration
	keep int
}{{tally.Span, 30}, {time.Minute, 60}, {time.Hour, 48}, {24 * time.Hour, 31}}

// queue has the closed windows that are not known to be stored. It is safe for concurrent use.
type queue struct {
	metrics *clientMetrics
	wake    chan struct{} // holds a token when there may be something to send
	done    chan struct{} // closed when the last window is stored

	mu      sync.Mutex
	clock   clock
	sent    []*xdspb.Window // numbered, never merged nor changed, but for their times when the clock was set
	waiting []*waiting      // never sent; from the coarsest and oldest to the newest
	next    int64           // number of the window that is sent next for the first time
	open    *xdspb.Window   // nil: none, or an old one
	last    bool            // the last window is in
}

type waiting struct {
	tally.Window
	level int
}

func newQueue(m *clientMetrics, now func() time.Time) *queue {
	return &queue{metrics: m, clock: newClock(now), wake: make(chan struct{}, 1), done: make(chan struct{}), next: 1}
}

func (q *queue) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default: // a token is there already
	}
}

// add takes a closed window, which is the queue's from now on.
func (q *queue) add(w tally.Window) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open, q.last = nil, w.Last
	q.waiting = append(q.waiting, &waiting{Window: w})
	q.coarsen()
	q.dropKeys()
	q.wakeUp()
}

// coarsen has the oldest window of a level that has too many join those of the same minute, hour or day. The oldest days
// join whatever is before them: the queue never has more than all levels keep.
func (q *queue) coarsen() {
	for level := range levels {
		first := slices.IndexFunc(q.waiting, func(w *waiting) bool { return w.level == level })
		if first < 0 {
			continue
		}
		end := first
		for end < len(q.waiting) && q.waiting[end].level == level {
			end++
		}
		if end-first <= levels[level].keep {
			return // what is coarser did not grow
		}
		coarsest := level == len(levels)-1
		if coarsest {
			first++
		}
		if first > 0 && (coarsest || sameStep(q.waiting[first-1], q.waiting[first], level+1)) {
			merge(&q.waiting[first-1].Window, &q.waiting[first].Window)
			q.waiting = slices.Delete(q.waiting, first, first+1)
			q.metrics.merged.Inc()
		} else {
			q.waiting[first].level++
		}
	}
}

func sameStep(before, w *waiting, level int) bool {
	step := levels[level].step
	return before.level == level && before.Start.Truncate(step).Equal(w.Start.Truncate(step))
}

// dropKeys gives up the keys of the oldest windows while those of all take too much memory.
func (q *queue) dropKeys() {
	size := 0
	for _, w := range slices.Backward(q.waiting) {
		n := keysSize(&w.Window)
		if size += n; size > keysBytes && n > 0 {
			dropKeys(&w.Window)
			size -= n
			q.metrics.keysDropped.Inc()
		}
	}
}

// take returns what is sent after the window with the number, at most one message full, and the number of the last of
// it: first what was sent on an earlier stream, then what waits, as far as it may be sent. It fails when the clock was set
// since the stream began, after so many times before.
func (q *queue) take(after int64, turns int) (list []*xdspb.Window, last int64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.clock.turns != turns {
		return nil, 0, errClockSet
	}
	q.number()
	size := 0
	last = after
	for _, w := range q.sent {
		if w.GetNumber() <= after {
			continue
		}
		size += proto.Size(w)
		if len(list) > 0 && size > messageBytes || len(list) == messageWindows {
			break
		}
		list, last = append(list, w), w.GetNumber()
	}
	return list, last, nil
}

// number gives numbers to windows that wait, while few enough are sent and not stored. From then on they are what they are.
func (q *queue) number() {
	size := 0
	for _, w := range q.sent {
		size += proto.Size(w)
	}
	for len(q.waiting) > 0 && size < unstoredBytes && len(q.sent) < unstoredWindows {
		for _, w := range split(encode(&q.waiting[0].Window), windowBytes) {
			w.Number = q.next
			q.next++
			q.sent = append(q.sent, w)
			size += proto.Size(w)
		}
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
}

// stored forgets the windows up to the number: the control plane has them.
func (q *queue) stored(number int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.sent) && q.sent[n].GetNumber() <= number {
		n++
	}
	q.sent = slices.Delete(q.sent, 0, n)
	q.metrics.stored.Add(float64(n))
	// Only a control plane that mixes sources up has windows that this one never sent: those with their numbers would
	// never be stored.
	q.next = max(q.next, number+1)
	if q.last && q.empty() {
		q.last = false
		close(q.done)
	}
	q.wakeUp()
}

func (q *queue) empty() bool { return len(q.sent)+len(q.waiting) == 0 }

// wantsOpen reports whether the open window's totals can be sent: all that was before them is stored.
func (q *queue) wantsOpen() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.empty()
}

// setOpen takes the totals of the open window, in place of those before.
func (q *queue) setOpen(w *xdspb.Window) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = w
	q.wakeUp()
}

// takeOpen returns the open window's totals once.
func (q *queue) takeOpen() *xdspb.Window {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.open
	q.open = nil
	if w != nil && q.empty() {
		w.Number = q.next
		return w
	}
	return nil
}

// now reads the clock. Where it was set since the last reading, the times of all that is here move along, by what is
// returned: they stay comparable with the clock, and the control plane compares it with its own.
func (q *queue) now() (now time.Time, by time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now, by = q.clock.read(); by != 0 {
		q.turn(by)
	}
	return now, by
}

// turn moves the times. The caller holds the lock.
func (q *queue) turn(by time.Duration) {
	q.open = nil
	for _, w := range q.waiting {
		w.Start, w.End = w.Start.Add(by), w.End.Add(by)
		for i := range w.Refusals {
			w.Refusals[i].Time = w.Refusals[i].Time.Add(by)
		}
	}
	for i, w := range q.sent {
		w = proto.CloneOf(w) // the old one may be on its way
		w.Start, w.End = w.GetStart()+by.Microseconds(), w.GetEnd()+by.Microseconds()
		for _, r := range w.GetRefusals() {
			r.Time += by.Microseconds()
		}
		q.sent[i] = w
	}
	q.wakeUp()
}

// hello returns the clock by which the times here are, for the beginning of a stream, and how often it was set.
func (q *queue) hello() (now time.Time, turns int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.clock.kept(), q.clock.turns
}

// state returns how many windows are not known to be stored, and when the oldest began; the zero time without one.
func (q *queue) state() (windows int, oldest time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.sent) > 0:
		oldest = time.UnixMicro(q.sent[0].GetStart())
	case len(q.waiting) > 0:
		oldest = q.waiting[0].Start
	}
	return len(q.sent) + len(q.waiting), oldest
}
