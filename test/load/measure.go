package load

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
)

// Spread is how long a change took to reach a fleet, of several changes.
type Spread struct {
	P50  time.Duration // half of all arrivals took at most that long
	Last time.Duration // the last arrival of a change: the median over the changes
	Max  time.Duration // the last arrival of the slowest change
}

// changer makes a revision that changes one rule, and says when it was acknowledged.
type changer interface {
	Change(ctx context.Context, rule int, to rules.Percent) (revision int64, at time.Time, err error)
}

// FanOut changes a rule several times, and measures from when a change is acknowledged to its arrival at each subscriber.
// The next change waits for the last arrival of the one before. Before it, warmUp changes are not counted.
func FanOut(ctx context.Context, c changer, crowd *Remote, rule, changes int) (Spread, error) {
	const warmUp = 2
	var all, last []time.Duration
	for i := range warmUp + changes {
		revision, at, err := c.Change(ctx, rule, rules.Percent(i+1))
		if err != nil {
			return Spread{}, err
		}
		arrivals, err := crowd.Await(revision)
		if err != nil {
			return Spread{}, err
		}
		if i < warmUp {
			continue
		}
		took := make([]time.Duration, len(arrivals.At))
		for j, arrived := range arrivals.At {
			took[j] = arrived.Sub(at)
		}
		all, last = append(all, took...), append(last, slices.Max(took))
	}
	return Spread{P50: median(all), Last: median(last), Max: slices.Max(last)}, nil
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

// Memory is what this process holds after garbage collection, in bytes.
type Memory struct {
	Heap  int64 // HeapAlloc
	Stack int64 // of goroutines
}

// MemoryNow collects garbage and measures.
func MemoryNow() Memory {
	// Twice: what a sync.Pool holds outlives one collection.
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return Memory{Heap: int64(s.HeapAlloc), Stack: int64(s.StackInuse)}
}

// Each is the difference to what was before, for each of n.
func (m Memory) Each(before Memory, n int) Memory {
	return Memory{Heap: (m.Heap - before.Heap) / int64(n), Stack: (m.Stack - before.Stack) / int64(n)}
}

// FromNothing connects all at once and returns how long it takes until the last one has everything, and how many bytes
// that is for one.
func FromNothing(ctx context.Context, p *Plane, crowd *Remote, n, rules int) (took time.Duration, size int64, err error) {
	_, revision, err := p.Head(ctx)
	if err != nil {
		return 0, 0, err
	}
	begun, err := crowd.Connect(Connect{Addr: p.Addr, Subscribers: n, Domain: Domain})
	if err != nil {
		return 0, 0, err
	}
	arrivals, err := crowd.Await(revision)
	if err != nil {
		return 0, 0, err
	}
	for _, got := range arrivals.Resources {
		if got != rules+1 {
			return 0, 0, fmt.Errorf("a subscriber got %d resources, not %d rules and their domain", got, rules)
		}
	}
	return slices.MaxFunc(arrivals.At, time.Time.Compare).Sub(begun), arrivals.Bytes / int64(n), nil
}

// HoldingTheHead breaks all connections, and lets all connect again at once, with the head in hand. It returns how long
// it takes until the last one is written down as having it, and fails when anything is sent.
func HoldingTheHead(ctx context.Context, p *Plane, crowd *Remote, n int) (time.Duration, error) {
	version, revision, err := p.Head(ctx)
	if err != nil {
		return 0, err
	}
	if err := crowd.Close(); err != nil {
		return 0, err
	}
	if err := p.AwaitNodes(ctx, n, false, 0); err != nil {
		return 0, err
	}
	begun, err := crowd.Connect(Connect{Addr: p.Addr, Subscribers: n, Domain: Domain, Holds: version})
	if err != nil {
		return 0, err
	}
	if err := p.AwaitNodes(ctx, n, true, revision); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	responses, err := crowd.Received()
	if err == nil && responses > 0 {
		err = fmt.Errorf("%d responses were sent to subscribers that held the head", responses)
	}
	return took, err
}
