package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/web/api/adminpb"
)

// progressInterval is the least time between two lines about one wait, where lines cannot be redrawn.
const progressInterval = 5 * time.Second

// progress shows how far waiting has come: on a terminal one line, redrawn; elsewhere a line for a change, not too many.
type progress struct {
	w        io.Writer
	terminal bool
	shown    map[*wait]time.Time
	held     map[*wait]bool // changes that came too soon after a line
	drawn    bool
}

func newProgress(w io.Writer, terminal bool) *progress {
	return &progress{w: w, terminal: terminal, shown: map[*wait]time.Time{}, held: map[*wait]bool{}}
}

// show tells that w has changed.
func (p *progress) show(all []*wait, w *wait) {
	if p.terminal {
		p.redraw(all)
		return
	}
	if last, ok := p.shown[w]; ok && time.Since(last) < progressInterval {
		p.held[w] = true
		return
	}
	p.shown[w] = time.Now()
	delete(p.held, w)
	fmt.Fprintf(p.w, "waiting for sidecars of %s: %s\n", oneLine(w.domain), w.summary())
}

// flush shows what was held back.
func (p *progress) flush(all []*wait) {
	if p.terminal {
		p.redraw(all)
		return
	}
	for _, w := range all {
		if p.held[w] && !w.complete() {
			delete(p.shown, w)
			p.show(all, w)
		}
	}
}

func (p *progress) redraw(all []*wait) {
	parts := make([]string, len(all))
	for i, w := range all {
		parts[i] = oneLine(w.domain) + " " + w.summary()
	}
	// Back to the first column, write, and erase what is left of the line before.
	fmt.Fprint(raw(p.w), "\r")
	fmt.Fprint(p.w, strings.Join(parts, "; "))
	fmt.Fprint(raw(p.w), "\x1b[K")
	p.drawn = true
}

// end makes room for what follows.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(raw(p.w), "\r\x1b[K")
	}
}

// summary is "1 of 3 sidecars acked; not yet: n2 ◌ Pending, n3 ⚠ Away".
func (w *wait) summary() string {
	const most = 4
	if !w.heard {
		return "no answer yet"
	}
	acked, total := w.acked()
	text := fmt.Sprintf("%d of %s acked", acked, count(total, "sidecar"))
	missing := w.missing()
	for i, n := range missing {
		switch i {
		case most:
			return text + fmt.Sprintf(" and %d more", len(missing)-most)
		case 0:
			text += "; not yet: "
		default:
			text += ", "
		}
		text += oneLine(n.GetId()) + " " + stateText(n)
		if n.GetState() == stateAway {
			text += " (until " + when(forgotten(n)) + ")"
		}
	}
	return text
}

// reportWaits says how each wait ended: who has the change, who has not, and why.
func (a *app) reportWaits(ctx context.Context, waits []*wait) error {
	interrupted := ctx.Err() != nil
	var failed *wait
	for _, w := range waits {
		acked, total := w.acked()
		switch {
		case w.complete() && total == 0:
			a.tell("%s has no sidecar to wait for%s", oneLine(w.domain), w.goneText())
		case w.complete():
			a.tell("✔ %s: %d of %s acked revision %d (%.1fs)%s",
				oneLine(w.domain), acked, count(total, "sidecar"), w.revision, w.took.Seconds(), w.goneText())
		default:
			failed = w
			a.reportMissing(w, interrupted)
		}
	}
	if failed == nil {
		return nil
	}
	a.tell("next: rulectl sidecar list -d %s", oneLine(failed.domain))
	if interrupted {
		return explained{exitInterrupted}
	}
	return explained{exitNotAcked}
}

func (a *app) reportMissing(w *wait, interrupted bool) {
	acked, total := w.acked()
	end := fmt.Sprintf("within %s", a.timeout)
	switch {
	case interrupted:
		end = "when this was interrupted; it is still rolling out"
	case w.err != nil:
		end = "before the control plane failed: " + oneLine(w.err.Error())
	case w.over():
		end = "and no other answer is due"
	}
	if !w.heard {
		reason := "the control plane gave no answer"
		if w.err != nil {
			reason = oneLine(w.err.Error())
		}
		fmt.Fprintf(a.io.Err, "✖ %s: the change is stored, but who has it is not known: %s\n", oneLine(w.domain), reason)
		return
	}
	fmt.Fprintf(a.io.Err, "✖ %s: %d of %s acked revision %d %s; it is stored, and in force where it was acked%s\n",
		oneLine(w.domain), acked, count(total, "sidecar"), w.revision, end, w.goneText())
	var rows [][]string
	for _, n := range w.missing() {
		rows = append(rows, []string{n.GetId(), stateText(n), number(w.revision), number(n.GetAcked()), why(n, w.revision, time.Now())})
	}
	fmt.Fprint(a.io.Err, renderTable([]string{"NODE", "STATUS", "WANTED", "RUNNING", "WHY"}, rows, "WANTED", "RUNNING"))
}

func (w *wait) goneText() string {
	gone := 0
	for _, n := range w.nodes {
		if n.GetState() == stateGone {
			gone++
		}
	}
	if gone == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d gone, not waited for)", gone)
}

// forgotten is when a node that stays silent counts as gone.
func forgotten(n *adminpb.Node) time.Time { return n.GetSeen().AsTime().Add(rollout.ForgetAfter) }

// why says why a node has not taken the revision.
func why(n *adminpb.Node, revision int64, now time.Time) string {
	silent := age(now.Sub(n.GetSeen().AsTime()))
	switch {
	case n.GetState() == stateNacked && n.GetNacked() >= revision:
		return n.GetNackReason()
	case n.GetState() == stateForeign:
		return foreignText(n)
	case n.GetState() == stateAhead:
		return aheadText(n)
	case n.GetState() == stateNacked:
		return fmt.Sprintf("refused revision %d and has not answered this one: %s", n.GetNacked(), n.GetNackReason())
	case n.GetState() == stateAway:
		return fmt.Sprintf("silent for %s; waited for until %s, when it counts as gone", silent, when(forgotten(n)))
	case n.GetSent() < revision:
		return "connected, not sent yet"
	}
	return "sent, no answer yet; last heard of " + silent + " ago"
}

type waitItem struct {
	Revision int64      `json:"revision"`
	Acked    int        `json:"acked"`
	Total    int        `json:"total"`
	Complete bool       `json:"complete"`
	Missing  []nodeItem `json:"missing"`
}

func (w *wait) item() *waitItem {
	acked, total := w.acked()
	item := &waitItem{Revision: w.revision, Acked: acked, Total: total, Complete: w.complete(), Missing: []nodeItem{}}
	for _, n := range w.missing() {
		item.Missing = append(item.Missing, newNodeItem(n))
	}
	return item
}
