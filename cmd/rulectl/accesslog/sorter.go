package accesslog

import (
	"container/heap"
	"fmt"
	"time"
)

// A LateError is a line that stands further behind a later one than the sort window allows. The order of requests around
// it is lost: those after it have been decided.
type LateError struct {
	Line   int
	Behind time.Duration // how much earlier it is than the latest line before it
	Window time.Duration
}

func (e *LateError) Error() string {
	return fmt.Sprintf("line %d is %s earlier than a line before it; the sort window is %s", e.Line, e.Behind, e.Window)
}

// sorter puts entries in the order of their time, ties by position. It holds those of one window.
type sorter struct {
	window int64 // microseconds
	latest int64 // of all entries; -1 before the first
	held   entries
	each   func(*Entry) error
}

func newSorter(window time.Duration, each func(*Entry) error) *sorter {
	return &sorter{window: window.Microseconds(), latest: -1, each: each}
}

// add takes an entry, and hands on those that no line can come before any more. Entries exactly one window old stay: a
// line of the same time may follow, and belongs behind them.
func (s *sorter) add(e *Entry) error {
	if behind := s.latest - e.At; behind > s.window {
		return &LateError{
			Line: e.Line, Behind: time.Duration(behind) * time.Microsecond, Window: time.Duration(s.window) * time.Microsecond,
		}
	}
	s.latest = max(s.latest, e.At)
	heap.Push(&s.held, e)
	return s.handOn(s.latest - s.window)
}

// handOn hands on the entries before an instant.
func (s *sorter) handOn(before int64) error {
	for len(s.held) > 0 && s.held[0].At < before {
		e, _ := heap.Pop(&s.held).(*Entry)
		if err := s.each(e); err != nil {
			return err
		}
	}
	return nil
}

// finish hands on the rest.
func (s *sorter) finish() error { return s.handOn(s.latest + 1) }

// entries is a heap, the earliest first.
type entries []*Entry

func (h entries) Len() int { return len(h) }
func (h entries) Less(i, j int) bool {
	return h[i].At < h[j].At || h[i].At == h[j].At && h[i].Line < h[j].Line
}
func (h entries) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *entries) Push(x any) {
	e, _ := x.(*Entry)
	*h = append(*h, e)
}

// Pop is for container/heap.
func (h *entries) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil // or the entry would stay in memory
	*h = (*h)[:last]
	return e
}
