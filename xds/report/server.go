package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/xdspb"
)

// Store is what is kept of the reports: the part of [tally.Store] that is written.
type Store interface {
	SaveWindows(ctx context.Context, batch []tally.SourceWindows) error
	SaveOpen(ctx context.Context, batch []tally.SourceWindows) error
	Stored(ctx context.Context, source tally.Source) (int64, error)
	Births(ctx context.Context, uids []string) (map[string]tally.Birth, error)
}

// Fleet tells what this replica knows of a node whose stream of rules is open here.
type Fleet interface {
	Node(id, domain string) (node rollout.Node, ok bool)
}

// Nodes tells what any replica has written down of the nodes of a domain.
type Nodes interface {
	Nodes(ctx context.Context, domain string) ([]rollout.Node, error)
}

// ServerOptions configure a [Server].
type ServerOptions struct {
	Store Store
	Fleet Fleet
	Nodes Nodes

	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: not registered
}

// Server takes what nodes report.
type Server struct {
	xdspb.UnimplementedTallyServiceServer
	o       ServerOptions
	log     *slog.Logger
	metrics *serverMetrics
	rules   *ruleBook
	nodes   *nodeBook
	writer  *writer
	streams context.Context // their end; set by Register
	told    atomic.Int64    // Unix second of the last line about what was left out

	mu     sync.Mutex
	open   map[string]map[string]*reporter // by node and epoch
	visits map[string]*rate.Limiter        // by node: how often it opens streams
}

// NewServer returns a server that takes nothing before it is registered, and stores nothing before Run.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	log := o.Log.With("component", "tally")
	m := newServerMetrics()
	if err := m.register(o.Registerer); err != nil {
		return nil, fmt.Errorf("report: register metrics: %w", err)
	}
	return &Server{
		o: o, log: log, metrics: m, rules: newRuleBook(o.Store), nodes: newNodeBook(o.Fleet, o.Nodes), writer: newWriter(o.Store, m, log),
		open: map[string]map[string]*reporter{}, visits: map[string]*rate.Limiter{},
	}, nil
}

// Register serves on r. The streams end when ctx does: end it before a graceful stop of the server, which would wait for
// them for ever. Whose stream it is must be in the stream's context (package access).
func (s *Server) Register(ctx context.Context, r grpc.ServiceRegistrar) {
	s.streams = ctx
	xdspb.RegisterTallyServiceServer(r, s)
}

// Run stores what comes until ctx ends, and returns nil. End it after the gRPC server has stopped, so that what was taken
// is stored.
func (s *Server) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { s.writer.run(ctx); return nil })
	group.Go(func() error { s.saveOpen(ctx); return nil })
	return group.Wait()
}

var (
	errStopping = errors.New("the control plane is stopping")
	errMute     = fmt.Errorf("%w: the stream has not named its source for %v", rules.ErrInvalid, helloWithin)
	errReplaced = fmt.Errorf("%w: the source opened a later stream than this one", rules.ErrConflict)
)

// Report is part of the gRPC service. Only this goroutine sends; another one reads, which ends with the stream.
func (s *Server) Report(stream xdspb.TallyService_ReportServer) error {
	who := access.From(stream.Context())
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	defer context.AfterFunc(s.streams, func() { end(errStopping) })()
	if !who.Expires.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, who.Expires,
			fmt.Errorf("%w: the credential %s of %s has expired", rules.ErrUnauthenticated, who.Credential, who.Name))
		defer cancel()
	}
	r := newReporter(s, stream, who, end)
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	for {
		select {
		case number := <-r.answers:
			if err := stream.Send(&xdspb.ReportResponse{Stored: number}); err != nil {
				return err
			}
		case err := <-ended:
			return s.ending(ctx, err)
		case <-ctx.Done():
			return s.ending(ctx, ctx.Err())
		}
	}
}

// ending returns why a stream ended: what ended it from here, if anything did.
func (s *Server) ending(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopping):
		return nil
	case errors.Is(cause, rules.ErrUnauthenticated):
		return s.refuse(refusedForbidden, cause)
	case errors.Is(cause, errMute):
		return s.refuse(refusedSource, cause)
	case errors.Is(cause, errReplaced):
		return cause
	}
	return err
}

// refuse counts what ends a stream, and returns err, which says it.
func (s *Server) refuse(reason string, err error) error {
	s.metrics.refused.WithLabelValues(reason).Inc()
	return err
}

// leftOut counts what was not believed, and logs at most one line a second: a node can cause them.
func (s *Server) leftOut(reason string, source tally.Source, what string) {
	s.metrics.refused.WithLabelValues(reason).Inc()
	if now := time.Now().Unix(); s.told.Swap(now) != now {
		s.log.Warn("part of a node's report is not believed", "node", source.Node, "reason", reason, "what", what)
	}
}

const (
	// maxSources is how many lives of one node report at a time: the next begins while the last says its last.
	maxSources = 4
	// A node opens a stream a second, and some more in a row.
	visitsEvery = time.Second
	visitsBurst = 10
	maxVisitors = 10_000
)

// enter lets the source report here, in place of an older stream of its own. Leave ends that.
func (s *Server) enter(r *reporter) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, epoch := r.source.Node, r.source.Epoch
	if len(s.visits) >= maxVisitors {
		clear(s.visits)
	}
	if s.visits[node] == nil {
		s.visits[node] = rate.NewLimiter(rate.Every(visitsEvery), visitsBurst)
	}
	old := s.open[node][epoch]
	switch {
	case !s.visits[node].Allow():
		return nil, s.refuse(refusedFlood, fmt.Errorf("%w: node %q opens streams of counts too often", rules.ErrConflict, node))
	case old == nil && len(s.open[node]) >= maxSources:
		return nil, s.refuse(refusedFlood, fmt.Errorf("%w: %d programs report as node %q already", rules.ErrConflict, maxSources, node))
	case old != nil:
		old.end(errReplaced)
	default:
		s.metrics.streams.Inc()
	}
	if s.open[node] == nil {
		s.open[node] = map[string]*reporter{}
	}
	s.open[node][epoch] = r
	return func() { s.leave(r) }, nil
}

func (s *Server) leave(r *reporter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, epoch := r.source.Node, r.source.Epoch
	if s.open[node][epoch] != r {
		return // a later stream has its place
	}
	s.metrics.streams.Dec()
	if delete(s.open[node], epoch); len(s.open[node]) == 0 {
		delete(s.open, node)
	}
}

// openEvery is how often the totals of open windows are stored, and how long that may take.
const openEvery = time.Second

// saveOpen stores the newest totals of each source until ctx ends. Those that could not be stored do not matter: newer
// ones follow.
func (s *Server) saveOpen(ctx context.Context) {
	tick := time.NewTicker(openEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var batch []tally.SourceWindows
		s.mu.Lock()
		for _, sources := range s.open {
			for _, r := range sources {
				if w := r.takeOpen(); w != nil {
					batch = append(batch, tally.SourceWindows{Source: r.source, Windows: []tally.Window{*w}})
				}
			}
		}
		s.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		within, cancel := context.WithTimeout(ctx, openEvery)
		if err := s.o.Store.SaveOpen(within, batch); err != nil && ctx.Err() == nil {
			s.log.Debug("totals of open windows cannot be saved", "err", err)
		}
		cancel()
	}
}
