package ui

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	// settling is how long the answer to a change waits for sidecars to acknowledge it: mostly they have within a tenth of it,
	// and a person is told that rather than that none has yet.
	settling     = 700 * time.Millisecond
	settlingPoll = 50 * time.Millisecond
)

// doneWords say what an action did: "Revision 43: api/per-ip is v8 at 10% beside stable v7. 3 of 3 sidecars have
// acknowledged it."
func (u *UI) doneWords(ctx context.Context, d *done) string {
	out := d.outcome
	switch {
	case out == nil:
		return d.says
	case out.GetRevision() == 0:
		return "Nothing changed: " + out.GetNote() + "."
	}
	return fmt.Sprintf("Revision %s: %s %s", tally.Thousands(out.GetRevision()), stepWords(out.GetSteps()), u.acknowledged(ctx, out.GetDomain(), out.GetRevision()))
}

// stepWords say what became of each rule, of a few.
func stepWords(steps []*adminpb.Step) string {
	const most = 3
	var b strings.Builder
	for i, s := range steps {
		if i == most {
			fmt.Fprintf(&b, "%d more. ", len(steps)-most)
			break
		}
		fmt.Fprintf(&b, "%s is %s. ", s.GetRule(), s.GetAfter())
	}
	return strings.TrimSpace(b.String())
}

// acknowledged says how many sidecars have a revision, and waits a moment for them. That it cannot be told is no failure of
// what was done.
func (u *UI) acknowledged(ctx context.Context, domain string, revision int64) string {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	tick := time.NewTicker(settlingPoll)
	defer tick.Stop()
	acked, all, known := 0, 0, false
	for {
		if resp, err := u.api.ListNodes(ctx, &adminpb.ListNodesRequest{Domain: domain}); err == nil {
			acked, all, known = haveRevision(resp.GetNodes(), revision)
		}
		if known && acked == all {
			return ackWords(acked, all)
		}
		select {
		case <-ctx.Done():
			if !known {
				return "Which sidecars have acknowledged it is not known."
			}
			return ackWords(acked, all)
		case <-tick.C:
		}
	}
}

// haveRevision counts the nodes that should have a revision, and those that do.
func haveRevision(nodes []*adminpb.Node, revision int64) (acked, all int, known bool) {
	for _, n := range nodes {
		if n.GetState() == "gone" {
			continue
		}
		all++
		if n.GetAcked() >= revision && n.GetState() != "foreign" && n.GetState() != "ahead" {
			acked++
		}
	}
	return acked, all, true
}

func ackWords(acked, all int) string {
	switch {
	case all == 0:
		return "No sidecar serves the domain yet."
	case acked == all:
		return fmt.Sprintf("%d of %d sidecars have acknowledged it.", acked, all)
	}
	return fmt.Sprintf("%d of %d sidecars have acknowledged it; the fleet page shows which have not.", acked, all)
}
