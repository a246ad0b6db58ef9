package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

const (
	// believed is how long the answer of the store counts: so long a revoked credential still opens calls.
	believed = 5 * time.Second
	// maxAnswers bounds the answers kept. Anybody can make up tokens, each of which is an answer: see keep.
	maxAnswers = 10_000
	// askTime bounds one question. It is asked for all who wait for its answer, and outlives the one who asked first.
	askTime = 5 * time.Second
)

// lookups remember for a moment what the store said.
type lookups struct {
	store Store
	asked singleflight.Group // by hash

	mu      sync.Mutex
	answers map[string]answer // by hash
}

type answer struct {
	credential access.Credential
	err        error // nil or rules.ErrNotFound
	at         time.Time
}

func newLookups(store Store) *lookups { return &lookups{store: store, answers: map[string]answer{}} }

func (l *lookups) credential(ctx context.Context, hash string) (access.Credential, error) {
	l.mu.Lock()
	known, ok := l.answers[hash]
	l.mu.Unlock()
	if ok && time.Since(known.at) < believed {
		return known.credential, known.err
	}
	found, err, _ := l.asked.Do(hash, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		c, err := l.store.Credential(ctx, hash)
		if err == nil || errors.Is(err, rules.ErrNotFound) {
			l.keep(hash, answer{credential: c, err: err, at: time.Now()})
		}
		return c, err
	})
	c, _ := found.(access.Credential)
	return c, err
}

// keep forgets everything when there is no room: at worst each caller is looked up once more, and no made-up token
// stays longer than a good one.
func (l *lookups) keep(hash string, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.answers) >= maxAnswers {
		clear(l.answers)
	}
	l.answers[hash] = a
}
