package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/rules"
)

var errNoPage = fmt.Errorf("%w: there is no such page", rules.ErrNotFound)

// failure is what the error page shows.
type failure struct {
	Status  int
	Heading string
	Text    string
	Retry   bool // it may be otherwise in a moment
	SignIn  bool // it may be otherwise for who signs in
}

// Failed answers with a page that says why there is no other one; also for a door that does not let a request in.
func (u *UI) Failed(w http.ResponseWriter, r *http.Request, err error) {
	guard(w.Header())
	f := failureOf(err)
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
	u.render(w, r, f.Status, u.pages["failed"], u.around(req, view{Title: f.Heading, Data: f}))
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
		{rules.ErrUnavailable, http.StatusServiceUnavailable, "Not available"},
		{context.DeadlineExceeded, http.StatusServiceUnavailable, "Not available"},
	} {
		if errors.Is(err, k.kind) {
			return failure{Status: k.status, Heading: k.heading, Text: sentence(err), Retry: k.status == http.StatusServiceUnavailable, SignIn: k.status == http.StatusUnauthorized}
		}
	}
	// What it is may hold addresses and names of the database: it is in the log.
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
	}
	return asSentence(text)
}

func asSentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
