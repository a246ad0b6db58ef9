package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/redislimit"
)

// Memory is the name of the store in the process.
const Memory = "memory"

// limiter judges charges at an instant in microseconds since 1970.
type limiter interface {
	DecideAt(ctx context.Context, micros int64, charges []enforce.Charge) ([]enforce.Verdict, error)
}

// clock is a limiter that takes its time from the replay.
type clock struct {
	store limiter
	now   int64 // microseconds since 1970
	// err is the first failure of the store. The engine answers in spite of it; the replay ends.
	err error
	// met is every counter that was asked for, so that it can be deleted; nil where nothing stays behind.
	met map[enforce.Counter]struct{}
}

var _ enforce.Limiter = (*clock)(nil)

// Decide judges the charges at the replay's time.
func (c *clock) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	if c.met != nil {
		for i := range charges {
			c.met[charges[i].Decides], c.met[charges[i].Actual] = struct{}{}, struct{}{}
		}
	}
	verdicts, err := c.store.DecideAt(ctx, c.now, charges)
	if err != nil && c.err == nil {
		c.err = err
	}
	return verdicts, err
}

// redisBudget bounds one decision in Redis. There is no caller who waits, so a slow answer is better than none.
const redisBudget = 10 * time.Second

// CheckStore reports whether name names a store: memory, or a Redis as a sidecar is told of it (redis://HOST:PORT).
func CheckStore(name string) error {
	if inMemory(name) {
		return nil
	}
	_, err := redisOptions(name)
	return err
}

func inMemory(name string) bool { return name == Memory || name == "" }

// redisOptions does not repeat the name in its error: it may hold a password.
func redisOptions(name string) (redislimit.Options, error) {
	o, err := redislimit.ParseURL(name)
	if err != nil {
		return o, fmt.Errorf("the store is neither %s nor a Redis: %w", Memory, err)
	}
	o.Budget = redisBudget
	return o, nil
}

// openStore returns the clock of a store, and what gives the store up: it deletes what the replay left there.
func openStore(name string) (c *clock, giveUp func(context.Context) error, err error) {
	if inMemory(name) {
		return &clock{store: memlimit.New()}, func(context.Context) error { return nil }, nil
	}
	o, err := redisOptions(name)
	if err != nil {
		return nil, nil, err
	}
	store := redislimit.New(o)
	c = &clock{store: store, met: map[enforce.Counter]struct{}{}}
	return c, func(ctx context.Context) error {
		return errors.Join(deleteCounters(ctx, o, c.met), store.Close())
	}, nil
}

// deleteEach is how many keys one command deletes.
const deleteEach = 500

func deleteCounters(ctx context.Context, o redislimit.Options, counters map[enforce.Counter]struct{}) error {
	client := redis.NewClient(&redis.Options{Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLS})
	defer client.Close()
	pipe := client.Pipeline()
	flush := func() error {
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("delete the counters of this run: %w", err)
		}
		return nil
	}
	for c := range counters {
		pipe.Unlink(ctx, redislimit.KeyName(c)) // a command for each key: in a cluster they are in different slots
		if pipe.Len() == deleteEach {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	return flush()
}
