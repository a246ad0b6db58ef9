package push

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

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

	mu      sync.Mutex
	state   *state // nil until the database has been read
	watches map[*watch]struct{}
}

var _ cache.ConfigWatcher = (*Cache)(nil)

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
		watches:   map[*watch]struct{}{},
	}
}

// Head is the revision and the lineage that are served; ok is false until the database has been read once.
func (c *Cache) Head() (lineage string, revision int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		return "", 0, false
	}
	return c.state.lineage, c.state.head, true
}

// CreateDeltaWatch answers at once when the stream lags in one of its domains, and otherwise when it does. One watch is
// answered once, with one domain; the client's answer brings the next watch.
func (c *Cache) CreateDeltaWatch(req *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	if url := req.GetTypeUrl(); url != xds.TypeURL {
		return nil, fmt.Errorf("%w: type %q is not served here, only %s", rules.ErrInvalid, url, xds.TypeURL)
	}
	if sub.IsWildcard() {
		return nil, fmt.Errorf("%w: subscribe to domains by name: there is no wildcard", rules.ErrInvalid)
	}
	w, err := newWatch(req, sub, out)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
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
	if c.state == nil {
		return false
	}
	response := w.next(c.state, c.partLimit)
	if response == nil {
		return false
	}
	select {
	case w.out <- response:
		return true
	default:
		// The server empties the channel before each watch, and a watch sends once, so it has room. Should that ever change,
		// one stream is late; blocking here would stop the fleet.
		return false
	}
}

// publish makes s the state that is served, and answers every watch that now lags.
func (c *Cache) publish(s *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = s
	for w := range c.watches {
		if c.serve(w) {
			delete(c.watches, w)
		}
	}
}

// CreateWatch refuses: it belongs to the state-of-the-world protocol.
func (c *Cache) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, errors.New("only delta xDS is served here: use DeltaAggregatedResources")
}
