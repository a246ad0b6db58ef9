package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
)

// lastGood is the version of a rule for a node that refused the newest one and holds none.
type lastGood struct {
	want
	resource *discovery.Resource
}

// want is a rule that a node refused, holding nothing of it.
type want struct {
	rule     string
	version  string // of the refused resource
	revision int64  // that made it
}

// lastGood takes those of the peer's last good versions that a response can hold, with the domain's resource behind them.
// They are for a client at the head, and only while what it refused is still the newest. The caller holds the cache's
// lock.
func (p *peer) lastGood(s *state, h *held, limit int) []*discovery.Resource {
	d, list := s.domains[h.domain], p.good[h.domain]
	if d == nil || len(list) == 0 || s.foreign(h.at) || d.ahead(h.at) {
		return nil
	}
	var resources []*discovery.Resource
	size := 0
	for len(list) > 0 && size < limit {
		g := list[0]
		list = list[1:]
		if newest := d.find(g.rule); newest != nil && newest.GetVersion() == g.version {
			resources = append(resources, g.resource)
			size += proto.Size(g.resource)
		}
	}
	p.good[h.domain] = list
	if len(resources) == 0 {
		return nil
	}
	return append(resources, d.own())
}

// ask is a node's need of last good versions.
type ask struct {
	peer   *peer
	domain string
	level  int
	wants  []want
}

// askFor queues what a node needs. A version comes once on a stream, so what stands in for it does too; and of what stands
// in, a refusal asks for nothing. The caller holds the lock.
func (f *Fleet) askFor(p *peer, r *record, wants []want) {
	if f.o.Feed != nil && len(wants) > 0 {
		f.queue(ask{peer: p, domain: r.Domain, level: r.Level, wants: wants})
	}
}

// queue has the look-up made after those that wait. The caller holds the lock.
func (f *Fleet) queue(a ask) {
	f.asks = append(f.asks, a)
	select {
	case f.asked <- struct{}{}:
	default: // a token is there already
	}
}

// serveAsks looks up what nodes need, one after the other, until ctx ends. Nothing else waits for it. What cannot be read
// is tried again behind the others.
func (f *Fleet) serveAsks(ctx context.Context) {
	retry := newBackoff(100*time.Millisecond, 5*time.Second)
	failing := false
	for {
		a, ok := f.nextAsk()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-f.asked:
			}
			continue
		}
		list, err := f.lookUp(ctx, a)
		if err == nil {
			failing = false
			retry.Reset()
			f.cache.offer(a.peer, a.domain, list)
			continue
		}
		if !failing {
			f.log.Error("last good rules for a node cannot be read: retrying", "domain", a.domain, "err", err)
		}
		failing = true
		f.mu.Lock()
		f.queue(a)
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// nextAsk returns the first of those that wait whose stream still holds the domain.
func (f *Fleet) nextAsk() (a ask, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.asks) > 0 {
		a, f.asks = f.asks[0], f.asks[1:]
		if a.peer.stream.holds(a.domain) {
			return a, true
		}
	}
	f.asks = nil
	return ask{}, false
}

// lookUp returns, of the rules that are wanted, the newest states that a node of the same feature level has taken, other
// than the refused ones. A rule of which that is none is left out.
func (f *Fleet) lookUp(ctx context.Context, a ask) ([]lastGood, error) {
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	stored, err := f.store.Taken(ctx, a.domain)
	if err != nil {
		return nil, err
	}
	newest := f.newestTaken(a.domain, a.level)
	for _, t := range stored {
		if t.Level == a.level {
			newest[t.Rule] = max(newest[t.Rule], t.Revision)
		}
	}
	var list []lastGood
	for _, w := range a.wants {
		// Where others of its level have taken what it refuses, the state before that is the best there is to offer.
		revision := min(max(newest[""], newest[w.rule]), w.revision-1)
		if revision <= 0 {
			continue
		}
		rule, err := f.o.Feed.RuleAt(ctx, a.domain, w.rule, revision)
		switch {
		case errors.Is(err, rules.ErrNotFound):
			continue
		case err != nil:
			return nil, fmt.Errorf("read rule %s as of revision %d: %w", xds.RuleName(a.domain, w.rule), revision, err)
		case rule.Deleted():
			continue
		}
		resource, err := xds.EncodeLastGood(&rule)
		if err != nil {
			return nil, err
		}
		list = append(list, lastGood{want: w, resource: resource})
	}
	return list, nil
}

// takenKey is what a [rollout.Taken] is about.
type takenKey struct {
	domain, rule string
	level        int
}

type takenAt struct {
	revision int64
	version  string // of the rule's resource; "" for a whole domain
}

// took notes what is in force at a node that answered a commit. The caller holds the lock.
func (f *Fleet) took(r *record, s *sent) {
	if r.lineage != s.lineage || s.lineage != f.takenOf {
		return
	}
	if r.hasAllRules() {
		f.take(takenKey{r.Domain, "", r.Level}, takenAt{revision: s.revision})
		return
	}
	if _, whole := r.refused[r.Domain]; whole || f.taken[takenKey{r.Domain, "", r.Level}].revision >= s.revision {
		return
	}
	for name, resource := range s.contents() {
		_, rule := xds.SplitName(name)
		if _, refused := r.refused[name]; refused || rule == "" || resource == nil {
			continue
		}
		f.take(takenKey{r.Domain, rule, r.Level}, takenAt{revision: s.revision, version: resource.GetVersion()})
	}
}

// take keeps what is news, to be saved: a newer revision that brought another version.
func (f *Fleet) take(key takenKey, at takenAt) {
	was := f.taken[key]
	if at.revision <= was.revision || at.version != "" && at.version == was.version {
		return
	}
	f.taken[key] = at
	f.dirtyTaken[key] = struct{}{}
	f.wakeUp()
}

func (f *Fleet) newestTaken(domain string, level int) map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	newest := map[string]int64{}
	for key, at := range f.taken {
		if key.domain == domain && key.level == level {
			newest[key.rule] = at.revision
		}
	}
	return newest
}

// takenBatch is what is to be saved of it.
func (f *Fleet) takenBatch() []rollout.Taken {
	batch := make([]rollout.Taken, 0, len(f.dirtyTaken))
	for key := range f.dirtyTaken {
		batch = append(batch, rollout.Taken{Domain: key.domain, Rule: key.rule, Level: key.level, Revision: f.taken[key].revision})
	}
	clear(f.dirtyTaken)
	return batch
}

// dirtyAgain has what could not be saved saved with the next batch.
func (f *Fleet) dirtyAgain(batch []rollout.Taken) {
	for _, t := range batch {
		key := takenKey{t.Domain, t.Rule, t.Level}
		if _, ok := f.taken[key]; ok {
			f.dirtyTaken[key] = struct{}{}
		}
	}
}
