// Package redislimit keeps counters in Redis, shared by all sidecars. One script call judges and settles a request,
// whatever the number of rules and limits (decide.lua); time is Redis's own, so the clocks of the sidecars do not
// matter.
//
// A counter is one key, `hg:{tag}:id`, of fixed size (50 bytes), which holds no raw value and always expires. The script
// derives no key name: all of them are passed in KEYS.
//
// A call that does not answer within the budget is an error; it is not repeated, since its charges may have been taken.
// After a few of them a circuit breaker opens, and calls fail at once, save one now and then that tries whether the server
// is back. A server that nobody asks is asked by the limiter itself, once a second, so that it knows of an outage, and of
// its end, without any request. There is one server, so one breaker; a cluster needs one for each of its nodes.
package redislimit

import (
	"context"
	"crypto/tls"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/sony/gobreaker/v2"

	"github.com/headgate/headgate/enforce"
)

//go:embed decide.lua
var decideLua string

var decide = redis.NewScript(decideLua)

// The client library logs each failed dial, through one logger for the whole process. Callers get those errors returned.
func init() { logging.Disable() }

// DefaultBudget is how long Redis may take to answer by default.
const DefaultBudget = 5 * time.Millisecond

// Options say which Redis, and how long it may take.
type Options struct {
	Addr               string // host and port
	Username, Password string
	DB                 int
	TLS                *tls.Config // nil: none
	// Budget is how long a decision may wait for the answer, from the moment it is sent, and before that for a connection,
	// of which there are enough except after they broke; DefaultBudget when 0.
	Budget     time.Duration
	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: no metrics
}

// ParseURL reads redis://[USER:PASSWORD@]HOST[:PORT][/DB], or rediss:// for TLS.
func ParseURL(text string) (Options, error) {
	u, err := redis.ParseURL(text)
	if err != nil || strings.Contains(text, "?") || u.Network != "tcp" {
		return Options{}, errors.New("not of the form redis://[USER:PASSWORD@]HOST[:PORT][/DB], or rediss:// for TLS")
	}
	return Options{Addr: u.Addr, Username: u.Username, Password: u.Password, DB: u.DB, TLS: u.TLSConfig}, nil
}

const (
	// dialTimeout bounds the making of a connection, for which no decision waits so long.
	dialTimeout = time.Second
	// minIdle is how many connections are kept ready; under load there are up to four times as many. The client library
	// counts those that are being made too, so that the latter must be well above the former.
	minIdle = 16
)

// Limiter is an [enforce.Limiter] in Redis.
type Limiter struct {
	client   *redis.Client
	script   *redis.Script
	budget   time.Duration
	log      *slog.Logger
	breaker  *gobreaker.CircuitBreaker[reply]
	degraded degraded
	policies *prometheus.GaugeVec
	stale    atomic.Int64
	asked    atomic.Bool           // since the keeper looked last
	failed   atomic.Pointer[error] // the last failure

	stop    context.CancelFunc // of the keeper
	kept    chan struct{}      // is closed when it has ended
	changed chan struct{}      // wakes it
	policy  string             // the keeper's: the maxmemory-policy that it saw last

	mu       sync.Mutex
	watch    func(up bool, cause error)
	toldDown bool
}

// New returns a limiter. It does not wait for Redis: a sidecar starts without it.
func New(o Options) *Limiter {
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Limiter{
		budget: o.Budget, script: decide, log: o.Log.With("component", "redis", "addr", o.Addr),
		client: redis.NewClient(clientOptions(&o)), degraded: newDegraded(o.Registerer), policies: newPolicies(&o),
		changed: make(chan struct{}, 1), kept: make(chan struct{}),
	}
	l.client.AddHook(greeted{})
	l.breaker = newBreaker(o.Addr, l.wake)
	if o.Registerer != nil {
		o.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headgate_store_breaker_state", ConstLabels: prometheus.Labels{"node": o.Addr},
			Help: "State of the circuit breaker of a Redis: 0 closed, it is asked; 1 half open, one decision tries; 2 open.",
		}, func() float64 { return float64(l.breaker.State()) }))
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go l.keep(ctx)
	return l
}

func clientOptions(o *Options) *redis.Options {
	return &redis.Options{
		Addr:   o.Addr,
		Dialer: newDialer(o).dial,
		// Connections are made ahead of the requests that need them. One that is being made when a budget ends is kept for the
		// next.
		DialTimeout:  dialTimeout,
		MinIdleConns: minIdle,
		PoolSize:     4 * minIdle,
		// The dialer sets connections up. RESP2, in which they begin, is enough.
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		// One attempt: a repeated charge would be taken twice.
		MaxRetries:    -1,
		DialerRetries: 1,
		// An answer has its whole time from the moment the command is sent: time in which this process did not get on before is
		// not the store's.
		ReadTimeout:  o.Budget,
		WriteTimeout: o.Budget,
		PoolTimeout:  o.Budget,
	}
}

// Stale returns how many stored states were dropped because they were more than one window ahead of Redis's clock: a
// failover to a server with an older one.
func (l *Limiter) Stale() int64 { return l.stale.Load() }

// Close ends what looks after the store, and closes the connections.
func (l *Limiter) Close() error {
	l.stop()
	<-l.kept
	return l.client.Close()
}

// serverClock asks the script to use Redis's time.
const serverClock = -1

// Decide judges and settles the charges at Redis's time.
func (l *Limiter) Decide(ctx context.Context, charges []enforce.Charge) ([]enforce.Verdict, error) {
	return l.DecideAt(ctx, serverClock, charges)
}

// DecideAt judges and settles the charges at an instant in microseconds: for tests and for replays on a virtual clock.
// Counters then live an hour longer than they need.
func (l *Limiter) DecideAt(ctx context.Context, micros int64, charges []enforce.Charge) ([]enforce.Verdict, error) {
	if !l.asked.Load() {
		l.asked.Store(true)
	}
	keys, args := encode(micros, charges)
	reply, err := l.ask(ctx, keys, args)
	if err != nil {
		return nil, l.fail(err)
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

// ask calls the script, if the breaker lets it.
func (l *Limiter) ask(ctx context.Context, keys []string, args []any) (reply, error) {
	return l.breaker.Execute(func() (reply, error) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(ctx, l.budget)
		defer cancel()
		r, err := l.script.Run(ctx, l.client, keys, args...).Int64Slice()
		if errors.Is(err, context.DeadlineExceeded) && time.Since(begun) >= l.budget+late {
			err = fmt.Errorf("%w: %w", errLate, err)
		}
		if err != nil {
			l.failed.Store(&err)
		}
		return r, err
	})
}

// fail counts a decision that was not made.
func (l *Limiter) fail(err error) error {
	reason := reasonOf(err)
	l.degraded[reason].Inc()
	if reason == reasonBreaker {
		return errNotAsked
	}
	return fmt.Errorf("decide in redis: %w", err)
}

// errNotAsked costs nothing to return, as often as it is during an outage.
var errNotAsked = errors.New("decide in redis: it does not answer, and is tried again soon")

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
