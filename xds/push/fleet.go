package push

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
)

// Bounds of what a node may make this process keep.
const (
	maxText    = 512 // bytes of its id, its program, the reason of a refusal
	maxDomains = 1000
)

// Fleet follows the streams of a [Cache] and keeps, per node and domain, what was sent, taken and refused.
//
// Its records change in the callbacks of the streams, which wait for nothing; [Fleet.Run] writes them to the store.
type Fleet struct {
	store   rollout.Fleet
	lineage func() string // of the revisions that are served; "" while unknown
	log     *slog.Logger
	wake    chan struct{} // holds one token: something is dirty

	mu      sync.Mutex
	streams map[int64]*stream
	current map[string]*stream // by node: its newest stream; only that one changes the node's records
	records map[recordKey]*record
	dirty   map[recordKey]struct{} // to be saved
}

type recordKey struct{ node, domain string }

// NewFleet returns the fleet that follows the streams of cache and saves to store. A nil log discards.
func NewFleet(store rollout.Fleet, cache *Cache, log *slog.Logger) *Fleet {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	lineage := func() string {
		lineage, _, _ := cache.Head()
		return lineage
	}
	return &Fleet{
		store: store, lineage: lineage, log: log.With("component", "fleet"), wake: make(chan struct{}, 1),
		streams: map[int64]*stream{}, current: map[string]*stream{},
		records: map[recordKey]*record{}, dirty: map[recordKey]struct{}{},
	}
}

// onRequest sees every request before the cache does. An error ends the stream.
func (f *Fleet) onRequest(id int64, req *discovery.DeltaDiscoveryRequest) error {
	if url := req.GetTypeUrl(); url != xds.TypeURL {
		return fmt.Errorf("%w: type %q is not served here, only %s", rules.ErrInvalid, url, xds.TypeURL)
	}
	if err := checkDomains(req.GetResourceNamesSubscribe()); err != nil {
		return err
	}
	head := f.lineage()
	f.mu.Lock()
	defer f.mu.Unlock()
	s, first := f.streams[id], false
	if s == nil {
		var err error
		if s, err = f.open(id, req.GetNode()); err != nil {
			return err
		}
		first = true
	}
	if f.current[s.node] != s {
		return nil
	}
	for _, domain := range req.GetResourceNamesSubscribe() {
		if r := f.join(s, domain); first {
			r.offered(req.GetInitialResourceVersions(), head)
		}
	}
	// A node that is stopped unsubscribes: nobody waits for it any more.
	for _, domain := range req.GetResourceNamesUnsubscribe() {
		f.leave(s, domain, true)
	}
	if nonce := req.GetResponseNonce(); nonce != "" {
		f.answered(s, nonce, req)
	}
	return nil
}

func checkDomains(names []string) error {
	if len(names) > maxDomains {
		return fmt.Errorf("%w: %d domains in one request, at most %d", rules.ErrInvalid, len(names), maxDomains)
	}
	for _, name := range names {
		if problem := rules.CheckName(name); problem != "" {
			return fmt.Errorf("%w: subscribe to domains: %s", rules.ErrInvalid, problem)
		}
	}
	return nil
}

// open begins the record of a stream with its first request, which names the node. A node that connects again while its
// old stream is still open here is that newer stream from now on; what the old one still says is not listened to. Another
// program with the same id is turned away: a fleet in which two share a name cannot tell whether both have a revision.
func (f *Fleet) open(id int64, n *core.Node) (*stream, error) {
	if n.GetId() == "" || len(n.GetId()) > maxText || n.GetId() != printable(n.GetId()) {
		return nil, fmt.Errorf("%w: the first request must name the node, with a printable id of at most %d bytes", rules.ErrInvalid, maxText)
	}
	s := &stream{
		id: id, node: n.GetId(), instance: printable(n.GetMetadata().GetFields()[xds.InstanceField].GetStringValue()),
		program: printable(strings.TrimSpace(n.GetUserAgentName() + " " + n.GetUserAgentVersion())),
		parts:   map[string][]*discovery.DeltaDiscoveryResponse{}, sent: map[string]*sent{},
	}
	if old := f.current[s.node]; old != nil {
		if old.instance != s.instance {
			f.log.Warn("node turned away: another program with its id is connected", "node", s.node)
			return nil, fmt.Errorf("%w: another program is connected as node %q; give each its own id", rules.ErrConflict, s.node)
		}
		f.leaveAll(old)
		f.log.Info("node connected again, its old stream is still open", "node", s.node)
	} else {
		f.log.Info("node connected", "node", s.node, "program", s.program)
	}
	f.streams[id], f.current[s.node] = s, s
	return s, nil
}

// join marks the node as connected for the domain and returns its record there.
func (f *Fleet) join(s *stream, domain string) *record {
	key := recordKey{s.node, domain}
	r := f.records[key]
	if r == nil {
		r = &record{Node: rollout.Node{ID: s.node, Domain: domain}, refused: map[string]refusal{}}
		f.records[key] = r
	}
	r.Program, r.Connected, r.Departed = s.program, true, false
	if _, ok := s.parts[domain]; !ok {
		s.parts[domain] = nil
	}
	f.touch(r)
	return r
}

func (f *Fleet) leave(s *stream, domain string, departed bool) {
	if _, joined := s.parts[domain]; !joined {
		return
	}
	delete(s.parts, domain)
	if r := f.records[recordKey{s.node, domain}]; r != nil && f.current[s.node] == s {
		r.Connected, r.Departed = false, departed
		f.touch(r)
	}
}

func (f *Fleet) leaveAll(s *stream) {
	for domain := range s.parts {
		f.leave(s, domain, false)
	}
}

// onResponse sees every response just before it is sent.
func (f *Fleet) onResponse(id int64, response *discovery.DeltaDiscoveryResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.streams[id]
	if s == nil {
		return
	}
	sent := s.sending(response)
	if r := f.record(s, sent); r != nil {
		r.wasSent(sent)
		f.touch(r)
	}
}

// answered applies the client's answer. An error detail makes it a refusal, though version and nonce are those of the
// response: only its absence means that the revision is in force.
func (f *Fleet) answered(s *stream, nonce string, req *discovery.DeltaDiscoveryRequest) {
	sent := s.sent[nonce]
	if sent == nil {
		return // of another stream, or answered before
	}
	delete(s.sent, nonce)
	r := f.record(s, sent)
	if r == nil {
		return
	}
	if detail := req.GetErrorDetail(); detail != nil {
		r.nacked(sent, detail)
		f.log.Warn("node refused rules", "node", r.ID, "domain", r.Domain, "revision", sent.revision, "reason", r.NackReason)
	} else {
		r.acked(sent)
	}
	f.touch(r)
}

// record is what a response or its answer changes; nil where it commits nothing or the stream is not the node's newest.
func (f *Fleet) record(s *stream, sent *sent) *record {
	if f.current[s.node] != s || !sent.commit {
		return nil
	}
	return f.records[recordKey{s.node, sent.domain}]
}

// onClosed marks the node as disconnected, unless it has a newer stream.
func (f *Fleet) onClosed(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.streams[id]
	if s == nil {
		return // it ended before its first request
	}
	delete(f.streams, id)
	if f.current[s.node] != s {
		return
	}
	f.leaveAll(s)
	delete(f.current, s.node)
	f.log.Info("node disconnected", "node", s.node)
}

// touch stamps the record and has it saved. Stamps of one record grow strictly: the store keeps the newest.
func (f *Fleet) touch(r *record) {
	r.Seen = later(time.Now().UTC().Truncate(time.Microsecond), r.Seen.Add(time.Microsecond))
	f.dirty[recordKey{r.ID, r.Domain}] = struct{}{}
	select {
	case f.wake <- struct{}{}:
	default: // a token is there already
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// printable makes a node's text safe to store and to show: bounded, and without control characters, among them the NUL
// that Postgres refuses and with it the whole batch.
func printable(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
