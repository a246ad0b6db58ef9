package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
)

const (
	// believeWithin is how long a window waits for what would make it believable: that a node was sent a version may be
	// written down after its first counts came.
	believeWithin = 5 * time.Second
	believeEvery  = 100 * time.Millisecond
	// unsure is a doubt that lasts until the node's stream of rules is open again: what a control plane had sent when it was
	// killed may not be written down, and the counts may come first.
	unsure = "unsure"
	// maxGaveUp bounds what is remembered of a stream's forgeries.
	maxGaveUp = 10_000
)

// believe leaves out of a closed window what the node cannot have counted. It waits for what may become true, and for a
// database that does not answer: nothing that an honest node counted is lost. An error ends the stream.
func (r *reporter) believe(ctx context.Context, w *tally.Window) error {
	came := time.Now()
	for {
		doubts, err := r.doubts(ctx, w, came)
		switch {
		case errors.Is(err, rules.ErrForbidden) || errors.Is(err, rules.ErrConflict):
			return r.refuseNode(err)
		case err == nil && !r.hopes(doubts, time.Since(came) < believeWithin):
			r.giveUp(doubts)
			leaveOut(w, doubts)
			return nil
		}
		if !pause(ctx, believeEvery) {
			return context.Cause(ctx)
		}
	}
}

// doubts returns why versions of a window that came at a time are not believed, by version.
func (r *reporter) doubts(ctx context.Context, w *tally.Window, came time.Time) (map[versionID]string, error) {
	newest := map[string]int64{} // version, by rule
	ids := map[versionID]string{}
	note := func(domain, uid string, version int64) {
		ids[versionID{domain, uid, version}] = ""
		newest[uid] = max(newest[uid], version)
	}
	for i := range w.Versions {
		note(w.Versions[i].Domain, w.Versions[i].UID, w.Versions[i].Version)
	}
	for i := range w.Refusals {
		note(w.Refusals[i].Domain, w.Refusals[i].UID, w.Refusals[i].Version)
	}
	births, err := r.server.rules.births(ctx, newest)
	if err != nil {
		return nil, err
	}
	nodes := map[string]rollout.Node{}
	for id := range ids {
		if _, ok := nodes[id.domain]; !ok && r.countsFor(id.domain) {
			if nodes[id.domain], err = r.known(ctx, id.domain); errors.Is(err, rules.ErrForbidden) || errors.Is(err, rules.ErrConflict) {
				return nil, err
			}
		}
		node := nodes[id.domain]
		if ids[id] = r.doubt(id, births, &node, came); ids[id] == "" {
			delete(ids, id)
		}
	}
	return ids, nil
}

// doubt says why the node cannot have counted for the version; "" when it can. A rule that the node refuses has an earlier
// version in force there, whose revision is before that of the refused one.
func (r *reporter) doubt(id versionID, births map[string]tally.Birth, node *rollout.Node, came time.Time) string {
	birth, ok := births[id.uid]
	switch {
	case !r.countsFor(id.domain) || ok && birth.Domain != id.domain:
		return refusedDomain
	case !ok || id.version < 1 || id.version > int64(len(birth.Revisions)):
		return refusedUnknown
	}
	born := birth.Revisions[id.version-1]
	unsent, rejected := born > node.Sent, born >= node.Nacked && slices.Contains(node.Refused, birth.Rule)
	seen := node.Connected && node.Seen.After(came)
	switch {
	case born == 0:
		return refusedUnknown
	case (unsent || rejected) && !seen:
		return unsure
	case unsent:
		return refusedUnsent
	case rejected:
		return refusedRejected
	}
	return ""
}

// hopes reports whether a doubt may end: soon, as long as the window is young, or when the stream of rules is open.
func (r *reporter) hopes(doubts map[versionID]string, young bool) bool {
	for id, reason := range doubts {
		if _, given := r.gaveUp[id]; !given && (reason == unsure || young && reason != refusedDomain) {
			return true
		}
	}
	return false
}

// giveUp counts what is left out, and has nobody wait for the same again on this stream.
func (r *reporter) giveUp(doubts map[versionID]string) {
	if len(r.gaveUp)+len(doubts) > maxGaveUp {
		clear(r.gaveUp)
	}
	for id, reason := range doubts {
		r.gaveUp[id] = struct{}{}
		r.server.leftOut(reason, r.source, fmt.Sprintf("version %d of rule %s in domain %q", id.version, id.uid, id.domain))
	}
}

func leaveOut(w *tally.Window, doubts map[versionID]string) {
	doubted := func(domain, uid string, version int64) bool {
		_, ok := doubts[versionID{domain, uid, version}]
		return ok
	}
	w.Versions = slices.DeleteFunc(w.Versions, func(v tally.VersionTally) bool { return doubted(v.Domain, v.UID, v.Version) })
	w.Refusals = slices.DeleteFunc(w.Refusals, func(f tally.Refusal) bool { return doubted(f.Domain, f.UID, f.Version) })
}

// known returns what is known of the node in the domain. An error says that it may not count there: nobody knows it
// ([rules.ErrNotFound]), it is another identity's ([rules.ErrForbidden]), or its rules are of another history
// ([rules.ErrConflict]).
func (r *reporter) known(ctx context.Context, domain string) (rollout.Node, error) {
	node, ok := r.server.nodes.node(ctx, r.source.Node, domain)
	switch {
	case !ok:
		return node, fmt.Errorf("%w: node %q is not known in domain %s: its stream of rules comes first", rules.ErrNotFound, r.source.Node, domain)
	case node.Identity != r.who.Name:
		return node, fmt.Errorf("%w: node %q in domain %s is not %s's but another identity's", rules.ErrForbidden, r.source.Node, domain, r.who.Name)
	case node.Lineage != "" && node.Sent == 0:
		return node, fmt.Errorf("%w: node %q holds rules of domain %s from another history: what it counts waits until it follows this one",
			rules.ErrConflict, r.source.Node, domain)
	}
	return node, nil
}

// refuseNode counts and logs what known said.
func (r *reporter) refuseNode(err error) error {
	r.server.log.Warn("node's report refused", "node", r.source.Node, "identity", r.who.Name, "err", err)
	switch {
	case errors.Is(err, rules.ErrForbidden):
		return r.server.refuse(refusedForbidden, err)
	case errors.Is(err, rules.ErrConflict):
		return r.server.refuse(refusedHistory, err)
	}
	return r.server.refuse(refusedNode, err)
}
