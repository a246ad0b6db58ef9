package redislimit

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// The breaker opens after tripAfter failures in a row that took tripTime at least, so that one moment in which this
// machine does not get on, and all decisions under way fail at once, is not taken for an outage. Where decisions are
// rare, failing for tripIdle is enough.
const (
	tripAfter = 5
	tripTime  = 250 * time.Millisecond
	tripIdle  = time.Second
)

// openTime is how long an open breaker stays open before it lets one decision try: between one and two times this, by
// chance for each process, so that a fleet does not try all at once.
const openTime = 100 * time.Millisecond

// reply is what the script returns.
type reply = []int64

// newBreaker returns the breaker of one server. Changed is called with its lock held.
func newBreaker(node string, changed func()) *gobreaker.CircuitBreaker[reply] {
	var first time.Time // of the failures in a row; the breaker's lock guards it
	return gobreaker.NewCircuitBreaker[reply](gobreaker.Settings{
		Name:        node,
		MaxRequests: 1,
		Timeout:     openTime + rand.N(openTime), //nolint:gosec // no secret
		ReadyToTrip: func(c gobreaker.Counts) bool {
			if c.ConsecutiveFailures == 1 {
				first = time.Now()
				return false
			}
			lasted := time.Since(first)
			return c.ConsecutiveFailures >= tripAfter && lasted >= tripTime || lasted >= tripIdle
		},
		OnStateChange: func(string, gobreaker.State, gobreaker.State) { changed() },
		IsSuccessful:  func(err error) bool { return err == nil || reasonOf(err) == reasonReply },
		IsExcluded: func(err error) bool {
			return errors.Is(err, errLate) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, context.Canceled)
		},
	})
}

// Reasons why the store did not decide.
const (
	reasonBreaker    = "breaker"    // it failed before, and was not asked
	reasonTimeout    = "timeout"    // no answer within the budget
	reasonConnection = "connection" // no connection, or it broke
	reasonServer     = "server"     // it says that it cannot: loading, out of memory, a replica
	reasonReply      = "reply"      // another error, of this decision alone
)

var reasons = []string{reasonBreaker, reasonTimeout, reasonConnection, reasonServer, reasonReply}

// unable is how replies begin by which a server says that it can decide for nobody.
var unable = []string{
	"LOADING", "OOM", "READONLY", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "BUSY", "NOAUTH", "WRONGPASS",
	"NOPERM", "ERR max number of clients",
}

func reasonOf(err error) string {
	var said redis.Error
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return reasonBreaker
	case errors.As(err, &said):
		for _, prefix := range unable {
			if strings.HasPrefix(said.Error(), prefix) {
				return reasonServer
			}
		}
		return reasonReply
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout):
		return reasonTimeout
	}
	return reasonConnection
}

// degraded counts decisions that the store did not make, by reason.
type degraded map[string]prometheus.Counter

func newDegraded(reg prometheus.Registerer) degraded {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_degraded_decisions_total",
		Help: "Decisions that Redis did not make, so that the failure modes of the rules did, by reason.",
	}, []string{"reason"})
	if reg != nil {
		reg.MustRegister(vec)
	}
	d := degraded{}
	for _, r := range reasons {
		d[r] = vec.WithLabelValues(r)
	}
	return d
}
