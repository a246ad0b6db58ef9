package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// errSignIn is the same for every token that does not count: the log says why.
var errSignIn = fmt.Errorf("%w: this token is unknown, has expired or was revoked; an admin makes another one with: rulectl token create",
	rules.ErrUnauthenticated)

// SignIn opens a session for who has the token, and returns its cookie, and who that is. The session has a fresh secret,
// whatever cookie the browser had before. A token that does not count is a [rules.ErrUnauthenticated] that does not say why,
// and one of a sidecar an [rules.ErrForbidden]. The token comes in the body of a request, never in its URL.
func (a *Authenticator) SignIn(ctx context.Context, token string) (*http.Cookie, access.Identity, error) {
	if a.credentials == nil {
		return nil, access.Identity{}, fmt.Errorf("%w: here nobody is asked who they are, so nobody signs in", rules.ErrInvalid)
	}
	who, err := a.person(ctx, proof{authorization: []string{"Bearer " + token}})
	if err != nil {
		a.failed(ctx, err, "sign in", peerOf(ctx))
		if errors.Is(err, rules.ErrUnauthenticated) {
			err = errSignIn
		}
		return nil, access.Identity{}, err
	}
	secret, session := access.NewSession(who, time.Now())
	if err := a.change(ctx, func(ctx context.Context) error { return a.options.Store.AddSession(ctx, session) }); err != nil {
		return nil, access.Identity{}, err
	}
	a.log.InfoContext(ctx, "signed in", "name", who.Name, "credential", who.Credential, "until", session.Expires, "peer", peerOf(ctx))
	who.Expires = session.Expires
	return a.cookie(secret, session.Expires.Sub(session.Created)), who, nil
}

// SignOut ends the session that the request shows, if it shows one, and returns the cookie that takes the browser's away.
// Other replicas let the session in for the seconds for which they believe what the store said.
func (a *Authenticator) SignOut(ctx context.Context, r *http.Request) (*http.Cookie, error) {
	cookie, err := r.Cookie(a.cookieName())
	if err != nil || a.sessions == nil {
		return a.noCookie(), nil
	}
	hash := access.HashSession(cookie.Value)
	if err := a.change(ctx, func(ctx context.Context) error { return a.options.Store.EndSession(ctx, hash) }); err != nil {
		return nil, err
	}
	a.sessions.forget(func(other string, _ *opened) bool { return other == hash })
	return a.noCookie(), nil
}

// SignOutEverywhere ends every session of the credential that the identity has proved, here at once and at other replicas as
// [Authenticator.SignOut] does. The credential itself stays.
func (a *Authenticator) SignOutEverywhere(ctx context.Context, who access.Identity) error {
	if who.Credential == "" || a.sessions == nil {
		return nil
	}
	if err := a.change(ctx, func(ctx context.Context) error { return a.options.Store.EndSessions(ctx, who.Credential) }); err != nil {
		return err
	}
	a.sessions.forget(func(_ string, o *opened) bool { return o.session.Credential == who.Credential })
	return nil
}

// change changes the sessions in the store, or says within a moment that it cannot be done.
func (a *Authenticator) change(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if err := do(ctx); err != nil {
		err = away(err)
		a.failed(ctx, err, "change sessions", peerOf(ctx))
		return err
	}
	return nil
}

// cookieName has a prefix that browsers keep to: by TLS only, and for this host alone.
func (a *Authenticator) cookieName() string {
	if a.options.TLS {
		return "__Host-headgate_session"
	}
	return "headgate_session"
}

// cookie holds the secret of a session. It is sent along with links from elsewhere, such as that of an alert, and with
// nothing else from other sites.
func (a *Authenticator) cookie(secret string, life time.Duration) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure wherever browsers reach us by TLS
		Name: a.cookieName(), Value: secret, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, Secure: a.options.TLS, SameSite: http.SameSiteLaxMode,
	}
}

// noCookie takes it away.
func (a *Authenticator) noCookie() *http.Cookie { return a.cookie("", -time.Second) }
