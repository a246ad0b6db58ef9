package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/web/api/adminpb"
)

// seen is an answer as it is shown: for people, and for a program.
type seen struct {
	text string
	data any
	// says is what must differ for the answer to be shown again where nothing can be redrawn.
	says any
	// none says that there is nothing, and what to do next; nil: there is something.
	none func()
}

// see shows what look finds and, with --watch, goes on: on a terminal in place of what was there, elsewhere below it when
// it is another.
func (a *app) see(ctx context.Context, look func(context.Context) (seen, error)) error {
	if !a.watching {
		s, err := look(ctx)
		switch {
		case err != nil:
			return err
		case a.structured():
			return a.printData(s.data)
		case s.none != nil:
			s.none()
		}
		_, err = io.WriteString(a.io.Out, s.text)
		return err
	}
	last, lines := "", 0
	return a.keepLooking(ctx, func(ctx context.Context) error {
		s, err := look(ctx)
		if err != nil {
			return err
		}
		says, again := fmt.Sprint(s.says), last != ""
		switch {
		case terminal(a.io.Out) && !a.structured():
			if lines > 0 {
				fmt.Fprintf(raw(a.io.Out), "\x1b[%dA\x1b[J", lines)
			}
			lines = a.rows(s.text)
		case again && says == last:
			return nil
		case a.structured():
			last = says
			return a.printLine(a.io.Out, s.data)
		}
		if s.none != nil && !again {
			s.none()
		}
		last = says
		_, err = io.WriteString(a.io.Out, s.text)
		return err
	})
}

// rows is how many rows of the terminal a text takes, which wraps what is too long.
func (a *app) rows(text string) (n int) {
	room := a.room()
	for line := range strings.Lines(text) {
		n++
		if wide := columns(strings.TrimRight(line, "\n")); room > 0 && wide > room {
			n += (wide - 1) / room
		}
	}
	return n
}

// local is a time as people have it on their clocks. What a program reads is in UTC.
func local(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// localSpan is "2026-11-30 01:30:00 to 02:30:00 CET".
func localSpan(from, to time.Time) string {
	from, to = from.Local(), to.Local()
	layout := "2006-01-02 15:04:05"
	if from.Format(time.DateOnly) == to.Format(time.DateOnly) {
		layout = time.TimeOnly
	}
	return local(from) + " to " + to.Format(layout+" MST")
}

// missingText names what figures lack.
func missingText(list []*adminpb.MissingCounts) string {
	const most = 5
	var b strings.Builder
	for i, m := range list {
		if i == most {
			fmt.Fprintf(&b, "⚠ missing: and %d more; see them with -o json\n", len(list)-most)
			break
		}
		node := oneLine(m.GetNode())
		if node == "" {
			node = "a sidecar that is gone"
		}
		fmt.Fprintf(&b, "⚠ missing: what %s counted from %s will never come, so the figures are too small\n", node, localSpan(m.GetFrom().AsTime(), m.GetTo().AsTime()))
	}
	return b.String()
}

type missingItem struct {
	Node string `json:"node,omitempty"` // absent: of a sidecar that is gone
	From string `json:"from"`
	To   string `json:"to"`
}

func newMissingItems(list []*adminpb.MissingCounts) []missingItem {
	items := make([]missingItem, len(list))
	for i, m := range list {
		items[i] = missingItem{m.GetNode(), timeJSON(m.GetFrom()), timeJSON(m.GetTo())}
	}
	return items
}

// sparkline draws the values in one line, from 0 to the largest; in digits where the terminal has no other characters.
func (a *app) sparkline(values []int64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	if p, ok := a.io.Out.(*painter); ok && p.ascii {
		levels = []rune("01234567")
	}
	var largest int64
	for _, v := range values {
		largest = max(largest, v)
	}
	line := make([]rune, len(values))
	for i, v := range values {
		level := 0
		if largest > 0 {
			level = int(math.Ceil(float64(v) / float64(largest) * float64(len(levels)-1))) // what is not 0 is seen
		}
		line[i] = levels[max(level, 0)]
	}
	return string(line)
}
