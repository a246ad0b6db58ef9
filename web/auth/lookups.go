package auth

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/rules"
)

const (
	// believed is how long the answer of the store counts: so long a revoked credential still opens calls.
	believed = 5 * time.Second
	// maxAnswers bounds the answers kept. Anybody can make up tokens, each of which is an answer: see keep.
	maxAnswers = 10_000
	// askTime bounds one question. It is asked for all who wait for its answer, and outlives those who wait no longer.
	askTime = 5 * time.Second
)

// lookups remember for a moment what the store said.
type lookups[T any] struct {
	ask   func(ctx context.Context, hash string) (T, error)
	asked singleflight.Group // by hash

	mu      sync.Mutex
	answers map[string]answer[T] // by hash
}

type answer[T any] struct {
	found T
	err   error // nil or rules.ErrNotFound
	at    time.Time
}

func newLookups[T any](ask func(context.Context, string) (T, error)) *lookups[T] {
	return &lookups[T]{ask: ask, answers: map[string]answer[T]{}}
}

func (l *lookups[T]) find(ctx context.Context, hash string) (found T, err error) {
	l.mu.Lock()
	known, ok := l.answers[hash]
	l.mu.Unlock()
	if ok && time.Since(known.at) < believed {
		return known.found, known.err
	}
	asked := l.asked.DoChan(hash, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		found, err := l.ask(ctx, hash)
		if err == nil || errors.Is(err, rules.ErrNotFound) {
			l.keep(hash, answer[T]{found: found, err: err, at: time.Now()})
		}
		return found, err
	})
	select {
	case <-ctx.Done():
		return found, ctx.Err()
	case a := <-asked:
		found, _ = a.Val.(T)
		return found, a.Err
	}
}

// forget has the store asked again about what it said before.
func (l *lookups[T]) forget(which func(hash string, found *T) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.answers, func(hash string, a answer[T]) bool { return which(hash, &a.found) })
}

// keep forgets everything when there is no room: at worst each caller is looked up once more, and no made-up token
// stays longer than a good one.
func (l *lookups[T]) keep(hash string, a answer[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.answers) >= maxAnswers {
		clear(l.answers)
	}
	l.answers[hash] = a
}
