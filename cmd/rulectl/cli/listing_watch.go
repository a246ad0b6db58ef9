package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
)

// watchEvery is how often --watch looks again.
const watchEvery = 2 * time.Second

// watchFlag is the flag of lists that change while somebody looks.
func (a *app) watchFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.watching, "watch", "w", false,
		"then go on, and print again what has changed, until Ctrl-C (exit 130) or --timeout, where that is given (exit 0)")
}

// list shows what fetch finds and, with --watch, what becomes of it.
func (l *listing[T]) list(ctx context.Context, a *app, fetch func(context.Context) ([]T, error)) error {
	if !a.watching {
		items, err := fetch(ctx)
		if err != nil {
			return err
		}
		return l.show(a, items)
	}
	w := &listWatch[T]{listing: l, app: a, table: l.table(a), held: map[string]string{}}
	return a.keepLooking(ctx, func(ctx context.Context) error {
		items, err := fetch(ctx)
		if err != nil {
			return err
		}
		return w.look(items)
	})
}

// keepLooking looks, and looks again until Ctrl-C or --timeout, where that is given. A control plane that was there is
// waited for.
func (a *app) keepLooking(ctx context.Context, look func(context.Context) error) error {
	if err := look(ctx); err != nil {
		return err
	}
	end := ctx
	if a.flags.Changed("timeout") {
		var cancel context.CancelFunc
		end, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	again := time.NewTicker(watchEvery)
	defer again.Stop()
	for away := false; ; {
		select {
		case <-end.Done():
			if ctx.Err() != nil {
				return explained{exitInterrupted}
			}
			return nil
		case <-again.C:
		}
		err := look(end)
		gone := errors.Is(err, rules.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
		switch {
		case end.Err() != nil:
			continue // which ends it
		case err != nil && !gone:
			return err
		case gone && !away:
			a.warn("%s does not answer, and is asked again: %s", a.server, oneLine(err.Error()))
		}
		away = gone
	}
}

// listWatch is a list that is watched: what of it was printed.
type listWatch[T any] struct {
	*listing[T]
	app   *app
	table *table
	held  map[string]string // by id, as it was then
}

// watchEvent is what became of one thing; with -o json there is one a line.
type watchEvent struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Event      string `json:"event"` // added, also at the beginning; changed; or gone
	ID         string `json:"id"`
	Item       any    `json:"item,omitempty"` // absent: it is gone
}

// The events.
const (
	eventAdded   = "added"
	eventChanged = "changed"
	eventGone    = "gone"
)

// look prints what is not as it was.
func (w *listWatch[T]) look(items []T) error {
	if err := w.sort(w.app, items); err != nil {
		return err
	}
	id := w.id
	if id == nil {
		id = w.name
	}
	var changed []T
	var events []watchEvent
	has := make(map[string]string, len(items))
	for i, form := range w.json(items) {
		state, err := w.state(items[i], form)
		if err != nil {
			return err
		}
		name := id(items[i])
		has[name] = state
		was, known := w.held[name]
		event := watchEvent{apiVersion, "WatchEvent", eventAdded, name, form}
		if known {
			event.Event = eventChanged
		}
		if was != state {
			changed, events = append(changed, items[i]), append(events, event)
		}
	}
	for name := range w.held {
		if _, still := has[name]; !still {
			events = append(events, watchEvent{apiVersion, "WatchEvent", eventGone, name, nil})
		}
	}
	w.held = has
	return w.print(changed, events)
}

func (w *listWatch[T]) state(item T, form any) (string, error) {
	if w.steady != nil {
		form = w.steady(item)
	}
	b, err := json.Marshal(form)
	return string(b), err
}

func (w *listWatch[T]) print(changed []T, events []watchEvent) error {
	if w.app.structured() {
		for _, event := range events {
			if err := w.app.printLine(w.app.io.Out, event); err != nil {
				return err
			}
		}
		return nil
	}
	text := ""
	switch {
	case w.app.output == outputName:
		for _, name := range w.names(changed) {
			text += oneLine(name) + "\n"
		}
	case len(changed) > 0:
		text = w.render(w.table, changed)
	case w.table.widths == nil:
		w.none()
	}
	for _, event := range events {
		if event.Event == eventGone && w.app.output != outputName {
			text += fmt.Sprintf("✖ gone: %s\n", oneLine(event.ID))
		}
	}
	_, err := io.WriteString(w.app.io.Out, text)
	return err
}
