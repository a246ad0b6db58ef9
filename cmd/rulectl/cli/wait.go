package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

// retryAfter is the pause before a broken stream is opened again.
const retryAfter = 500 * time.Millisecond

// wait is how far the fleet of one domain has come with a revision.
type wait struct {
	domain   string
	revision int64
	nodes    []*adminpb.Node // as last reported
	heard    bool            // there was a report
	err      error           // why there will be none
	started  time.Time
	took     time.Duration
}

// acked counts the nodes that have taken the revision, and those that should: gone ones are not waited for.
func (w *wait) acked() (acked, total int) {
	for _, n := range w.nodes {
		switch n.GetState() {
		case stateSynced:
			acked, total = acked+1, total+1
		case stateGone:
		default:
			total++
		}
	}
	return acked, total
}

func (w *wait) complete() bool {
	acked, total := w.acked()
	return w.heard && acked == total
}

// over reports that waiting longer changes nothing: every node has answered this very revision, be it with a refusal, or
// waits for an admin.
func (w *wait) over() bool {
	if w.err != nil {
		return true
	}
	for _, n := range w.nodes {
		switch n.GetState() {
		case stateSynced, stateGone, stateForeign, stateAhead:
		case stateNacked:
			if n.GetNacked() < w.revision {
				return false
			}
		default:
			return false
		}
	}
	return w.heard
}

// missing returns the nodes that are waited for.
func (w *wait) missing() []*adminpb.Node {
	var list []*adminpb.Node
	for _, n := range w.nodes {
		if s := n.GetState(); s != stateSynced && s != stateGone {
			list = append(list, n)
		}
	}
	return list
}

// update is news of one wait.
type update struct {
	wait  int
	nodes []*adminpb.Node
	err   error
}

// awaitAll waits until the fleet has the outcomes, or has answered, or the timeout passes. It returns nil when every
// node has acknowledged, and otherwise an error of exit code 6, or 130 when ctx ended: the change is stored either way.
func (a *app) awaitAll(ctx context.Context, client adminpb.AdminServiceClient, outcomes []*adminpb.Outcome) ([]*wait, error) {
	waits := make([]*wait, len(outcomes))
	for i, o := range outcomes {
		waits[i] = &wait{domain: o.GetDomain(), revision: o.GetRevision(), started: time.Now()}
	}
	waitCtx, cancel := a.call(ctx)
	defer cancel()
	updates := make(chan update)
	var followers sync.WaitGroup
	for i, o := range outcomes {
		followers.Go(func() { follow(waitCtx, client, i, o, updates) })
	}
	go func() {
		followers.Wait()
		close(updates)
	}()
	a.collect(waits, updates, cancel)
	return waits, a.reportWaits(ctx, waits)
}

// collect takes updates until the last follower has ended, shows progress, and cancels the rest when all is over.
func (a *app) collect(waits []*wait, updates <-chan update, cancel context.CancelFunc) {
	p := newProgress(a.io.Err, terminal(a.io.Err))
	if a.quiet {
		p = newProgress(io.Discard, false)
	}
	defer p.end()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case u, ok := <-updates:
			if !ok {
				return
			}
			w := waits[u.wait]
			w.apply(u)
			if u.err == nil && !w.complete() {
				p.show(waits, w)
			}
		case <-tick.C:
			p.flush(waits)
		}
		if allOver(waits) {
			cancel()
		}
	}
}

func (w *wait) apply(u update) {
	if u.err != nil {
		w.err = u.err
		return
	}
	w.nodes, w.heard, w.took = u.nodes, true, time.Since(w.started)
	for _, n := range u.nodes {
		w.revision = max(w.revision, n.GetWanted())
	}
}

func allOver(waits []*wait) bool {
	for _, w := range waits {
		if !w.over() {
			return false
		}
	}
	return true
}

// follow reports what the control plane says of one domain until all is acknowledged or ctx ends. When nothing was
// changed, it asks for the domain's newest revision: an earlier change may still be on its way. A stream that breaks is
// opened again, since replicas of the control plane come and go.
func follow(ctx context.Context, client adminpb.AdminServiceClient, i int, o *adminpb.Outcome, updates chan<- update) {
	for {
		err := stream(ctx, client, o.GetDomain(), o.GetRevision(), func(nodes []*adminpb.Node) {
			updates <- update{wait: i, nodes: nodes}
		})
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
			return // the server may see the deadline first
		case !errors.Is(err, rules.ErrUnavailable):
			updates <- update{wait: i, err: err}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
}

// stream reports what one stream says; nil means that all have acknowledged.
func stream(ctx context.Context, client adminpb.AdminServiceClient, domain string, revision int64, report func([]*adminpb.Node)) error {
	if revision == 0 {
		newest, err := newestRevision(ctx, client, domain)
		if err != nil {
			return err
		}
		if newest == 0 {
			report(nil) // a domain without rules: there is nothing to have
			return nil
		}
		revision = newest
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Await(ctx, &adminpb.AwaitRequest{Domain: domain, Revision: revision})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		report(resp.GetNodes())
	}
}

func newestRevision(ctx context.Context, client adminpb.AdminServiceClient, domain string) (int64, error) {
	resp, err := client.ListDomains(ctx, &adminpb.ListDomainsRequest{Domain: domain})
	if err != nil {
		return 0, fmt.Errorf("find the newest revision of %s: %w", domain, err)
	}
	newest := int64(0)
	for _, d := range resp.GetDomains() {
		newest = max(newest, d.GetRevision())
	}
	return newest, nil
}
