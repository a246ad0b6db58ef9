package ui

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"
)

// numbers are counts over time: a table, of which plots show some columns. The script draws them from the table, so that
// both say the same.
type numbers struct {
	ID      string
	Columns []column
	Rows    []row // by time, one for each step
	Step    time.Duration
	Marks   []mark
}

// column is one series. Class is allowed, would, refused or other: a colour and a pattern.
type column struct{ Name, Class string }

// row is a step. Plots leave one out that has only begun: it would look like a fall.
type row struct {
	At     time.Time
	Values []int64
	Open   bool
}

// mark is something that happened, as a vertical line.
type mark struct {
	At   time.Time
	Text string
}

// plot shows columns of a table, by their positions: as areas on each other, the first at the bottom, or as lines.
type plot struct {
	ID, Title string
	Of        *numbers
	Columns   []int
	Prefix    string // of the columns' names, that the title says already
	Lines     bool
}

// newNumbers makes rows for each step of a span, also for those in which nothing was counted.
func newNumbers(id string, from, to time.Time, step time.Duration, columns ...column) *numbers {
	n := &numbers{ID: id, Columns: columns, Step: step}
	if step <= 0 {
		return n
	}
	for at := from; at.Before(to); at = at.Add(step) {
		n.Rows = append(n.Rows, row{At: at, Values: make([]int64, len(columns)), Open: at.Add(step).After(to)})
	}
	return n
}

// at returns the values of the step that begins then; nil where there is no such step.
func (n *numbers) at(start time.Time) []int64 {
	if len(n.Rows) == 0 {
		return nil
	}
	i := int(start.Sub(n.Rows[0].At) / n.Step)
	if i < 0 || i >= len(n.Rows) {
		return nil
	}
	return n.Rows[i].Values
}

// Newest are the rows as people read them.
func (n *numbers) Newest() []row {
	newest := slices.Clone(n.Rows)
	slices.Reverse(newest)
	return newest
}

// Each is a length of a step in words.
func (n *numbers) Each() string { return lasting(n.Step) }

// Total is the sum of a column.
func (n *numbers) Total(of int) (sum int64) {
	for _, r := range n.Rows {
		sum += r.Values[of]
	}
	return sum
}

// used reports that a column has a number above 0.
func (n *numbers) used(of int) bool {
	return slices.ContainsFunc(n.Rows, func(r row) bool { return r.Values[of] > 0 })
}

// Names are the columns as the script finds them: their places change when a version comes.
func (p plot) Names() string {
	names := make([]string, len(p.Columns))
	for i, c := range p.Columns {
		names[i] = p.Of.Columns[c].Name
	}
	return strings.Join(names, "|")
}

// Series are the columns that are shown.
func (p plot) Series() []column {
	list := make([]column, len(p.Columns))
	for i, c := range p.Columns {
		list[i] = p.Of.Columns[c]
		list[i].Name = strings.TrimPrefix(list[i].Name, p.Prefix)
	}
	return list
}

// rows are the steps that are drawn.
func (p plot) rows() []row {
	rows := p.Of.Rows
	if n := len(rows); n > 0 && rows[n-1].Open {
		rows = rows[:n-1]
	}
	return rows
}

// From is the begin of the first step that is drawn.
func (p plot) From() time.Time {
	if rows := p.rows(); len(rows) > 0 {
		return rows[0].At
	}
	return time.Time{}
}

// To is the begin of the last one.
func (p plot) To() time.Time {
	if rows := p.rows(); len(rows) > 0 {
		return rows[len(rows)-1].At
	}
	return time.Time{}
}

// The size of a plot of the server, in the units of its own drawing.
const (
	plotWide = 1000
	plotHigh = 220
)

// Most is the largest value that is shown.
func (p plot) Most() (most int64) {
	for _, r := range p.rows() {
		var sum int64
		for _, c := range p.Columns {
			if p.Lines {
				most = max(most, r.Values[c])
			}
			sum += r.Values[c]
		}
		if !p.Lines {
			most = max(most, sum)
		}
	}
	return most
}

// SVG is the plot as the server draws it, for who runs no scripts. The table beneath it says the same to readers of words.
func (p plot) SVG() template.HTML {
	rows := p.rows()
	if len(rows) < 2 {
		return ""
	}
	most := max(1, p.Most())
	x := func(i int) string { return decimal(float64(i) * plotWide / float64(len(rows)-1)) }
	y := func(v int64) string { return decimal(plotHigh - float64(v)*(plotHigh-4)/float64(most)) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="drawn" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`, plotWide, plotHigh)
	low := make([]int64, len(rows))
	for _, c := range p.Columns {
		var d strings.Builder
		for i, r := range rows {
			d.WriteString(x(i) + " " + y(low[i]+r.Values[c]) + " ")
		}
		if p.Lines {
			fmt.Fprintf(&b, `<path class="line %s" d="M%s"/>`, p.Of.Columns[c].Class, d.String())
			continue
		}
		d.WriteString("L")
		for i, r := range slices.Backward(rows) {
			d.WriteString(x(i) + " " + y(low[i]) + " ")
			low[i] += r.Values[c]
		}
		fmt.Fprintf(&b, `<path class="%s" d="M%sZ"/>`, p.Of.Columns[c].Class, d.String())
	}
	for _, m := range p.Of.Marks {
		if m.At.Before(p.From()) || m.At.After(p.To()) {
			continue
		}
		at := decimal(float64(m.At.Sub(p.From())) * plotWide / float64(p.To().Sub(p.From())))
		fmt.Fprintf(&b, `<path class="mark" d="M%s 0V%d"/>`, at, plotHigh)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // made of numbers, and of classes that stand in this package
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
