package push

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/xds"
)

// FleetOptions configure a [Fleet]. The zero value works.
type FleetOptions struct {
	// Feed gives the last good state of a rule to a node that refused the newest and holds none; nil: nothing does.
	Feed rollout.Feed
	// BreakGlass is handed each freeze that somebody made at a node itself, once or more often; nil: nobody is.
	BreakGlass func(ctx context.Context, node string, b rollout.BreakGlass) error

	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: not registered
}

// Fleet follows the streams of a [Cache] and keeps, per node and domain, what was sent, taken and refused.
//
// Its records change in the callbacks of the streams, which wait for nothing; [Fleet.Run] writes them to the store.
type Fleet struct {
	store   rollout.Fleet
	cache   *Cache
	o       FleetOptions
	log     *slog.Logger
	refused *prometheus.CounterVec
	wake    chan struct{} // holds one token: something is to be saved
	asked   chan struct{} // holds one token: asks is not empty

	mu sync.Mutex
	// current is, by node and domain, the newest stream of the node that subscribes to the domain: the one that holds it.
	// Only that one changes the record.
	current map[recordKey]*stream
	records map[recordKey]*record
	dirty   map[recordKey]struct{} // to be saved
	asks    []ask
	// unanswered are to be saved unless the answer comes soon; a timer runs while there are any.
	unanswered map[recordKey]struct{}

	takenOf    string                // the history of what follows
	taken      map[takenKey]takenAt  // the newest that was seen here
	dirtyTaken map[takenKey]struct{} // to be saved
}

type recordKey struct{ node, domain string }

// NewFleet returns the fleet that follows the streams of cache and saves to store.
func NewFleet(store rollout.Fleet, cache *Cache, o FleetOptions) (*Fleet, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{
		store: store, cache: cache, o: o, log: o.Log.With("component", "fleet"), refused: newRefused(),
		wake: make(chan struct{}, 1), asked: make(chan struct{}, 1),
		current: map[recordKey]*stream{}, records: map[recordKey]*record{}, dirty: map[recordKey]struct{}{}, unanswered: map[recordKey]struct{}{},
		taken: map[takenKey]takenAt{}, dirtyTaken: map[takenKey]struct{}{},
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(f.refused); err != nil {
			return nil, fmt.Errorf("push: register metrics: %w", err)
		}
	}
	cache.replaced = f.historyChanged
	return f, nil
}

// historyChanged judges every node anew: it may now follow, or no longer.
func (f *Fleet) historyChanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.served()
	for _, r := range f.records {
		r.judge(s)
		f.touch(r)
	}
}

// served is the state that is served, nil before the first. What is known of another history ends. The caller holds the
// lock, so that no change of the history is missed: historyChanged comes after it.
func (f *Fleet) served() *state {
	s := f.cache.state.Load()
	if s != nil && f.takenOf != s.lineage {
		f.takenOf = s.lineage
		clear(f.taken)
		clear(f.dirtyTaken)
	}
	return s
}

// onRequest sees every request before the cache does. An error ends the stream.
func (f *Fleet) onRequest(p *peer, req *discovery.DeltaDiscoveryRequest) error {
	if url := req.GetTypeUrl(); url != xds.TypeURL {
		return f.refuse(refusedType, fmt.Errorf("%w: type %q is not served here, only %s", rules.ErrInvalid, url, xds.TypeURL))
	}
	if err := f.checkDomains(p, req.GetResourceNamesSubscribe()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, first := p.stream, p.stream == nil
	if first {
		var err error
		if s, err = f.open(p, req); err != nil {
			return err
		}
	}
	if err := f.claim(s, req.GetResourceNamesSubscribe()); err != nil {
		return err
	}
	var offers map[string]string // of a domain that is subscribed to later, a client is taken to hold nothing
	if first {
		p.stream = s
		offers = req.GetInitialResourceVersions()
		f.log.Info("node connected", "node", s.node, "program", s.program, "stream", s.number)
	}
	for _, domain := range req.GetResourceNamesSubscribe() {
		if !s.holds(domain) {
			f.join(s, domain, offers)
		}
	}
	if len(s.parts) > maxDomains {
		return f.refuse(refusedDomains, fmt.Errorf("%w: %d domains on one stream, at most %d", rules.ErrInvalid, len(s.parts), maxDomains))
	}
	// A node that is stopped unsubscribes: nobody waits for it any more.
	for _, domain := range req.GetResourceNamesUnsubscribe() {
		f.leave(s, domain, true)
	}
	f.brokenGlass(s, req.GetNode())
	if nonce := req.GetResponseNonce(); nonce != "" {
		return f.answered(p, nonce, req)
	}
	return nil
}

func (f *Fleet) checkDomains(p *peer, names []string) error {
	if len(names) > maxDomains {
		return f.refuse(refusedDomains, fmt.Errorf("%w: %d domains in one request, at most %d", rules.ErrInvalid, len(names), maxDomains))
	}
	for _, name := range names {
		if problem := rules.CheckName(name); problem != "" {
			return f.refuse(refusedDomains, fmt.Errorf("%w: subscribe to domains: %s", rules.ErrInvalid, problem))
		}
		if err := p.identity.May(access.Sidecar, name); err != nil {
			return f.refuse(refusedForbidden, fmt.Errorf("subscribe to domain %s: %w", name, err))
		}
	}
	return nil
}

// open reads the first request of a stream, which names the node.
func (f *Fleet) open(p *peer, req *discovery.DeltaDiscoveryRequest) (*stream, error) {
	info, err := parseNode(req.GetNode())
	if err != nil {
		return nil, f.refuse(refusedNode, err)
	}
	if err := checkOffers(req.GetInitialResourceVersions()); err != nil {
		return nil, f.refuse(refusedOffer, fmt.Errorf("node %q: %w", info.node, err))
	}
	if info.number == 0 {
		info.number = time.Now().UnixMicro()
		for _, domain := range req.GetResourceNamesSubscribe() {
			if old := f.current[recordKey{info.node, domain}]; old != nil {
				info.number = max(info.number, old.number+1)
			}
		}
	}
	return &stream{
		nodeInfo: info, identity: p.identity.Name, parts: map[string][]*discovery.DeltaDiscoveryResponse{}, sent: map[string]*sent{},
	}, nil
}

// claim makes the stream the one that holds the domains, all of them or none. A node that connects again while its old
// stream is still open here is that newer stream from now on; what the old one still says of the domain is not listened
// to. Another program with the same id is turned away: a fleet in which two share a name cannot tell whether both have a
// revision. It is so in each domain by itself, since an id is no secret: who may not subscribe to a domain must not keep
// a node from it.
func (f *Fleet) claim(s *stream, domains []string) error {
	for _, domain := range domains {
		old := f.current[recordKey{s.node, domain}]
		switch {
		case old == nil || old == s:
		case old.instance != s.instance:
			f.log.Warn("node turned away: another program with its id is connected", "node", s.node, "domain", domain)
			return f.refuse(refusedConflict, fmt.Errorf("%w: another program is connected as node %q in domain %s; give each its own id",
				rules.ErrConflict, s.node, domain))
		case s.number <= old.number:
			return f.refuse(refusedConflict, fmt.Errorf("%w: node %q opened a later stream for domain %s than this one", rules.ErrConflict, s.node, domain))
		}
	}
	for _, domain := range domains {
		key := recordKey{s.node, domain}
		if old := f.current[key]; old != nil && old != s {
			f.log.Info("node connected again, its old stream is still open", "node", s.node, "domain", domain, "stream", s.number)
			f.leave(old, domain, false)
		}
		f.current[key] = s
	}
	return nil
}

// join marks the node as connected for the domain, with what it offers to have of it.
func (f *Fleet) join(s *stream, domain string, offers map[string]string) {
	key := recordKey{s.node, domain}
	r := f.records[key]
	if r == nil {
		r = &record{
			Node: rollout.Node{ID: s.node, Domain: domain}, refused: map[string]refusal{}, reported: map[string]struct{}{},
		}
		f.records[key] = r
	}
	r.Program, r.Identity, r.Level, r.Stream, r.Connected, r.Departed = s.program, s.identity, s.level, s.number, true, false
	s.parts[domain] = nil
	r.offered(offers, f.served())
	f.offeredAll(r)
	f.touch(r)
}

// offeredAll notes what a node has since before this stream.
func (f *Fleet) offeredAll(r *record) {
	if s := f.served(); s != nil && r.lineage == s.lineage && r.Acked > 0 && r.Acked <= s.head && r.hasAllRules() {
		f.take(takenKey{r.Domain, "", r.Level}, takenAt{revision: r.Acked})
	}
}

func (f *Fleet) leave(s *stream, domain string, departed bool) {
	if !s.holds(domain) {
		return
	}
	key := recordKey{s.node, domain}
	delete(s.parts, domain)
	delete(f.current, key)
	if r := f.records[key]; r != nil {
		r.Connected, r.Departed = false, departed
		f.touch(r)
	}
}

// brokenGlass takes a node's break-glass reports, for the domains it subscribes to.
func (f *Fleet) brokenGlass(s *stream, n *core.Node) {
	field, ok := n.GetMetadata().GetFields()[xds.BreakGlassField]
	if !ok {
		return
	}
	list, err := parseBreakGlass(field.GetStringValue())
	if err != nil {
		// Whatever somebody writes here, the node must get its rules.
		f.log.Warn("break-glass reports of a node cannot be read", "node", s.node, "err", f.refuse(refusedBreakGlass, err))
	}
	for domain := range s.parts {
		r := f.records[recordKey{s.node, domain}]
		of := slices.DeleteFunc(slices.Clone(list), func(b rollout.BreakGlass) bool { return b.Domain != domain })
		if r != nil && !slices.Equal(r.BreakGlass, of) {
			r.BreakGlass = of
			f.touch(r)
		}
	}
}

// awaits reports whether nothing is to be sent on the peer's stream: the last response has no answer yet, or the stream
// holds no domain, as when the node has a newer one.
func (f *Fleet) awaits(p *peer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(p.stream.parts) == 0 || len(p.stream.sent) > 0
}

// onResponse sees every response just before it is sent.
func (f *Fleet) onResponse(p *peer, response *discovery.DeltaDiscoveryResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.stream == nil {
		return
	}
	sent := p.stream.sending(response)
	r := f.record(p.stream, sent)
	switch {
	case r == nil:
	case r.wasSent(sent):
		f.touch(r)
	default:
		f.await(r)
	}
}

// answered applies the client's answer. An error detail makes it a refusal, though version and nonce are those of the
// response: only its absence means that the revision is in force.
func (f *Fleet) answered(p *peer, nonce string, req *discovery.DeltaDiscoveryRequest) error {
	sent := p.stream.sent[nonce]
	if sent == nil {
		return f.refuse(refusedNonce, fmt.Errorf("%w: node %q answers nonce %q, which waits for no answer on this stream",
			rules.ErrInvalid, p.stream.node, printable(nonce)))
	}
	delete(p.stream.sent, nonce)
	r := f.record(p.stream, sent)
	if r == nil {
		return nil
	}
	var wants []want
	if detail := req.GetErrorDetail(); detail != nil {
		wants = r.nacked(sent, detail)
	} else {
		r.acked(sent)
	}
	r.judge(f.served())
	if req.GetErrorDetail() != nil {
		f.log.Warn("node refused rules", "node", r.ID, "domain", r.Domain, "revision", sent.revision, "reason", r.NackReason)
	}
	f.took(r, sent)
	f.askFor(p, r, wants)
	f.touch(r)
	return nil
}

// record is what a response or its answer changes; nil where it commits nothing or the stream does not hold the domain.
func (f *Fleet) record(s *stream, sent *sent) *record {
	if !sent.commit || !s.holds(sent.domain) {
		return nil
	}
	return f.records[recordKey{s.node, sent.domain}]
}

// onClosed marks the node as disconnected in the domains that the stream holds.
func (f *Fleet) onClosed(p *peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := p.stream
	if s == nil {
		return // it ended with its first request
	}
	for domain := range s.parts {
		f.leave(s, domain, false)
	}
	f.log.Info("node disconnected", "node", s.node, "stream", s.number)
}

// touch stamps the record and has it saved. Stamps of one record grow strictly: the store keeps the newest.
func (f *Fleet) touch(r *record) {
	r.Seen = later(time.Now().UTC().Truncate(time.Microsecond), r.Seen.Add(time.Microsecond))
	key := recordKey{r.ID, r.Domain}
	f.dirty[key] = struct{}{}
	delete(f.unanswered, key)
	f.wakeUp()
}

// answerSoon is how long an answer may take before the question is written down without it.
const answerSoon = 500 * time.Millisecond

// await has a record saved in which only what was sent is new: with the answer, or when that takes long. It halves what a
// fan-out writes, at the moment when everybody is sent something. The caller holds the lock.
func (f *Fleet) await(r *record) {
	if len(f.unanswered) == 0 {
		time.AfterFunc(answerSoon, f.saveUnanswered)
	}
	f.unanswered[recordKey{r.ID, r.Domain}] = struct{}{}
}

func (f *Fleet) saveUnanswered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.unanswered {
		if r := f.records[key]; r != nil {
			f.touch(r)
		}
	}
	clear(f.unanswered)
}

func (f *Fleet) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default: // a token is there already
	}
}

// Node is what this replica knows of the node in the domain. It knows those whose stream is open here, with what is not
// written to the store yet; of the others the store does.
func (f *Fleet) Node(id, domain string) (node rollout.Node, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.records[recordKey{id, domain}]
	if !ok {
		return rollout.Node{}, false
	}
	return r.Node, true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
