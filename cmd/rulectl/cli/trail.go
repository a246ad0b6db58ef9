package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/web/api/adminpb"
)

// trail reads the whole audit trail from a control plane, oldest record first, a page at a time.
type trail struct {
	a      *app
	client adminpb.AdminServiceClient
}

// end is where a trail ends, as the control plane says, and the newest record that it shows. The record may be newer:
// what the control plane says of the end is older than what it lists.
type end struct {
	head   rollout.Head // only of the trail
	newest int64
}

func (t *trail) end(ctx context.Context) (end, error) {
	resp, err := t.page(ctx, 0, 1)
	if err != nil {
		return end{}, err
	}
	e := end{head: rollout.Head{Records: resp.GetHeadNumber(), Seal: resp.GetHeadSeal()}}
	for _, r := range resp.GetRecords() {
		e.newest = r.GetNumber()
	}
	return e, nil
}

func (t *trail) page(ctx context.Context, before int64, limit int32) (*adminpb.ListAuditResponse, error) {
	ctx, cancel := t.a.call(ctx)
	defer cancel()
	return t.client.ListAudit(ctx, &adminpb.ListAuditRequest{Before: before, Limit: limit})
}

// walk calls each with the records from one number to another, in their order. That one is missing is for each to find.
func (t *trail) walk(ctx context.Context, from, to int64, each func(*rollout.Record) error) error {
	for ; from <= to; from += stretch {
		list, err := t.stretch(ctx, from, min(from+stretch-1, to))
		if err != nil {
			return fmt.Errorf("read the records from %d on: %w", from, err)
		}
		for _, r := range slices.Backward(list) {
			if err := each(r.Sealed()); err != nil {
				return err
			}
		}
	}
	return nil
}

// stretch is how many records are read before the first of them is looked at: pages come newest first.
const stretch = 200

// stretch reads the records from one number to another, newest first, in as many pages as they need: of large records a
// page has few.
func (t *trail) stretch(ctx context.Context, from, to int64) (list []*adminpb.Record, err error) {
	for before := to + 1; before > from; {
		resp, err := t.page(ctx, before, int32(before-from)) //nolint:gosec // at most stretch
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
			return list, nil // there are none before
		}
	}
	return list, nil
}
