package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/xdspb"
)

// Bounds of what a node may say, and how fast. A client of ours stays far below.
const (
	maxNode      = 512 // bytes of its id, as on the stream of rules
	maxEpoch     = 64
	maxDomains   = 1000
	maxMessage   = 4 << 20
	maxWindows   = 256     // in a message
	maxNumber    = 1 << 40 // of a window: what follows it is a number still, and a process closes some millions a year
	maxVersions  = 25_000  // in a message: both of 10,000 rules, and as many retired ones
	messagesRate = 10      // a second
	messageBurst = 50
)

// helloWithin is how long a stream may be open before it names its source, and then before that node is known here by its
// stream of rules.
const helloWithin = 10 * time.Second

// reporter is the server's side of one stream.
type reporter struct {
	server  *Server
	stream  xdspb.TallyService_ReportServer
	who     access.Identity
	end     context.CancelCauseFunc
	answers chan int64

	source  tally.Source
	domains []string // sorted
	shift   time.Duration
	number  int64                  // of the last window that came
	gaveUp  map[versionID]struct{} // versions for which nobody waits any more
	backlog time.Duration          // by how much windows were longer than others

	mu   sync.Mutex
	open *tally.Window // the newest; nil when it is stored
}

// versionID is a version of a rule.
type versionID struct {
	domain, uid string
	version     int64
}

func newReporter(s *Server, stream xdspb.TallyService_ReportServer, who access.Identity, end context.CancelCauseFunc) *reporter {
	return &reporter{server: s, stream: stream, who: who, end: end, answers: make(chan int64), gaveUp: map[versionID]struct{}{}}
}

// run reads the stream until it ends: one message, what it says stored and answered, then the next.
func (r *reporter) run(ctx context.Context) error {
	mute := time.AfterFunc(helloWithin, func() { r.end(errMute) })
	hello, err := r.stream.Recv()
	mute.Stop()
	if err != nil {
		return err
	}
	if err := r.introduce(hello); err != nil {
		return err
	}
	if err := r.await(ctx); err != nil {
		return err
	}
	leave, err := r.server.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	stored, err := r.server.o.Store.Stored(ctx, r.source)
	if err != nil {
		return err
	}
	if err := r.answer(ctx, stored); err != nil {
		return err
	}
	limit := rate.NewLimiter(messagesRate, messageBurst)
	for {
		m, err := r.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := r.take(ctx, m); err != nil {
			return err
		}
		if late := limit.Reserve().Delay(); late > 0 && !pause(ctx, late) {
			return context.Cause(ctx)
		}
	}
}

// introduce reads who reports, and compares the clocks: times are moved by whole windows, so that those that are aligned
// stay so.
func (r *reporter) introduce(m *xdspb.ReportRequest) error {
	bad := func(format string, args ...any) error {
		return r.server.refuse(refusedSource, fmt.Errorf("%w: "+format, append([]any{rules.ErrInvalid}, args...)...))
	}
	r.shift = time.Since(time.UnixMicro(m.GetNow())).Round(tally.Span)
	source := m.GetSource()
	r.source = tally.Source{Node: source.GetNode(), Epoch: source.GetEpoch()}
	r.domains = slices.Compact(slices.Sorted(slices.Values(source.GetDomains())))
	switch {
	case r.source.Node == "" || !isText(r.source.Node, maxNode):
		return bad("the first message must name the node, with a printable id of at most %d bytes", maxNode)
	case r.source.Epoch == "" || !isText(r.source.Epoch, maxEpoch):
		return bad("node %q: the epoch is not a printable text of at most %d bytes", r.source.Node, maxEpoch)
	case len(r.domains) == 0 || len(source.GetDomains()) > maxDomains:
		return bad("node %q counts for %d domains: name 1 to %d", r.source.Node, len(source.GetDomains()), maxDomains)
	case len(m.GetClosed()) > 0 || m.GetOpen() != nil:
		return bad("node %q: the first message only names the source", r.source.Node)
	}
	for _, domain := range r.domains {
		if problem := rules.CheckName(domain); problem != "" {
			return bad("node %q: domains: %s", r.source.Node, problem)
		}
		if err := r.who.May(access.Sidecar, domain); err != nil {
			return r.refuseNode(fmt.Errorf("count for domain %s: %w", domain, err))
		}
	}
	return nil
}

// await waits until the node is known in all its domains, as the identity that reports: its stream of rules opens at about
// the same time, and may be at another replica.
func (r *reporter) await(ctx context.Context) error {
	until := time.Now().Add(helloWithin)
	for {
		var err error
		for _, domain := range r.domains {
			if _, err = r.known(ctx, domain); err != nil {
				break
			}
		}
		switch {
		case err == nil:
			return nil
		case !time.Now().Before(until):
			return r.refuseNode(err)
		case !pause(ctx, believeEvery):
			return context.Cause(ctx)
		}
	}
}

// take stores what the message says.
func (r *reporter) take(ctx context.Context, m *xdspb.ReportRequest) error {
	if err := r.checkMessage(m); err != nil {
		return r.server.refuse(refusedSource, err)
	}
	var list []tally.Window
	for _, w := range m.GetClosed() {
		read := r.read(w)
		if err := r.believe(ctx, &read); err != nil {
			return err
		}
		list = append(list, read)
	}
	if len(list) > 0 {
		if err := r.server.writer.save(ctx, tally.SourceWindows{Source: r.source, Windows: list}); err != nil {
			return err
		}
		if err := r.answer(ctx, list[len(list)-1].Number); err != nil {
			return err
		}
	}
	if m.GetOpen() == nil {
		return nil
	}
	read := r.read(m.GetOpen())
	if doubts, err := r.doubts(ctx, &read, time.Now()); err == nil {
		leaveOut(&read, doubts) // counted with the closed window
		r.setOpen(&read)
	}
	return nil
}

// checkMessage refuses what no client sends, whatever is in its windows.
func (r *reporter) checkMessage(m *xdspb.ReportRequest) error {
	versions := len(m.GetOpen().GetVersions())
	for _, w := range m.GetClosed() {
		// What a node lost is a gap before its first window here: after it numbers follow each other.
		if w.GetNumber() <= r.number || r.number > 0 && w.GetNumber() > r.number+1 {
			return fmt.Errorf("%w: node %q sends window %d after window %d", rules.ErrInvalid, r.source.Node, w.GetNumber(), r.number)
		}
		if w.GetNumber() > maxNumber {
			return fmt.Errorf("%w: node %q sends window %d: no process has more than %d", rules.ErrInvalid, r.source.Node, w.GetNumber(), int64(maxNumber))
		}
		r.number = w.GetNumber()
		versions += len(w.GetVersions())
	}
	switch size := proto.Size(m); {
	case m.GetSource() != nil:
		return fmt.Errorf("%w: node %q names its source again", rules.ErrInvalid, r.source.Node)
	case size > maxMessage || len(m.GetClosed()) > maxWindows || versions > maxVersions:
		return fmt.Errorf("%w: node %q sends %d windows with %d versions in %d bytes: at most %d, %d and %d",
			rules.ErrInvalid, r.source.Node, len(m.GetClosed()), versions, size, maxWindows, maxVersions, maxMessage)
	}
	return nil
}

// answer tells the client that all up to the number is stored.
func (r *reporter) answer(ctx context.Context, number int64) error {
	select {
	case r.answers <- number:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *reporter) setOpen(w *tally.Window) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = w
}

// takeOpen returns the totals that came since the last time; nil when there are none.
func (r *reporter) takeOpen() *tally.Window {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.open
	r.open = nil
	return w
}

// pause waits, and reports whether ctx did not end meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
