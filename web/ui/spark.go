package ui

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
)

// The size of a sparkline, in the units of its own drawing; it is as wide as its place.
const (
	sparkWide = 240
	sparkHigh = 40
)

// outcomes are requests by what became of them, of one step of time. Would is part of what was allowed.
type outcomes struct{ Allowed, Would, Refused int64 }

func (o outcomes) total() int64 { return o.Allowed + o.Refused }

// spark draws steps of equal length as areas on each other: refused at the bottom, then what would be refused, then what is
// allowed. Missing steps are zero. What it shows stands beside it in words, so that readers of words skip it.
func spark(steps []outcomes) template.HTML {
	if len(steps) < 2 {
		return ""
	}
	var most int64 = 1
	for _, s := range steps {
		most = max(most, s.total())
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`, sparkWide, sparkHigh)
	area := func(class string, low, high func(outcomes) int64) {
		var any int64
		var d strings.Builder
		point := func(i int, value int64) {
			x := float64(i) * sparkWide / float64(len(steps)-1)
			y := sparkHigh - float64(value)*(sparkHigh-2)/float64(most)
			d.WriteString(strconv.FormatFloat(x, 'f', 1, 64) + " " + strconv.FormatFloat(y, 'f', 1, 64) + " ")
		}
		d.WriteString("M")
		for i, s := range steps {
			any += high(s) - low(s)
			point(i, high(s))
		}
		d.WriteString("L")
		for i := len(steps) - 1; i >= 0; i-- {
			point(i, low(steps[i]))
		}
		if any > 0 {
			fmt.Fprintf(&b, `<path class="%s" d="%sZ"/>`, class, d.String())
		}
	}
	area("allowed", func(s outcomes) int64 { return s.Refused + s.Would }, outcomes.total)
	area("would", func(s outcomes) int64 { return s.Refused }, func(s outcomes) int64 { return s.Refused + s.Would })
	area("refused", func(outcomes) int64 { return 0 }, func(s outcomes) int64 { return s.Refused })
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // made of numbers alone
}

// share is one part of a bar.
type share struct {
	Class string // as in app.css
	Of    int64
}

// bar draws how parts share a whole.
func bar(parts ...share) template.HTML {
	var all int64
	for _, p := range parts {
		all += p.Of
	}
	var b strings.Builder
	b.WriteString(`<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">`)
	at := 0.0
	for _, p := range parts {
		if p.Of <= 0 {
			continue
		}
		wide := 100 * float64(p.Of) / float64(all)
		fmt.Fprintf(&b, `<rect class="%s" x="%.2f" y="0" width="%.2f" height="1"/>`, p.Class, at, wide)
		at += wide
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // made of numbers, and of names that stand in this package
}
