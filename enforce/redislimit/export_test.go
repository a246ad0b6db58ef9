package redislimit

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforce"
)

// Lifetimes tells how long counters are still kept, by the clock of Redis; below 0 where there is none.
func (l *Limiter) Lifetimes(ctx context.Context, _ int64, counters []enforce.Counter) ([]time.Duration, error) {
	kept := make([]time.Duration, len(counters))
	replies := make([]*redis.DurationCmd, len(counters))
	_, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range counters {
			replies[i] = p.PTTL(ctx, KeyName(c))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, r := range replies {
		kept[i] = r.Val()
	}
	return kept, nil
}

// StopKeeping ends what the limiter does by itself.
func (l *Limiter) StopKeeping() {
	l.stop()
	<-l.kept
}
