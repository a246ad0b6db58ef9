package sqlite

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/rules"
)

// Lead is part of storage.Store. The file has one program, which leads at once; who leads in it takes turns.
func (s *Store) Lead(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed := fmt.Errorf("lead after Close: %w", rules.ErrUnavailable)
	if s.isClosed() {
		return closed
	}
	defer context.AfterFunc(s.open, func() { cancel(closed) })() //nolint:contextcheck // Close ends what ctx has not
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case s.lead <- struct{}{}:
	}
	defer func() { <-s.lead }()
	err := run(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
