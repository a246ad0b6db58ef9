package enforce

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/dchest/siphash"

	"github.com/headgate/headgate/enforce/tokenbucket"
	"github.com/headgate/headgate/rules"
)

// Counter names one counter. Both parts are keyed hashes: no raw value can be read from them, and no caller can choose
// one. Counters with the same Tag are kept in the same slot of a Redis Cluster.
type Counter struct {
	Tag, ID [16]byte
}

// A Charge asks whether a cost fits one limit of one version of a rule.
type Charge struct {
	// Rule and Version number the rules and the versions of the request: charges of one version share both.
	Rule, Version int
	// WhatIf marks a version that is only judged: it never changes what binds.
	WhatIf bool
	Cost   int64
	Limit  tokenbucket.Params
	Tick   time.Duration // the unit of Limit.Window and of the stored times
	// Decides is the counter that is read. It is Actual, or a what-if counter, which starts as a copy of Actual.
	Decides Counter
	// Actual counts what was admitted. Every admitted request is charged to it, whichever version binds.
	Actual Counter
	// Owns marks the one charge among those with the same Actual whose cost and numbers it is charged with.
	Owns bool
}

// A Verdict answers a charge.
type Verdict struct {
	Fits bool
	// Left is what remains after this request.
	Left int64
	// Wait is the time until the cost fits if nothing else is spent, in whole ticks, rounded up; Never when waiting
	// cannot help.
	Wait time.Duration
}

// Never is the wait of a cost that no time makes fit.
const Never time.Duration = -1

// TicksToDuration converts a number of ticks; beyond what a Duration holds (292 years) it returns the longest one.
func TicksToDuration(ticks int64, tick time.Duration) time.Duration {
	if ticks > math.MaxInt64/int64(tick) {
		return math.MaxInt64
	}
	return time.Duration(ticks) * tick
}

// Limiter judges and settles the charges of one request in one atomic step at one instant, as [Settle] says, and
// returns a verdict for each charge in their order. On an error nothing is known: the charges may or may not have been
// taken, and the caller must not repeat them. It is safe for concurrent use, and answers or fails within a bounded time.
type Limiter interface {
	Decide(ctx context.Context, charges []Charge) ([]Verdict, error)
}

// State is a stored counter: see [tokenbucket.State].
type State = tokenbucket.State

// role says whose what-if counter it is. It is part of the counter's name, so its numbers never change.
type role byte

const (
	roleActual role = iota
	roleStable
	roleCandidate
)

// limitPlan is what all requests of one limit of one version have in common.
type limitPlan struct {
	name   string
	params tokenbucket.Params
	tick   time.Duration
	prefix []byte // the part of the counter's name that does not depend on the request
}

// versionPlan is a version made ready for requests.
type versionPlan struct {
	key     []rules.KeySource
	sources []byte // the part of the tag's name that does not depend on the request
	limits  []limitPlan
}

func planVersion(uid string, spec rules.Spec) *versionPlan {
	v := &versionPlan{key: spec.Key, sources: appendSources(nil, spec.Key)}
	for _, l := range spec.Limits {
		tick := rules.Tick(l.Rate.Window)
		// The name leaves out amount and burst, so that a changed number keeps the counter.
		prefix := rules.AppendString(nil, uid)
		prefix = rules.AppendString(prefix, l.Name)
		prefix = rules.AppendString(prefix, string(l.Algorithm))
		prefix = binary.BigEndian.AppendUint64(prefix, uint64(l.Rate.Window)) //nolint:gosec // windows are positive
		prefix = append(prefix, v.sources...)
		v.limits = append(v.limits, limitPlan{
			name: l.Name, tick: tick, prefix: prefix,
			params: tokenbucket.Params{
				Amount: l.Rate.Amount, Burst: l.Rate.Burst, Ceiling: l.Rate.Burst, Window: int64(l.Rate.Window / tick),
			},
		})
	}
	return v
}

func appendSources(b []byte, key []rules.KeySource) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(key))) //nolint:gosec // a handful
	for _, k := range key {
		b = rules.AppendString(b, k.String())
	}
	return b
}

// namer hashes names of counters with the domain's secret by SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012), a
// keyed pseudo-random function: without the secret nobody can find two keys that meet in one counter.
type namer struct {
	k0, k1 uint64
	buf    []byte
}

func newNamer(secret [16]byte) namer {
	return namer{k0: binary.LittleEndian.Uint64(secret[:8]), k1: binary.LittleEndian.Uint64(secret[8:])}
}

func (n *namer) hash(parts ...[]byte) (sum [16]byte) {
	n.buf = n.buf[:0]
	for _, p := range parts {
		n.buf = append(n.buf, p...)
	}
	lo, hi := siphash.Hash128(n.k0, n.k1, n.buf)
	binary.BigEndian.PutUint64(sum[:8], hi)
	binary.BigEndian.PutUint64(sum[8:], lo)
	return sum
}

func (n *namer) tag(v *versionPlan, key rules.Key) [16]byte {
	return n.hash(v.sources, key.Encoded())
}

// counter names a limit's counter for a key. A what-if counter is named by its role and the epoch of the trial as well:
// a new epoch starts it again, a new version number does not.
func (n *namer) counter(l *limitPlan, key rules.Key, r role, epoch int64) [16]byte {
	suffix := [9]byte{byte(r)}
	if r != roleActual {
		binary.BigEndian.PutUint64(suffix[1:], uint64(epoch)) //nolint:gosec // revisions are positive
	}
	return n.hash(l.prefix, suffix[:], key.Encoded())
}
