package meter

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

const (
	// maxWaiting is how many keys wait at most, in all, while others are being counted: 0.3 MB.
	maxWaiting = 4096
	// batch is how many keys are counted at once. Between two decisions what the lists are made of leaves the processor's
	// caches, so that to count one by one costs twice as much.
	batch = 32
	// maxValues is the longest encoding of a key that is kept until it is shown: a longer one is shown at once, so that
	// memory is not by what callers send.
	maxValues = 256
)

// keys are those that a version goes against, in the open window.
type keys struct {
	mu     sync.Mutex // only tried, but by whoever closes the window
	sketch *sketch    // nil until the first one
}

// sketch is what is known of the keys of one window.
type sketch struct {
	top      tally.TopKeys
	shown    []shown        // by place in top
	distinct tally.Distinct // all keys, once there are as many as top holds; until then top has them
	pending  []hit          // not counted yet, less than batch
	refused  sample
	would    sample // have been refused
}

// sample is a random choice of refusals: each has the same chance (Vitter's Algorithm R, 1985), so that what is copied of
// requests grows with the logarithm of the refusals.
type sample struct {
	seen int64 // that might have been in it
	kept []refusal
}

// hit is one key that a version refused, or would have.
type hit struct {
	key    tally.KeyID
	spec   *rules.Spec
	values rules.Key
	would  bool
}

// waiting is one that could not be noted at once.
type waiting struct {
	version *version
	hit
}

// add notes a key. The caller holds mu.
func (k *keys) add(in *domain, h *hit) {
	if k.sketch == nil {
		k.sketch = &sketch{}
	}
	k.sketch.pending = append(k.sketch.pending, *h)
	if len(k.sketch.pending) == batch {
		k.sketch.catchUp(in)
	}
}

// sample keeps a refusal as one of the sample. It was added, and the caller holds mu.
func (k *keys) sample(v *version, d *enforce.Decision, o *enforce.VersionOutcome) {
	s := &k.sketch.refused
	if o.Outcome == tally.WouldRefuse {
		s = &k.sketch.would
	}
	s.seen++
	if len(s.kept) < MaxVersionRefusals {
		s.kept = append(s.kept, newRefusal(v, d, o))
	} else if i := rand.Int64N(s.seen); i < MaxVersionRefusals { //nolint:gosec // no secret
		s.kept[i] = newRefusal(v, d, o)
	}
}

// refusals are those that are told of: what was refused goes before what would have been, since somebody was told its
// reference and may ask.
func (s *sketch) refusals() []tally.Refusal {
	kept := slices.Concat(s.refused.kept, s.would.kept)
	list := make([]tally.Refusal, min(len(kept), MaxVersionRefusals))
	for i := range list {
		list[i] = kept[i].tally()
	}
	return list
}

// take returns the sketch of the window, and puts the empty one in its place. It returns nil, and puts none there, where
// there was nothing: a version that goes against nobody any more costs no memory.
func (k *keys) take(in *domain, empty *sketch) *sketch {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.sketch
	if was == nil {
		return nil
	}
	was.catchUp(in)
	k.sketch = nil
	if len(was.shown) == 0 {
		return nil
	}
	k.sketch = empty
	return was
}

// catchUp counts what is pending.
func (s *sketch) catchUp(in *domain) {
	for i := range s.pending {
		s.count(in, &s.pending[i])
	}
	clear(s.pending)
	s.pending = s.pending[:0]
}

func (s *sketch) count(in *domain, h *hit) {
	var refused, would int64 = 1, 0
	if h.would {
		refused, would = 0, 1
	}
	place, entered := s.top.Count(h.key, refused, would)
	if !entered {
		return
	}
	key := newShown(in, h.spec, h.values)
	switch {
	case place < len(s.shown):
		s.shown[place] = key
		s.distinct.Add(h.key)
	default:
		s.shown = append(s.shown, key)
		if len(s.shown) == tally.MaxTopKeys {
			s.distinct.Widen()
			s.distinctOf(s.top.Keys())
		}
	}
}

func (s *sketch) distinctOf(list []tally.KeyCount) {
	for i := range list {
		s.distinct.Add(list[i].Key)
	}
}

func (s *sketch) reset() {
	s.top.Reset()
	clear(s.shown)
	s.refused.reset()
	s.would.reset()
	s.shown, s.distinct = s.shown[:0], tally.Distinct{}
}

func (s *sample) reset() {
	clear(s.kept) // what it holds of requests
	s.kept, s.seen = s.kept[:0], 0
}

// shown is a key that may have to be shown: its label costs more than a count, and is made where nobody waits for it.
type shown struct {
	spec   *rules.Spec
	values rules.Key
	made   string // where the values are not kept
}

func newShown(in *domain, spec *rules.Spec, values rules.Key) shown {
	if len(values.Encoded()) > maxValues {
		return shown{made: tally.Label(*in.secret.Load(), spec, values)}
	}
	return shown{spec: spec, values: values}
}

func (s *shown) label(in *domain) string {
	if s.spec == nil {
		return s.made
	}
	return tally.Label(*in.secret.Load(), s.spec, s.values)
}

// refusal is what is kept of a request that was refused, or would have been.
type refusal struct {
	at        time.Time
	version   *version
	outcome   tally.Outcome
	limit     string
	key       tally.KeyID
	shown     shown
	path      string
	reference string
}

func newRefusal(v *version, d *enforce.Decision, o *enforce.VersionOutcome) refusal {
	r := refusal{
		at: time.Now(), version: v, outcome: o.Outcome, key: o.Key, shown: newShown(v.in, &o.Version.Spec, o.Values), reference: d.Reference,
	}
	if o.Limit != tally.NoLimit {
		r.limit = o.Version.Spec.Limits[o.Limit].Name
	}
	path := o.Request.Path
	for i := range d.Outcomes {
		path = d.Outcomes[i].Version.Spec.HidePath(path) // also what another rule hashes
	}
	// A copy: the path is part of all that the request said, which would be kept with it. What is cut here is longer than what
	// is shown.
	r.path = strings.Clone(path[:min(len(path), 2*tally.MaxPath)])
	return r
}

func (r *refusal) label() string { return r.shown.label(r.version.in) }

func (r *refusal) shownPath() string { return tally.Printable(r.path, tally.MaxPath) }

func (r *refusal) tally() tally.Refusal {
	return tally.Refusal{
		Time: micros(r.at), Domain: r.version.domain, UID: r.version.uid, Version: r.version.number, Limit: r.limit, Outcome: r.outcome,
		Key: r.key, Label: r.label(), Path: r.shownPath(), Reference: r.reference,
	}
}
