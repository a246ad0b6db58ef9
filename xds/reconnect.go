package xds

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// FirstWait is the first wait of a sidecar between streams, on average.
const FirstWait = 200 * time.Millisecond

// SteadyAfter is how long a stream stays open, once something was exchanged, to count as a good one: the next wait is short
// again. A control plane that answers and then breaks the stream each time is not a good one.
const SteadyAfter = 2 * time.Second

// NewReconnect returns the waits between streams: they grow from [FirstWait] by 2.5 to 15 s, each half as long to half as
// long again. So there are about five tries in the first ten seconds, and a fleet that lost its control plane does not
// return in one wave.
func NewReconnect() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: FirstWait, MaxInterval: 15 * time.Second, Multiplier: 2.5, RandomizationFactor: 0.5}
}
