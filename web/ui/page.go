package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// A load reads what a page shows. It must stop when ctx ends. Its error becomes an error page: of the kinds of package
// rules, each has its status.
type load func(ctx context.Context, r *request) (view, error)

// A view is what a page shows.
type view struct {
	Title string
	Nav   string // the entry of the navigation that it belongs to
	Crumb []link // the way to it
	Data  any    // what its template gets as .Page
}

// link leads to another page.
type link struct{ Text, To string }

// request is what is asked for.
type request struct {
	*http.Request
	Who   access.Identity
	Query url.Values
}

// frame is what every template gets: a view, and what stands around it.
type frame struct {
	view
	Who    access.Identity
	Self   string // path and query of the page
	Query  url.Values
	Notice string // what was just done
	SignIn bool   // there are sessions
	Now    time.Time
	Page   any
}

// May tells whether the caller may do what needs a role in a domain ("": in all).
func (f *frame) May(role, domain string) bool { return f.Who.May(access.Role(role), domain) == nil }

// WhyNot says why the caller may not; "" where they may.
func (f *frame) WhyNot(role, domain string) string {
	return whyNot(f.Who, access.Role(role), domain)
}

func whyNot(who access.Identity, role access.Role, domain string) string {
	err := who.May(role, domain)
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), rules.ErrForbidden.Error()+": ")
}

// page serves a page, and its live parts to whoever asks for an event stream.
func (u *UI) page(pattern, name string, l load) {
	shape := u.pages[name]
	if shape == nil {
		panic("no template for the page " + name) // New is called at the start of the program, and in every test
	}
	u.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if r.Header.Get("Accept") == "text/event-stream" {
			u.stream(w, r, shape, l)
			return
		}
		f, err := u.frame(r, l)
		if err != nil {
			u.Failed(w, r, err)
			return
		}
		f.Notice = u.takeNotice(w, r)
		u.render(w, r, http.StatusOK, shape, f)
	})
}

// frame loads a page.
func (u *UI) frame(r *http.Request, l load) (*frame, error) {
	req, err := newRequest(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(r.Context(), due(r))
	defer cancel()
	v, err := await(ctx, func() (view, error) { return l(ctx, req) })
	if err != nil {
		return nil, err
	}
	return u.around(req, v), nil
}

// await returns what do returns, or errLate when ctx has ended because of its deadline. One that does not stop then is left
// alone.
func await[T any](ctx context.Context, do func() (T, error)) (got T, err error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := do()
		done <- result{got, err}
	}()
	select {
	case r := <-done:
		got, err = r.got, r.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errLate
	}
	return got, err
}

func (u *UI) around(r *request, v view) *frame {
	return &frame{view: v, Who: r.Who, Self: r.URL.RequestURI(), Query: r.Query, SignIn: u.door != nil, Now: time.Now(), Page: v.Data}
}

func newRequest(r *http.Request) (*request, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: the address of this page is broken after the question mark: %w", rules.ErrInvalid, err)
	}
	for name, values := range query {
		if len(values) > 1 {
			return nil, fmt.Errorf("%w: %q stands in the address of this page %d times; once is clear", rules.ErrInvalid, name, len(values))
		}
	}
	return &request{Request: r, Who: access.From(r.Context()), Query: query}, nil
}

// choice returns the value of a query parameter, which must be one of some; the first of them where it is not there.
func (r *request) choice(name string, of ...string) (string, error) {
	value := r.Query.Get(name)
	if value == "" {
		return of[0], nil
	}
	for _, v := range of {
		if v == value {
			return v, nil
		}
	}
	return "", fmt.Errorf("%w: %s is %q; it is one of %s", rules.ErrInvalid, name, value, strings.Join(of, ", "))
}

// render writes a page, whole or not at all.
func (u *UI) render(w http.ResponseWriter, r *http.Request, status int, s *shape, f *frame) {
	var b bytes.Buffer
	if err := s.tree.ExecuteTemplate(&b, "layout", f); err != nil {
		u.log.ErrorContext(r.Context(), "page not made", "page", s.name, "err", err)
		http.Error(w, "this page could not be made; the control plane's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w)
}
