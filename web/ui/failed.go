package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/rules"
)

var (
	errNoPage = fmt.Errorf("%w: there is no such page", rules.ErrNotFound)
	errLate   = fmt.Errorf("%w: the database did not answer within %s", rules.ErrUnavailable, patience)
)

// failure is what the error page shows.
type failure struct {
	Status  int
	Heading string
	Text    string
	Retry   bool // it may be otherwise in a moment
	SignIn  bool // it may be otherwise for who signs in
	Unsure  bool // what was sent may have been done
	Up      link // the page above, or this one without what was asked of it; empty: there is only the overview
}

// Failed answers with a page that says why there is no other one; also for a door that does not let a request in.
func (u *UI) Failed(w http.ResponseWriter, r *http.Request, err error) {
	u.failed(w, r, err, failureOf(err))
}

// unsure answers a form of which nobody knows what became of it: that nothing was heard of a change does not say that it was
// not made.
func (u *UI) unsure(w http.ResponseWriter, r *http.Request, err error) {
	f := failureOf(err)
	f.Heading, f.Retry, f.Unsure = "Perhaps done", false, true
	f.Text += " Whether this was done is not known: look at the audit trail before you do it again."
	u.failed(w, r, err, f)
}

func (u *UI) failed(w http.ResponseWriter, r *http.Request, err error, f failure) {
	guard(w.Header())
	if f.Status >= http.StatusInternalServerError && !errors.Is(err, context.Canceled) {
		u.log.WarnContext(r.Context(), "page failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	if f.Retry {
		w.Header().Set("Retry-After", "2")
	}
	req := &request{Request: r}
	if known, err := newRequest(r); err == nil {
		req = known
	}
	f.Up = above(r, f.Status)
	u.render(w, r, f.Status, u.pages["failed"], u.around(req, view{Title: f.Heading, Data: f}))
}

// above is where somebody goes on from an address that has no page.
func above(r *http.Request, status int) link {
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	to := "/"
	switch {
	case status == http.StatusBadRequest && r.URL.RawQuery != "":
		to = "/" + strings.Join(parts, "/")
	case parts[0] == "d" && len(parts) > 2:
		to = "/d/" + parts[1]
	case parts[0] != "d" && len(parts) > 1:
		to = "/" + parts[0]
	}
	if to == "/" {
		return link{}
	}
	return link{Text: "Back to " + to, To: to}
}

func failureOf(err error) failure {
	for _, k := range []struct {
		kind    error
		status  int
		heading string
	}{
		{rules.ErrNotFound, http.StatusNotFound, "Not found"},
		{rules.ErrForbidden, http.StatusForbidden, "Not allowed"},
		{rules.ErrUnauthenticated, http.StatusUnauthorized, "Not signed in"},
		{rules.ErrInvalid, http.StatusBadRequest, "Not understood"},
		{rules.ErrConflict, http.StatusConflict, "Something else changed first"},
		{rules.ErrGuarded, http.StatusUnprocessableEntity, "Stopped"},
	} {
		if errors.Is(err, k.kind) && !errors.Is(err, rules.ErrUnavailable) {
			return failure{Status: k.status, Heading: k.heading, Text: sentence(err), SignIn: k.status == http.StatusUnauthorized}
		}
	}
	// What it is may hold addresses and names of the database: it is in the log.
	switch {
	case errors.Is(err, errLate):
		return failure{Status: http.StatusServiceUnavailable, Heading: "Not available", Text: sentence(err), Retry: true}
	case errors.Is(err, rules.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return failure{
			Status: http.StatusServiceUnavailable, Heading: "Not available",
			Text: "The database cannot be asked at the moment. The control plane's log says why.", Retry: true,
		}
	}
	return failure{
		Status: http.StatusInternalServerError, Heading: "Something went wrong",
		Text: "The database could not be asked, or answered with something that was not understood. The control plane's log says what it was.", Retry: true,
	}
}

// sentence is an error as people read it.
func sentence(err error) string {
	text := err.Error()
	for _, kind := range []error{rules.ErrNotFound, rules.ErrForbidden, rules.ErrUnauthenticated, rules.ErrInvalid, rules.ErrConflict, rules.ErrGuarded, rules.ErrUnavailable} {
		text = strings.TrimPrefix(text, kind.Error()+": ")
		text = strings.Replace(text, ": "+kind.Error()+": ", ": ", 1) // after what was tried
	}
	return asSentence(text)
}

func asSentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
