package push

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
)

// DefaultPartLimit is the size of a part of a large step: half of what gRPC receives by default (4 MiB), since the last
// resource of a part may itself be large.
const DefaultPartLimit = 2 << 20

// CacheOptions configure a [Cache]. The zero value works.
type CacheOptions struct {
	// PartLimit is the size in bytes above which a step is sent in parts; 0 means [DefaultPartLimit].
	PartLimit int
	// Log gets a line when the database is lost and found and when the head moves; nil: none.
	Log *slog.Logger
}

// Cache answers the streams from the newest state that [Cache.Run] has read. It takes the place of go-control-plane's own
// caches, for the delta protocol.
type Cache struct {
	partLimit int
	log       *slog.Logger
	// replaced is called when the history that is served is another one, or may replace others; set before Run.
	replaced func()

	state atomic.Pointer[state] // nil until the database has been read; written only with the lock held

	mu      sync.Mutex
	watches map[*watch]struct{}
}

// NewCache returns a cache that serves nothing until Run has loaded it.
func NewCache(o CacheOptions) *Cache {
	if o.PartLimit <= 0 {
		o.PartLimit = DefaultPartLimit
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Cache{
		partLimit: o.PartLimit,
		log:       o.Log.With("component", "push"),
		replaced:  func() {},
		watches:   map[*watch]struct{}{},
	}
}

// Head is the revision and the lineage that are served; ok is false until the database has been read once.
func (c *Cache) Head() (lineage string, revision int64, ok bool) {
	s := c.state.Load()
	if s == nil {
		return "", 0, false
	}
	return s.lineage, s.head, true
}

// watch answers at once when the stream lags in one of its domains, and otherwise when it does. One watch is answered
// once, with one domain; the client's answer brings the next watch.
func (c *Cache) watch(p *peer, req *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	if url := req.GetTypeUrl(); url != xds.TypeURL {
		return nil, fmt.Errorf("%w: type %q is not served here, only %s", rules.ErrInvalid, url, xds.TypeURL)
	}
	if sub.IsWildcard() {
		return nil, fmt.Errorf("%w: subscribe to domains by name: there is no wildcard", rules.ErrInvalid)
	}
	w, err := newWatch(p, req, sub, out)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.waiting = w
	if !c.serve(w) {
		c.watches[w] = struct{}{}
	}
	// The server closes the channel after cancel has returned: sending only under the lock, and only to watches that are
	// still registered, is what makes that safe.
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches, w)
	}, nil
}

// serve sends the watch its next response, and reports whether it did. The caller holds the lock.
func (c *Cache) serve(w *watch) bool {
	s := c.state.Load()
	// The server empties the channel before each watch, and a watch sends once, so it has room. Should that ever change,
	// one stream is late; blocking here would stop the fleet.
	if s == nil || len(w.out) == cap(w.out) {
		return false
	}
	response := w.next(s, c.partLimit)
	if response == nil {
		return false
	}
	w.out <- response
	return true
}

// publish makes s the state that is served, and answers every watch that now lags.
func (c *Cache) publish(s *state) {
	was := c.swap(s)
	if was == nil || was.lineage != s.lineage || !slices.Equal(was.replaces, s.replaces) {
		c.replaced()
	}
}

func (c *Cache) swap(s *state) (was *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was = c.state.Swap(s)
	for w := range c.watches {
		if c.serve(w) {
			delete(c.watches, w)
		}
	}
	return was
}

// offer has the last good versions sent on the peer's stream as soon as it can take them.
func (c *Cache) offer(p *peer, domain string, list []lastGood) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.good[domain] = append(p.good[domain], list...)
	if _, waits := c.watches[p.waiting]; waits && c.serve(p.waiting) {
		delete(c.watches, p.waiting)
	}
}
