package ui

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// span is the time that a page is about: the last hour or the like, which goes on, or from one instant to another.
type span struct {
	From, To time.Time
	Range    string // "" where both ends are fixed
}

var ranges = []struct {
	name string
	of   time.Duration
}{
	{"15m", 15 * time.Minute},
	{"1h", time.Hour},
	{"6h", 6 * time.Hour},
	{"24h", 24 * time.Hour},
	{"7d", 7 * 24 * time.Hour},
	{"30d", 30 * 24 * time.Hour},
}

const (
	defaultRange = "1h"
	// shortestSpan is what still shows something: counts are kept by ten seconds.
	shortestSpan = time.Minute
)

// span reads ?range= or ?from= with ?to= of an address.
func (r *request) span(now time.Time) (span, error) {
	name, from, to := r.Query.Get("range"), r.Query.Get("from"), r.Query.Get("to")
	if from == "" && to == "" {
		return lastSpan(name, now)
	}
	if name != "" {
		return span{}, fmt.Errorf("%w: range says the same as from and to: leave one out", rules.ErrInvalid)
	}
	var s span
	var err error
	if s.From, err = time.Parse(time.RFC3339, from); err != nil {
		return span{}, fmt.Errorf("%w: from is %q; with to it is a time such as 2026-11-29T09:00:00Z", rules.ErrInvalid, from)
	}
	if s.To, err = time.Parse(time.RFC3339, to); err != nil {
		return span{}, fmt.Errorf("%w: to is %q; with from it is a time such as 2026-11-29T10:00:00Z", rules.ErrInvalid, to)
	}
	if s.To.Sub(s.From) < shortestSpan {
		return span{}, fmt.Errorf("%w: to is %q; it is at least %s after from", rules.ErrInvalid, to, shortestSpan)
	}
	return s, nil
}

func lastSpan(name string, now time.Time) (span, error) {
	if name == "" {
		name = defaultRange
	}
	names := make([]string, len(ranges))
	for i, r := range ranges {
		if r.name == name {
			return span{From: now.Add(-r.of), To: now, Range: name}, nil
		}
		names[i] = r.name
	}
	return span{}, fmt.Errorf("%w: range is %q; it is one of %s", rules.ErrInvalid, name, strings.Join(names, ", "))
}

// keep adds the span to the query of another address; the usual one is not written.
func (s span) keep(q url.Values) {
	switch s.Range {
	case "":
		q.Set("from", s.From.UTC().Format(time.RFC3339))
		q.Set("to", s.To.UTC().Format(time.RFC3339))
	case defaultRange:
	default:
		q.Set("range", s.Range)
	}
}

// choices lead to a tab of a page with another range.
func (s span) choices(path, tabName string) []tab {
	list := make([]tab, len(ranges))
	for i, r := range ranges {
		q := url.Values{"tab": {tabName}}
		span{Range: r.name}.keep(q)
		list[i] = tab{Name: r.name, Text: r.name, To: path + "?" + q.Encode(), Here: r.name == s.Range}
	}
	return list
}
