package redislimit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// policyUnknown is told until the server has said its maxmemory-policy, and where its user may not ask.
const policyUnknown = "unknown"

// policies are all that maxmemory-policy can be. With any but the first, counters vanish when memory is full.
var policies = []string{
	"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
	"other", policyUnknown,
}

// newPolicies returns the metric of the server's policy, with a series for each, so that an alert on one has data from the
// start.
func newPolicies(o *Options) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "headgate_store_maxmemory_policy", ConstLabels: prometheus.Labels{"node": o.Addr},
		Help: "1 for the maxmemory-policy that a Redis has. With any but noeviction it may evict counters, and each one evicted is a fresh budget.",
	}, []string{"policy"})
	if o.Registerer != nil {
		o.Registerer.MustRegister(vec)
	}
	tellPolicy(vec, policyUnknown)
	return vec
}

func tellPolicy(vec *prometheus.GaugeVec, policy string) {
	if !slices.Contains(policies, policy) {
		policy = "other"
	}
	for _, p := range policies {
		vec.WithLabelValues(p).Set(0)
	}
	vec.WithLabelValues(policy).Set(1)
}

// checkPolicy warns of a server that may evict counters, once for each policy. It reports whether the server answered.
func (l *Limiter) checkPolicy(ctx context.Context) (answered bool) {
	info, err := l.client.Info(ctx, "memory").Result()
	if err != nil {
		var said redis.Error // such as that this user may not ask: then nobody can be warned
		return errors.As(err, &said)
	}
	for line := range strings.Lines(info) {
		policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:")
		if !ok || policy == l.policy {
			continue
		}
		l.policy = policy
		tellPolicy(l.policies, policy)
		if policy != "noeviction" {
			l.log.Warn("redis may evict counters when its memory is full, and each one evicted is a fresh budget: set maxmemory-policy to noeviction", "policy", policy)
		}
	}
	return true
}
