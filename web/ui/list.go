package ui

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/rules"
)

// with is the address of the page with another value of a parameter; "" takes it away. What is asked for otherwise stays,
// but for the page of a list, which is another one then.
func (r *request) with(name, value string) string {
	query := url.Values{}
	for other := range r.Query {
		if v := r.Query.Get(other); v != "" && other != name && other != "page" && other != "before" {
			query.Set(other, v)
		}
	}
	if value != "" {
		query.Set(name, value)
	}
	to := url.URL{Path: r.URL.Path, RawQuery: query.Encode()}
	return to.String()
}

// number returns the whole number of a parameter, which is at least 1; 0 where it is not there.
func (r *request) number(name string) (int64, error) {
	text := r.Query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %s is %q; it is a whole number from 1 on", rules.ErrInvalid, name, text)
	}
	return n, nil
}

// day returns the time of a parameter: a day, as browsers ask for it, which begins at midnight UTC, or a time as in RFC 3339.
func (r *request) day(name string) (time.Time, error) {
	text := r.Query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %s is %q; it is a day such as 2026-11-30, or a time such as 2026-11-30T08:15:00Z", rules.ErrInvalid, name, text)
}

// pager leads through the pages of a list.
type pager struct {
	Page, Pages    int
	From, To, Of   int // shown are From to To, of so many
	Newer, Further string
}

// paged returns which part of a list is shown on the page that is asked for, size to a page. A page behind the end is
// the last one: the list may have become shorter.
func (r *request) paged(of, size int) (pager, error) {
	asked, err := r.number("page")
	if err != nil {
		return pager{}, err
	}
	p := pager{Pages: max(1, (of+size-1)/size), Of: of}
	p.Page = int(min(max(asked, 1), int64(p.Pages)))
	p.From, p.To = min((p.Page-1)*size, of), min(p.Page*size, of)
	if p.Page > 1 {
		p.Newer = r.with("page", strconv.Itoa(p.Page-1))
	}
	if p.Page < p.Pages {
		p.Further = r.with("page", strconv.Itoa(p.Page+1))
	}
	return p, nil
}
