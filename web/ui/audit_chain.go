package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	// chainStride is how many records are read at a time, and chainAtOnce how many are checked for one page: the page that
	// follows goes on from there.
	chainStride = 500
	chainAtOnce = 5000
	// chainAgain is after which time all is checked anew: what was in order may have been edited since.
	chainAgain = 10 * time.Minute
)

// chain checks that the audit trail is what was written. It goes on with each page that shows it. It is safe for
// concurrent use: while one page checks, others show how far it has come.
type chain struct {
	turn  sync.Mutex // to check
	mu    sync.Mutex
	state chainState
}

// chainState is how far the check has come.
type chainState struct {
	rollout.Chain // the records that are in order

	Of      int64     // how many there are
	Begun   time.Time // when the first was looked at
	Problem string    // what is wrong behind them; "" for nothing
}

// Whole reports that all is in order.
func (s chainState) Whole() bool { return s.Problem == "" && s.Records == s.Of }

func (c *chain) check(ctx context.Context, api adminpb.AdminServiceClient, head rollout.Head, now time.Time) (chainState, error) {
	if !c.turn.TryLock() {
		c.mu.Lock()
		defer c.mu.Unlock()
		state := c.state
		state.Of = head.Records
		return state, nil
	}
	defer c.turn.Unlock()
	state := c.state // whose turn it is alone writes it
	if state.Records > head.Records {
		// Its end was set back, or this page read it before another one did, which has checked what came between.
		resp, err := api.ListAudit(ctx, &adminpb.ListAuditRequest{Limit: 1})
		if err != nil {
			return state, err
		}
		head = rollout.Head{Records: resp.GetHeadNumber(), Seal: resp.GetHeadSeal()}
	}
	over := state.Problem != "" || state.Records >= head.Records
	if state.Begun.IsZero() || over && now.Sub(state.Begun) > chainAgain {
		state = chainState{Begun: now}
	}
	state.Of = head.Records
	err := state.goOn(ctx, api, head)
	c.mu.Lock()
	c.state = state
	c.mu.Unlock()
	return state, err
}

// goOn checks some of the records that follow. The trail up to the head is there already, so what is missing is wrong.
func (s *chainState) goOn(ctx context.Context, api adminpb.AdminServiceClient, head rollout.Head) error {
	for upTo := min(s.Records+chainAtOnce, head.Records); s.Problem == "" && s.Records < upTo; {
		list, err := stretch(ctx, api, s.Records+1, min(s.Records+chainStride, upTo))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			s.Problem = fmt.Sprintf("record %d is missing: there should be %d", s.Records+1, head.Records)
		}
		for _, r := range list {
			if err := s.Add(r.Sealed()); err != nil {
				s.Problem = err.Error()
				break
			}
		}
	}
	switch {
	case s.Problem != "":
	case s.Records > head.Records:
		s.Problem = fmt.Sprintf("record %d was there, and now the trail ends with record %d: its end was set back", s.Records, head.Records)
	case s.Records == head.Records && s.Seal != head.Seal:
		s.Problem = fmt.Sprintf("record %d has the seal %s, and the trail is said to end with %s", s.Records, s.Seal, head.Seal)
	}
	return nil
}

// stretch returns the records from one number to another, in their order. Pages of the API come newest first, and those of
// large records have few.
func stretch(ctx context.Context, api adminpb.AdminServiceClient, from, to int64) (list []*adminpb.Record, err error) {
	for before := to + 1; before > from; {
		resp, err := api.ListAudit(ctx, &adminpb.ListAuditRequest{Before: before, Limit: int32(before - from)}) //nolint:gosec // at most chainStride
		if err != nil {
			return nil, err
		}
		was := before
		for _, r := range resp.GetRecords() {
			if r.GetNumber() >= from {
				list = append(list, r)
			}
			before = min(before, r.GetNumber())
		}
		if before == was {
			break // there are none before
		}
	}
	slices.Reverse(list)
	return list, nil
}

// export writes the whole trail, oldest record first, as rulectl audit export does: rulectl audit verify checks the file.
// It takes as long as it takes, and ends with the request. One that cannot be read to its end breaks the connection off,
// so that it does not pass for a whole one.
func (u *UI) export(w http.ResponseWriter, r *http.Request) {
	if err := access.From(r.Context()).May(access.Viewer, ""); err != nil {
		u.Failed(w, r, fmt.Errorf("export the audit trail: %w", err))
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), due(r))
	defer cancel()
	first, err := await(ctx, func() (*adminpb.ListAuditResponse, error) {
		return u.api.ListAudit(ctx, &adminpb.ListAuditRequest{Limit: 1})
	})
	if err != nil {
		u.Failed(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="headgate-audit.jsonl"`)
	w.Header().Set("Cache-Control", "no-store")
	out, deadline := bufio.NewWriter(w), http.NewResponseController(w)
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	for at, last := int64(1), first.GetHeadNumber(); at <= last; at += chainStride {
		list, err := stretch(r.Context(), u.api, at, min(at+chainStride-1, last))
		if err != nil {
			u.log.WarnContext(r.Context(), "export of the audit trail broken off", "record", at, "err", err)
			panic(http.ErrAbortHandler)
		}
		for _, record := range list {
			_ = deadline.SetWriteDeadline(time.Now().Add(writeTime))
			if encode.Encode(record.Sealed().Line()) != nil {
				return // nobody reads any more
			}
		}
	}
	_ = out.Flush()
}
