package replay

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// Replay is an engine on a virtual clock.
type Replay struct {
	engine *enforce.Engine
	clock  *clock
	giveUp func(context.Context) error
}

// New opens a store (memory, or redis://HOST:PORT) and returns a replay without rules. Close it.
func New(store string) (*Replay, error) {
	c, giveUp, err := openStore(store)
	if err != nil {
		return nil, err
	}
	return &Replay{engine: enforce.NewEngine(c, nobody{}, slog.New(slog.DiscardHandler)), clock: c, giveUp: giveUp}, nil
}

// nobody records nothing: a replay reads its decisions.
type nobody struct{}

func (nobody) Record(string, *enforce.Decision) {}

// closeWithin bounds the deleting of counters, which is done also when the run was interrupted.
const closeWithin = 30 * time.Second

// Close deletes what the replay left in the store, and lets go of it; also when ctx has ended.
func (r *Replay) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return r.giveUp(ctx)
}

// Put puts an index in force.
func (r *Replay) Put(index *rules.Index) { r.engine.Swap(index) }

// Decide decides a call at an instant in microseconds since 1970. The call is one request, or several descriptors.
func (r *Replay) Decide(ctx context.Context, micros int64, reqs ...*rules.Request) (enforce.Decision, error) {
	r.clock.now = micros
	d := r.engine.DecideAll(ctx, reqs)
	if r.clock.err != nil {
		return d, r.clock.err
	}
	return d, ctx.Err()
}

// NewDomain returns the domain of a rule set with a random secret, so that no two replays share a counter.
func NewDomain(set *rulefile.RuleSet) rules.Domain {
	d := rules.Domain{Name: set.Domain, Revision: 1, Shard: set.Shard, Exempt: set.Exempt}
	_, _ = rand.Read(d.Secret[:]) // never fails since Go 1.24
	return d
}

// NewRules returns the rules of a set as version 1, with random identities: enforced, or those that shadow is true for
// as what-if only. A nil shadow is true for none.
func NewRules(set *rulefile.RuleSet, shadow func(name string) bool) []*rules.Rule {
	list := make([]*rules.Rule, len(set.Rules))
	for i, r := range set.Rules {
		v := &rules.Version{Number: 1, Spec: r.Spec}
		list[i] = &rules.Rule{Domain: set.Domain, Name: r.Name, UID: rules.NewUID(), Revision: 1}
		if shadow != nil && shadow(r.Name) {
			list[i].Candidate, list[i].Salt, list[i].Epoch = v, rules.NewSalt(), 1
		} else {
			list[i].Stable = v
		}
	}
	return list
}

// earliest is about when virtual time begins.
var earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Start returns the instant, in microseconds since 1970, at which a replay of the rules begins when nothing else says so:
// a multiple of every window in use, so that windows begin where a test's time does. It depends on the windows alone.
// 1970 itself is a multiple of all; it is used when there is no other before the year 2100.
func Start(list []*rules.Rule) int64 {
	seconds := int64(1)
	for _, r := range list {
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if v == nil {
				continue
			}
			for i := range v.Spec.Limits {
				if w := int64(v.Spec.Limits[i].Window() / time.Second); w > 0 {
					seconds = seconds / divisor(seconds, w) * w
				}
			}
			if seconds > maxStart.Unix() {
				return 0
			}
		}
	}
	if start := (earliest.Unix() + seconds - 1) / seconds * seconds; start <= maxStart.Unix() {
		return start * 1_000_000
	}
	return 0
}

var maxStart = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// divisor is the greatest common divisor.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// RetryAfter is what a caller is told to wait, in whole seconds, rounded up and never 0; false when waiting cannot help,
// and on an allowed request.
func RetryAfter(d *enforce.Decision) (seconds int64, ok bool) {
	if d.Allowed || d.Wait == enforce.Never || d.Wait < 0 {
		return 0, false
	}
	seconds = int64(d.Wait / time.Second)
	if d.Wait%time.Second > 0 {
		seconds++
	}
	return max(1, seconds), true
}

// OneDomain returns the set of the domain named, or the only one where none is named.
func OneDomain(sets []rulefile.RuleSet, name string) (*rulefile.RuleSet, error) {
	names := make([]string, len(sets))
	for i := range sets {
		if sets[i].Domain == name || name == "" && len(sets) == 1 {
			return &sets[i], nil
		}
		names[i] = sets[i].Domain
	}
	if name == "" {
		return nil, fmt.Errorf("the files have several domains: name one of %s", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there is no domain %q in the files: they have %s", name, strings.Join(names, ", "))
}
