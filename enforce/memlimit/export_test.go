package memlimit

import (
	"context"
	"time"

	"github.com/headgate/headgate/enforce"
)

// Lifetimes tells how long, from the instant on, counters are still kept; below 0 where there is none.
func (l *Limiter) Lifetimes(_ context.Context, micros int64, counters []enforce.Counter) ([]time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := make([]time.Duration, len(counters))
	for i, c := range counters {
		kept[i] = -1
		if e, ok := l.counters[c]; ok {
			kept[i] = time.Duration(e.expires*e.tick-micros) * time.Microsecond
		}
	}
	return kept, nil
}

// Counters is how many are kept.
func (l *Limiter) Counters() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.counters)
}
