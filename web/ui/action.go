package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// An action is a change that a person can make. A GET of its address is its form, which says what it will do and asks for a
// message; a POST does it. The form works as a page, and in the dialog of another one.
type action struct {
	// path follows what it is about, as in "/d/{domain}/r/{rule}/do/promote": the pattern of a [http.ServeMux].
	path string
	role access.Role // that it needs
	// form says what would be done, as the query says it.
	form func(ctx context.Context, r *request) (form, error)
	// do does it, as the form was filled in, and says what was done.
	do func(ctx context.Context, r *request, why *adminpb.Why) (done string, err error)
}

// form is what a person confirms.
type form struct {
	Title    string // a question: "Promote api/per-key to 10% of keys?"
	Verb     string // the button: "Promote to 10%"
	Danger   bool   // callers are refused more by it, or something is lost
	Changes  []change
	Says     []string // what else it will do, in sentences
	Warnings []string // what is unusual about it
	Fields   []field  // what else is asked for
	Command  string   // of rulectl, which does the same
	Back     string   // the page that it is about
	Revision int64    // what is looked at: a change of it meanwhile is a conflict
	NoReason bool     // no message is asked for
}

// change is a before and an after.
type change struct{ What, Before, After string }

// field is a control of a form. Options make it a choice; Kind is the type of an input otherwise, or "textarea".
type field struct {
	Name, Label, Kind, Value, Hint string
	Options                        []option
	Required                       bool
}

type option struct{ Value, Text string }

// confirmation is what the page of a form shows.
type confirmation struct {
	form
	Action  string // where it is sent
	Reason  string // as it was typed
	Problem string // why it was not done
	Why     string // the caller may not: why
}

// action serves a form, and what it does.
func (u *UI) action(a action) {
	u.mux.HandleFunc("GET "+a.path, func(w http.ResponseWriter, r *http.Request) {
		f, err := u.frame(r, func(ctx context.Context, r *request) (view, error) { return u.confirm(ctx, r, a, "") })
		if err != nil {
			u.Failed(w, r, err)
			return
		}
		u.render(w, r, http.StatusOK, u.pages["confirm"], f)
	})
	u.mux.HandleFunc("POST "+a.path, func(w http.ResponseWriter, r *http.Request) { u.do(w, r, a) })
}

func (u *UI) confirm(ctx context.Context, r *request, a action, problem string) (view, error) {
	made, err := a.form(ctx, r)
	if err != nil {
		return view{}, err
	}
	c := confirmation{form: made, Action: r.URL.Path, Reason: r.Query.Get("message"), Problem: problem}
	if err := r.Who.May(a.role, r.PathValue("domain")); err != nil {
		c.Why = sentence(err)
	}
	return view{Title: made.Title, Data: c}, nil
}

// maxForm bounds what a form may hold.
const maxForm = 64 << 10

// do does what a form asks for, and leads back to the page that it is about. What was refused is said in the form.
func (u *UI) do(w http.ResponseWriter, r *http.Request, a action) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		u.Failed(w, r, fmt.Errorf("%w: the form: %w", rules.ErrInvalid, err))
		return
	}
	filled := &request{Request: r, Who: access.From(r.Context()), Query: first(r.PostForm)}
	why := &adminpb.Why{Message: filled.Query.Get("message")}
	if text := filled.Query.Get("revision"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			u.Failed(w, r, fmt.Errorf("%w: revision is %q, which is no number", rules.ErrInvalid, text))
			return
		}
		why.ExpectRevision = n
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	done, err := a.do(ctx, filled, why)
	if err != nil {
		u.undone(w, r, a, filled, inTime(ctx, err))
		return
	}
	leaveNotice(w, r, done)
	made, err := a.form(ctx, filled)
	if err != nil || made.Back == "" {
		made.Back = "/"
	}
	http.Redirect(w, r, made.Back, http.StatusSeeOther)
}

// undone shows the form again, as it was filled in, with the reason.
func (u *UI) undone(w http.ResponseWriter, r *http.Request, a action, filled *request, problem error) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	v, err := u.confirm(ctx, filled, a, sentence(problem))
	if err != nil {
		u.Failed(w, r, problem)
		return
	}
	u.render(w, r, failureOf(problem).Status, u.pages["confirm"], u.around(filled, v))
}

// first keeps one value of each name: a form has no more.
func first(all url.Values) url.Values {
	one := url.Values{}
	for name, values := range all {
		one.Set(name, values[0])
	}
	return one
}
