package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// An action is a change that a person can make. A GET of its address is its form, which says what it will do and asks for a
// message; a POST does it. The form works as a page, and in the dialog of another one.
type action struct {
	// path follows what it is about, as in "/d/{domain}/r/{rule}/do/promote": the pattern of a [http.ServeMux].
	path string
	role access.Role // that it needs; "": none, whoever is known may
	// form says what would be done, as the query says it.
	form func(ctx context.Context, r *request) (form, error)
	// do does it, as the form was filled in.
	do func(ctx context.Context, r *request, why *adminpb.Why) (done, error)
	// dry: do keeps to Why.dry_run, and the form as it is opened holds all it needs. So the form says what it would do, or
	// what stops it.
	dry bool
	// others is how long do may take, where it waits for others than the database; 0: it does not.
	others time.Duration
	// knowingly is what somebody says who goes on although a guard has stopped it. Do finds it with [request.knowingly].
	knowingly string
}

// done is what came of an action.
type done struct {
	outcome *adminpb.Outcome // of what makes a revision
	says    string           // of anything else
	shown   *shown           // what is shown at once, and never again; nil: the way leads back to the page
}

// shown is an answer that is not kept, such as a token.
type shown struct {
	Title, Secret string
	Says          []string
	Facts         []fact
	Back          string
}

// action serves a form, and what it does.
func (u *UI) action(a action) {
	u.mux.HandleFunc("GET "+a.path, func(w http.ResponseWriter, r *http.Request) {
		f, err := u.frame(r, func(ctx context.Context, r *request) (view, error) { return u.confirm(ctx, r, a, nil) })
		if err != nil {
			u.Failed(w, r, err)
			return
		}
		u.render(w, r, http.StatusOK, u.pages["confirm"], f)
	})
	u.mux.HandleFunc("POST "+a.path, func(w http.ResponseWriter, r *http.Request) { u.do(w, r, a) })
}

// do does what a form asks for, and leads back to the page that it is about. What was refused is said in the form.
func (u *UI) do(w http.ResponseWriter, r *http.Request, a action) {
	if err := readForm(w, r); err != nil {
		u.Failed(w, r, err)
		return
	}
	filled := &request{Request: r, Who: access.From(r.Context()), Query: first(r.PostForm)}
	why, err := filled.why()
	if err != nil {
		u.Failed(w, r, err)
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), due(r))
	defer cancel()
	if a.others > 0 {
		ctx, cancel = context.WithTimeout(r.Context(), a.others)
		defer cancel()
	}
	result, err := await(ctx, func() (done, error) { return a.do(ctx, filled, why) })
	if err != nil {
		u.undone(ctx, w, a, filled, err)
		return
	}
	if result.shown != nil {
		u.render(w, r, http.StatusOK, u.pages["shown"], u.around(filled, view{Title: result.shown.Title, Data: result.shown}))
		return
	}
	u.leaveNotice(w, u.doneWords(ctx, &result))
	http.Redirect(w, r, backFrom(r), http.StatusSeeOther) //nolint:gosec // a path that a pattern of an action has matched
}

// why is what a form says of why it was sent, and of what was looked at.
func (r *request) why() (*adminpb.Why, error) {
	why := &adminpb.Why{Message: r.Query.Get("message")}
	if text := r.Query.Get("revision"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: revision is %q, which is no number", rules.ErrInvalid, text)
		}
		why.ExpectRevision = n
	}
	return why, nil
}

// knowingly reports that whoever sent the form goes on past what has stopped it.
func (r *request) knowingly() bool { return r.Query.Get("knowingly") == "true" }

// undone shows the form again, as it was filled in, with the reason why it was refused. Where it was not refused, it may have
// been done.
func (u *UI) undone(ctx context.Context, w http.ResponseWriter, a action, filled *request, problem error) {
	r, status := filled.Request, failureOf(problem).Status
	if status >= http.StatusInternalServerError {
		u.unsure(w, r, problem)
		return
	}
	v, err := await(ctx, func() (view, error) { return u.confirm(ctx, filled, a, problem) })
	if err != nil {
		u.Failed(w, r, problem)
		return
	}
	u.render(w, r, status, u.pages["confirm"], u.around(filled, v))
}

// confirmation is what the page of a form shows.
type confirmation struct {
	form
	Action    string // where it is sent
	Back      string
	Reason    string // as it was typed
	Heading   string // of a problem
	Problem   string // why it was not done, or cannot be
	Nothing   string // why it would change nothing
	Why       string // the caller may not: why
	Knowingly string // what is said to go on
}

// confirm makes the form. The problem is why it could not be done as it was sent; nil where it was not sent yet.
func (u *UI) confirm(ctx context.Context, r *request, a action, problem error) (view, error) {
	made, err := a.form(ctx, r)
	if err != nil {
		return view{}, err
	}
	c := confirmation{form: made, Action: r.URL.Path, Back: backFrom(r.Request), Reason: r.Query.Get("message")}
	v := view{Title: made.Title, Crumb: crumbs(r)}
	if r.PathValue("domain") == "" {
		v.Nav = "settings"
	}
	if a.role != "" {
		if why := whyNot(r.Who, a.role, r.PathValue("domain")); why != "" {
			c.Why = why
			v.Data = &c
			return v, nil
		}
	}
	if a.dry && made.Verb != "" {
		if err := c.foretell(ctx, r, a, problem); err != nil {
			return view{}, err
		}
	} else if problem != nil {
		c.stop("Not done.", problem)
	}
	if c.Heading != "" && errors.Is(problem, rules.ErrGuarded) {
		c.Knowingly = a.knowingly
	}
	v.Data = &c
	return v, nil
}

// foretell asks what would be done, were the form sent as it is, and says so.
func (c *confirmation) foretell(ctx context.Context, r *request, a action, problem error) error {
	sent := &request{Request: r.Request, Who: r.Who, Query: c.sent()}
	if problem != nil && r.knowingly() {
		sent.Query.Set("knowingly", "true")
	}
	would, err := a.do(ctx, sent, &adminpb.Why{DryRun: true, ExpectRevision: c.Revision, Message: c.Reason})
	switch {
	case err == nil:
		if err := c.will(would.outcome); err != nil {
			return err
		}
	case !isRefusal(err):
		return err
	}
	switch {
	case problem == nil && err == nil:
	case problem == nil:
		c.stop("", err)
	case errors.Is(problem, rules.ErrConflict) && err == nil:
		c.stop("Not done.", problem)
		c.Problem += " This form has been made anew from what stands now: send it again if it is still meant."
	default:
		c.stop("Not done.", problem)
	}
	if errors.Is(err, rules.ErrGuarded) || errors.Is(problem, rules.ErrGuarded) {
		c.Knowingly = a.knowingly
	}
	if errors.Is(err, rules.ErrConflict) || errors.Is(err, rules.ErrNotFound) {
		c.Verb = "" // it cannot be sent as it is
	}
	return nil
}

// isRefusal reports that it was asked and refused, in contrast to not being able to ask.
func isRefusal(err error) bool {
	return errors.Is(err, rules.ErrInvalid) || errors.Is(err, rules.ErrConflict) || errors.Is(err, rules.ErrGuarded) || errors.Is(err, rules.ErrNotFound)
}

// stop says what stops it. Of a guard that is the danger: the way past it is a control of the form.
func (c *confirmation) stop(heading string, err error) {
	c.Heading, c.Problem = heading, sentence(err)
	var guard *rules.GuardError
	switch {
	case errors.As(err, &guard):
		c.Problem = guard.Rule + ": " + guard.Danger + "."
		if heading == "" {
			c.Heading = "A guard stops this."
		}
	case heading == "":
		c.Heading = "This cannot be done."
	}
}

// first keeps one value of each name: a form has no more.
func first(all url.Values) url.Values {
	one := url.Values{}
	for name, values := range all {
		one.Set(name, values[0])
	}
	return one
}
