package enforce

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/dchest/siphash"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Counter names one counter. Both parts are keyed hashes: no raw value can be read from them, and no caller can choose
// one. Counters with the same Tag are kept in the same slot of a Redis Cluster.
type Counter struct {
	Tag, ID [16]byte
}

// A Charge asks whether a cost fits one limit of one version of a rule.
type Charge struct {
	// Rule and Version number the rules and the versions of the request: charges of one version share both, whatever their keys.
	Rule, Version int
	// WhatIf marks a version that is only judged: it never changes what binds.
	WhatIf bool
	// Cost may be 0, to look without spending, or negative, to give back.
	Cost  int64
	Limit Limit
	Tick  time.Duration // the unit of Limit.Window and of the stored times
	// Decides is the counter that is read. It is Actual, or a what-if counter, which starts as a copy of Actual.
	Decides Counter
	// Actual counts what was admitted, whichever version binds.
	Actual Counter
	// Owns marks the one charge among those with the same Actual whose cost and numbers it is charged with. Where no
	// charge owns it, it is not charged.
	Owns bool
	// Keep is, for an owner, the most tokens as which the actual counter is stored, where that is more than its own ceiling:
	// another version binds for other callers of this counter, and must find what it admitted.
	Keep int64
}

// A Verdict answers a charge.
type Verdict struct {
	Fits bool
	// Left is what remains after this request.
	Left int64
	// Wait is the time until the cost fits if nothing else is spent, in whole ticks, rounded up; Never when waiting
	// cannot help. Of a charge that was taken it is the time until more is left; 0 when all is.
	Wait time.Duration
}

// denied is the charge of a version that refuses without asking a counter: with an amount of 0 nothing fits, it owns
// nothing, and no counter is named by a hash of zeros.
func denied(rule, version int, whatIf bool, tag [16]byte) Charge {
	nothing := Counter{Tag: tag}
	return Charge{
		Rule: rule, Version: version, WhatIf: whatIf, Limit: Limit{Window: 1}, Tick: time.Second, Decides: nothing, Actual: nothing,
	}
}

// Never is the wait of a cost that no time makes fit.
const Never time.Duration = -1

// Limiter judges and settles the charges of one request in one atomic step at one instant, as [Settle] says, and
// returns a verdict for each charge in their order. On an error nothing is known: the charges may or may not have been
// taken, and the caller must not repeat them. It is safe for concurrent use, and answers or fails within a bounded time.
type Limiter interface {
	Decide(ctx context.Context, charges []Charge) ([]Verdict, error)
}

// role says whose what-if counter it is. It is part of the counter's name, so its numbers never change.
type role byte

const (
	roleActual role = iota
	roleStable
	roleCandidate
	roleFrozen // the version that would bind, were it not for a freeze
)

// limitPlan is what all requests of one limit of one version have in common.
type limitPlan struct {
	limit    *rules.Limit
	position int // in the spec
	tick     time.Duration
	prefix   []byte           // the part of the counter's name that does not depend on the request
	rate     Limit            // of values that are not in values
	values   map[string]Limit // by the value of limit.By
}

// versionPlan is a version made ready for requests.
type versionPlan struct {
	spec   *rules.Spec
	key    []byte // the part of the key's name that does not depend on the request
	limits []limitPlan
	shard  int // which part of the key the counters of the domain keep together by; -1: the whole key
	// overrides are those that hold for the limits; where a key has several for one limit, the first in force counts.
	overrides []overridePlan
}

// overridePlan is an override of one limit.
type overridePlan struct {
	key     rules.OverrideKey
	limit   int // position in the plan's limits
	until   time.Time
	numbers Limit // without a window it is unlimited
}

func planVersion(r *rules.Rule, spec *rules.Spec, shard *rules.Source) *versionPlan {
	v := &versionPlan{spec: spec, key: tally.KeyPrefix(spec), shard: -1}
	for i, k := range spec.Key {
		if shard != nil && k.Source == *shard {
			v.shard = i
		}
	}
	for i := range spec.Limits {
		l := &spec.Limits[i]
		window := l.Window()
		if window == 0 {
			continue // unlimited, whatever the request
		}
		// The name leaves out amount and burst, so that a changed number keeps the counter.
		prefix := rules.AppendString(nil, r.UID)
		prefix = rules.AppendString(prefix, l.Name)
		prefix = rules.AppendString(prefix, string(l.Algorithm))
		prefix = binary.BigEndian.AppendUint64(prefix, uint64(window)) //nolint:gosec // windows are positive
		p := limitPlan{limit: l, position: i, tick: rules.Tick(window), prefix: append(prefix, v.key...), rate: NewLimit(l, l.Rate)}
		for value, rate := range l.Values {
			if p.values == nil {
				p.values = map[string]Limit{}
			}
			p.values[value] = NewLimit(l, rate)
		}
		v.limits = append(v.limits, p)
		v.planOverrides(r, l)
	}
	return v
}

// planOverrides adds the rule's overrides of the limit that was planned last.
func (v *versionPlan) planOverrides(r *rules.Rule, l *rules.Limit) {
	for i := range r.Overrides {
		if o := &r.Overrides[i]; o.HoldsFor(v.spec, l) {
			v.overrides = append(v.overrides, overridePlan{key: o.Key, limit: len(v.limits) - 1, until: o.Until, numbers: overrideLimit(l, o.Rate)})
		}
	}
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

// key names a key as [tally.KeyOf] does.
func (n *namer) key(v *versionPlan, key rules.Key) tally.KeyID { return n.hash(v.key, key.Encoded()) }

// tag names the slot of a version's counters for a key: that of the shard's value where the key has it, else of the key,
// whose name is given. Versions and rules with the same key share it.
func (n *namer) tag(v *versionPlan, key rules.Key, id tally.KeyID) [16]byte {
	if v.shard < 0 {
		return id
	}
	return n.hash(rules.AppendString(nil, v.spec.Key[v.shard].Identity()), key.Part(v.shard))
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
