package cli

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// A table is laid out as kubectl does it: upper-case headers, three spaces, no borders; an empty cell is "-". Rows that are
// rendered later stand below the earlier ones.
type table struct {
	header []string
	right  []string // the columns that are aligned to the right
	bare   bool     // without a header
	texts  []string // the columns that may be cut; others are what commands take, and numbers
	room   int      // columns of the terminal; 0: nothing is cut
	widths []int    // nil: nothing was rendered yet
}

// between is what separates two columns.
const between = "   "

func renderTable(header []string, rows [][]string, right ...string) string {
	return (&table{header: header, right: right}).render(rows, nil)
}

// render returns the rows, with what there is to say of each below it; notes may be nil. The first time there is a header.
func (t *table) render(rows [][]string, notes func(row int) []string) string {
	var b strings.Builder
	first := t.widths == nil
	if first {
		t.widths = make([]int, len(t.header))
		if !t.bare {
			t.widen(t.header)
		}
	}
	lines := make([][]string, len(rows))
	for i, row := range rows {
		lines[i] = make([]string, len(row))
		for n, cell := range row {
			if lines[i][n] = oneLine(cell); lines[i][n] == "" {
				lines[i][n] = "-"
			}
		}
		t.widen(lines[i])
	}
	t.fit()
	if first && !t.bare {
		t.line(&b, t.header)
	}
	for i, line := range lines {
		t.line(&b, line)
		if notes == nil {
			continue
		}
		for _, note := range notes(i) {
			b.WriteString(between + oneLine(note) + "\n")
		}
	}
	return b.String()
}

func (t *table) widen(line []string) {
	for i, cell := range line {
		t.widths[i] = max(t.widths[i], columns(cell))
	}
}

// fit narrows the widest of the texts until a line has room. Where that cannot be, all stays whole, and the terminal wraps
// the line.
func (t *table) fit() {
	const least = 8
	total, widths := len(between)*(len(t.widths)-1), slices.Clone(t.widths)
	for _, w := range widths {
		total += w
	}
	for ; t.room > 0 && total > t.room; total-- {
		widest := -1
		for i, w := range widths {
			if slices.Contains(t.texts, t.header[i]) && w > max(least, columns(t.header[i])) && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
	t.widths = widths
}

func (t *table) line(b *strings.Builder, line []string) {
	var text strings.Builder
	for i, cell := range line {
		if i > 0 {
			text.WriteString(between)
		}
		if columns(cell) > t.widths[i] {
			cell = cut(cell, t.widths[i])
		}
		space := strings.Repeat(" ", t.widths[i]-columns(cell))
		if slices.Contains(t.right, t.header[i]) {
			text.WriteString(space + cell)
		} else {
			text.WriteString(cell + space)
		}
	}
	b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
}

// cut shortens a text to that many columns of a terminal.
func cut(s string, most int) string {
	const mark = "…"
	has := columns(mark)
	for i, r := range s {
		if has += runeColumns(r); has > most {
			return s[:i] + mark
		}
	}
	return s
}

// columns is how many columns of a terminal a text takes.
func columns(s string) (n int) {
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// runeColumns knows the wide characters of East Asia and emoji, and marks that stand on the character before them.
func runeColumns(r rune) int {
	const plain = 0x300 // below are neither
	if r < plain {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
