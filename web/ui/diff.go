package ui

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// textDiff is how two texts differ: as one text, and side by side.
type textDiff struct {
	Unified []diffLine
	Sides   []diffPair
}

// diffLine is a line of a unified diff. Kind is "added", "removed", "place", or "" for what is in both.
type diffLine struct{ Kind, Text string }

// diffPair is a line of both texts beside each other, each with its number; 0 where a side has none.
type diffPair struct {
	Left, Right     string
	LeftNo, RightNo int
	Removed, Added  bool
	Apart           bool // lines are left out before it
}

// newTextDiff compares two texts by lines; nil where they are the same.
func newTextDiff(from, to, before, after string) (*textDiff, error) {
	edits := udiff.Lines(before, after)
	if len(edits) == 0 {
		return nil, nil //nolint:nilnil // they do not differ
	}
	unified, err := udiff.ToUnifiedDiff(from, to, before, edits, udiff.DefaultContextLines)
	if err != nil {
		return nil, fmt.Errorf("compare %s with %s: %w", from, to, err)
	}
	d := &textDiff{Unified: []diffLine{{"removed", "--- " + from}, {"added", "+++ " + to}}}
	for i, hunk := range unified.Hunks {
		d.Unified = append(d.Unified, diffLine{"place", fmt.Sprintf("@@ line %d, now %d @@", hunk.FromLine, hunk.ToLine)})
		d.hunk(hunk, i > 0)
	}
	return d, nil
}

// hunk puts what was removed beside what was added in its place.
func (d *textDiff) hunk(h *udiff.Hunk, apart bool) {
	left, right := h.FromLine, h.ToLine
	first, open := len(d.Sides), len(d.Sides) // where removed lines wait for added ones
	for _, line := range h.Lines {
		text := strings.TrimRight(line.Content, "\r\n")
		switch line.Kind {
		case udiff.Delete:
			d.Unified = append(d.Unified, diffLine{"removed", "-" + text})
			d.Sides = append(d.Sides, diffPair{Left: text, LeftNo: left, Removed: true})
			left++
		case udiff.Insert:
			d.Unified = append(d.Unified, diffLine{"added", "+" + text})
			if open == len(d.Sides) {
				d.Sides = append(d.Sides, diffPair{})
			}
			d.Sides[open].Right, d.Sides[open].RightNo, d.Sides[open].Added = text, right, true
			open++
			right++
		case udiff.Equal:
			d.Unified = append(d.Unified, diffLine{"", " " + text})
			d.Sides = append(d.Sides, diffPair{Left: text, Right: text, LeftNo: left, RightNo: right})
			open = len(d.Sides)
			left++
			right++
		}
	}
	if first < len(d.Sides) {
		d.Sides[first].Apart = apart
	}
}
