package ui

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/auth"
)

// loginPage asks for a token.
type loginPage struct {
	Next    string // the page that was asked for
	Problem string // why the token was not taken
}

// login shows the form. Where nobody is asked who they are, there is nothing to sign in to.
func (u *UI) login(w http.ResponseWriter, r *http.Request) {
	if u.door == nil {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	u.showLogin(w, r, http.StatusOK, loginPage{Next: auth.LocalPath(r.URL.Query().Get("next"))})
}

func (u *UI) showLogin(w http.ResponseWriter, r *http.Request, status int, page loginPage) {
	u.render(w, r, status, u.pages["login"], u.around(&request{Request: r}, view{Title: "Sign in", Data: page}))
}

// signIn makes a session of a token, and leads to the page that was asked for. A token comes in the body alone: an address
// is kept in histories and logs.
func (u *UI) signIn(w http.ResponseWriter, r *http.Request) {
	if u.door == nil {
		u.Failed(w, r, errNoPage)
		return
	}
	if err := readForm(w, r); err != nil {
		u.Failed(w, r, err)
		return
	}
	page := loginPage{Next: auth.LocalPath(r.PostForm.Get("next"))}
	ctx, cancel := context.WithDeadline(r.Context(), due(r))
	defer cancel()
	cookie, err := await(ctx, func() (*http.Cookie, error) {
		cookie, _, err := u.door.SignIn(ctx, strings.TrimSpace(r.PostForm.Get("token")))
		return cookie, err
	})
	switch {
	case err == nil:
		http.SetCookie(w, cookie)
		http.Redirect(w, r, page.Next, http.StatusSeeOther)
	case errors.Is(err, rules.ErrUnauthenticated), errors.Is(err, rules.ErrForbidden):
		page.Problem = sentence(err)
		u.showLogin(w, r, failureOf(err).Status, page)
	default:
		u.Failed(w, r, err)
	}
}

// signOut ends the session.
func (u *UI) signOut(w http.ResponseWriter, r *http.Request) {
	if u.door == nil {
		u.Failed(w, r, errNoPage)
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), due(r))
	defer cancel()
	cookie, err := await(ctx, func() (*http.Cookie, error) { return u.door.SignOut(ctx, r) })
	if err != nil {
		u.Failed(w, r, err)
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
