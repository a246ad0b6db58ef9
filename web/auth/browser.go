package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// lookTime bounds how long a person waits to be told that the database is away.
const lookTime = 1500 * time.Millisecond

// Browser is the door of the dashboard: it puts the caller's identity into the context of each request, or refuses it.
//
// Who shows a token, the session of a sign-in or a client certificate is let in, also when it is for some domains only:
// what is behind the door looks at them. To sidecars it is shut, since they are no people. Who shows nothing that counts
// is sent from a page to /login?next=…, which is open to everybody, as /static/… is; other requests get 401.
//
// A request that changes something and comes from a page of another site is refused, whoever makes it. Where nobody is
// asked who they are, the port must be named by its address or as localhost: another name may be one that a foreign page
// has let point to here, so that a browser takes the two for one site. Such a request gets 421, unless Options.AnyHost
// allows it.
//
// Refused writes the answer to a request that is not let in. The error is of the kind [rules.ErrUnauthenticated],
// [rules.ErrForbidden] or [rules.ErrUnavailable], which comes within two seconds, and its text is for everybody. Nil: the
// answer is that text.
func (a *Authenticator) Browser(next http.Handler, refused func(http.ResponseWriter, *http.Request, error)) http.Handler {
	if refused == nil {
		refused = func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) }
	}
	door := &browser{Authenticator: a, next: next, refused: refused}
	sameSite := http.NewCrossOriginProtection()
	sameSite.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refused(w, r, fmt.Errorf("%w: the request comes from a page of another site; open the dashboard itself and do it there", rules.ErrForbidden))
	}))
	return sameSite.Handler(door)
}

type browser struct {
	*Authenticator
	next    http.Handler
	refused func(http.ResponseWriter, *http.Request, error)
}

func (b *browser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.credentials == nil {
		b.serveLocal(w, r)
		return
	}
	if isOpen(r.URL.Path) {
		from := &peer.Peer{Addr: remote(r.RemoteAddr)} // for who fails to sign in
		b.next.ServeHTTP(w, r.WithContext(peer.NewContext(r.Context(), from)))
		return
	}
	shown := b.proof(r)
	who, err := b.person(r.Context(), shown)
	if err != nil {
		b.refuse(w, r, shown, err)
		return
	}
	b.next.ServeHTTP(w, r.WithContext(access.With(r.Context(), who)))
}

// serveLocal lets everybody in who names the port as it should be named.
func (b *browser) serveLocal(w http.ResponseWriter, r *http.Request) {
	if !b.options.AnyHost && !NamedByAddress(r) {
		http.Error(w, "Here nobody is asked who they are, so the dashboard answers to its address (such as 127.0.0.1) and to localhost "+
			"only, and not to other names, which any site can let point to here.\nOpen it by its address, or start the control plane "+
			"with --auth token, or with --insecure.", http.StatusMisdirectedRequest)
		return
	}
	b.next.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Local(b.options.Local))))
}

func (b *browser) refuse(w http.ResponseWriter, r *http.Request, shown proof, err error) {
	isPage := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
	signsIn := isPage && errors.Is(err, rules.ErrUnauthenticated)
	if !signsIn || shown.isSomething() { // a page that somebody opens before they sign in is no failure
		b.failed(r.Context(), err, r.Method+" "+r.URL.Path, r.RemoteAddr)
	}
	if shown.session != "" && errors.Is(err, rules.ErrUnauthenticated) {
		http.SetCookie(w, b.noCookie()) // it would go before a certificate for ever
	}
	if !signsIn {
		b.refused(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/login?next="+url.QueryEscape(LocalPath(r.URL.RequestURI())), http.StatusSeeOther)
}

// isOpen reports whether everybody may ask for the path.
func isOpen(p string) bool {
	return p == "/login" || strings.HasPrefix(p, "/static/") && path.Clean(p) == p
}

// StillKnown returns nil while who made the request is known by what it showed, and otherwise a
// [rules.ErrUnauthenticated]. It is for answers that go on and on: they ask it every few seconds, and end. It costs little,
// as what the store says is believed for a while. A database that is away ends nothing.
func (a *Authenticator) StillKnown(ctx context.Context, r *http.Request) error {
	if a.credentials == nil {
		return nil
	}
	if _, err := a.person(ctx, a.proof(r)); errors.Is(err, rules.ErrUnauthenticated) {
		return err
	}
	return nil
}

// person finds out who shows the proof, and that it is no sidecar.
func (a *Authenticator) person(ctx context.Context, shown proof) (access.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	who, err := a.identify(ctx, shown)
	if err != nil {
		return access.Identity{}, err
	}
	everywhere := who
	everywhere.Domains = nil
	return who, everywhere.May(access.Viewer, "")
}

// proof is what a browser shows.
func (a *Authenticator) proof(r *http.Request) proof {
	p := proofOfRequest(r)
	if cookie, err := r.Cookie(a.cookieName()); err == nil && len(p.authorization) == 0 {
		p.session = cookie.Value
	}
	return p
}

func (p *proof) isSomething() bool { return len(p.authorization)+len(p.names) > 0 || p.session != "" }

// remote is the address of a browser.
type remote string

func (a remote) Network() string { return "tcp" }
func (a remote) String() string  { return string(a) }

// NamedByAddress reports whether the request names this port by an address, or as localhost.
func NamedByAddress(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// LocalPath returns next when it is a path here, with its query, and "/" otherwise. Whatever follows a ?next= goes through
// it: a link that signs people in must not lead them to another site.
func LocalPath(next string) string {
	u, err := url.Parse(next)
	local := err == nil && u.Scheme == "" && u.Host == "" && strings.HasPrefix(next, "/") &&
		!strings.HasPrefix(next, "//") && !strings.Contains(next, `\`) // browsers take a backslash for a slash
	if !local {
		return "/"
	}
	return next
}
