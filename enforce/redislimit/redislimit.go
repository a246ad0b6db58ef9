// Package redislimit keeps counters in Redis, shared by all sidecars. One script call judges and settles a request,
// whatever the number of rules and limits (decide.lua); time is Redis's own, so the clocks of the sidecars do not
// matter.
//
// A counter is one key, `hg:{tag}:id`, of fixed size (50 bytes), which holds no raw value and always expires. The script
// derives no key name: all of them are passed in KEYS.
//
// A call that does not answer within the budget is an error; it is not repeated, since its charges may have been taken.
package redislimit

import (
	"context"
	"crypto/tls"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/enforce"
)

//go:embed decide.lua
var decideLua string

var decide = redis.NewScript(decideLua)

// The client library logs each failed dial, through one logger for the whole process. Callers get those errors returned.
func init() { logging.Disable() }

// DefaultBudget is how long a decision may take by default, connection included.
const DefaultBudget = 5 * time.Millisecond

// Options say which Redis, and how long it may take.
type Options struct {
	Addr               string // host and port
	Username, Password string
	DB                 int
	TLS                *tls.Config // nil: none
	// Budget bounds one decision; DefaultBudget when 0.
	Budget time.Duration
}

// ParseURL reads redis://[USER:PASSWORD@]HOST[:PORT][/DB], or rediss:// for TLS.
func ParseURL(text string) (Options, error) {
	u, err := redis.ParseURL(text)
	if err != nil || strings.Contains(text, "?") || u.Network != "tcp" {
		return Options{}, errors.New("not of the form redis://[USER:PASSWORD@]HOST[:PORT][/DB], or rediss:// for TLS")
	}
	return Options{Addr: u.Addr, Username: u.Username, Password: u.Password, DB: u.DB, TLS: u.TLSConfig}, nil
}

// Limiter is an [enforce.Limiter] in Redis.
type Limiter struct {
	client *redis.Client
	script *redis.Script
	budget time.Duration
	stale  atomic.Int64
}

// New returns a limiter. It does not wait for Redis: a sidecar starts without it.
func New(o Options) *Limiter {
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	return &Limiter{
		budget: o.Budget,
		script: decide,
		client: redis.NewClient(&redis.Options{
			Addr:      o.Addr,
			Username:  o.Username,
			Password:  o.Password,
			DB:        o.DB,
			TLSConfig: o.TLS,
			// One attempt: a repeated charge would be taken twice.
			MaxRetries:    -1,
			DialerRetries: 1,
			// Connections are made ahead of the requests that need them: a decision's budget is too short for both. One that
			// is being made when a budget ends is kept for the next.
			DialTimeout:           time.Second,
			MinIdleConns:          16,
			ReadTimeout:           o.Budget,
			WriteTimeout:          o.Budget,
			PoolTimeout:           o.Budget,
			ContextTimeoutEnabled: true,
		}),
	}
}

// Stale returns how many stored states were dropped because they were more than one window ahead of Redis's clock: a
// failover to a server with an older one.
func (l *Limiter) Stale() int64 { return l.stale.Load() }

// Close closes the connections.
func (l *Limiter) Close() error { return l.client.Close() }

// serverClock asks the script to use Redis's time.
const serverClock = -1

// Decide judges and settles the charges at Redis's time.
func (l *Limiter) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	return l.DecideAt(ctx, serverClock, charges)
}

// DecideAt judges and settles the charges at an instant in microseconds: for tests and for replays on a virtual clock.
// Counters then live an hour longer than they need.
func (l *Limiter) DecideAt(ctx context.Context, micros int64, charges []enforce.Charge) ([]enforce.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, l.budget)
	defer cancel()
	keys, args := encode(micros, charges)
	reply, err := l.script.Run(ctx, l.client, keys, args...).Int64Slice()
	if err != nil {
		return nil, fmt.Errorf("decide in redis: %w", err)
	}
	if len(reply) != 1+3*len(charges) {
		return nil, fmt.Errorf("decide in redis: %d numbers for %d charges", len(reply), len(charges))
	}
	l.stale.Add(reply[0])
	verdicts := make([]enforce.Verdict, len(charges))
	for i := range charges {
		fits, left, wait := reply[1+3*i], reply[2+3*i], reply[3+3*i]
		verdicts[i] = enforce.Verdict{Fits: fits == 1, Left: left, Wait: enforce.Never}
		if wait >= 0 {
			verdicts[i].Wait = enforce.TicksToDuration(wait, charges[i].Tick)
		}
	}
	return verdicts, nil
}

// encode lays the charges out as decide.lua reads them.
func encode(micros int64, charges []enforce.Charge) (keys []string, args []any) {
	var counters []enforce.Counter
	position := func(c enforce.Counter) int {
		i := slices.Index(counters, c)
		if i < 0 {
			i = len(counters)
			counters = append(counters, c)
			keys = append(keys, KeyName(c))
		}
		return i + 1
	}
	args = append(make([]any, 0, 1+12*len(charges)), micros)
	for i := range charges {
		c := &charges[i]
		flags := 0
		if c.WhatIf {
			flags++
		}
		if c.Owns {
			flags += 2
		}
		if c.Limit.Sliding {
			flags += 4
		}
		args = append(args, c.Rule, c.Version, flags, c.Cost, c.Limit.Amount, c.Limit.Burst, c.Limit.Ceiling,
			c.Limit.Window, c.Tick.Microseconds(), position(c.Decides), position(c.Actual), max(c.Keep, c.Limit.Ceiling))
	}
	return keys, args
}

// KeyName returns the Redis key of a counter: `hg:{tag}:id`, 50 bytes.
func KeyName(c enforce.Counter) string {
	b := make([]byte, 0, 50)
	b = append(b, "hg:{"...)
	b = base64.RawURLEncoding.AppendEncode(b, c.Tag[:])
	b = append(b, "}:"...)
	b = base64.RawURLEncoding.AppendEncode(b, c.ID[:])
	return string(b)
}
