package ui

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// Options are what the dashboard needs.
type Options struct {
	// API is asked as the caller, whose identity is in the context. Its errors are of the kinds of package rules.
	API  adminpb.AdminServiceClient
	Door Door         // nil: nobody is asked who they are
	TLS  bool         // browsers reach it by https
	Log  *slog.Logger // nil: none
	// Answers makes what a caller of a rule with the spec gets: for the first call, and when all is spent; nil for what does
	// not happen. Doors of sidecars make the same. Nil: it is not shown.
	Answers func(ctx context.Context, rule string, spec *rules.Spec) (allowed, refused *Answer, err error)
}

// Door lets people in and out. An authenticator of package auth is one.
type Door interface {
	// SignIn makes a session of a token; its cookie proves it from then on.
	SignIn(ctx context.Context, token string) (*http.Cookie, access.Identity, error)
	// SignOut ends the session of a request, and returns the cookie that takes the place of its own.
	SignOut(ctx context.Context, r *http.Request) (*http.Cookie, error)
	// SignOutEverywhere ends all sessions of the caller's credential.
	SignOutEverywhere(ctx context.Context, who access.Identity) error
	// StillKnown returns why the caller of a long request is not known any more, or nil.
	StillKnown(ctx context.Context, r *http.Request) error
}

// UI serves the dashboard. It is safe for concurrent use.
type UI struct {
	api     adminpb.AdminServiceClient
	door    Door
	tls     bool
	log     *slog.Logger
	answers func(ctx context.Context, rule string, spec *rules.Spec) (allowed, refused *Answer, err error)
	mux     *http.ServeMux
	pages   map[string]*shape
	feeds   feeds
	stopped chan struct{} // closed by Stop
	stop    sync.Once
	chain   chain
}

// patience is how long after its request a page waits for what it shows: within the two seconds in which it must say so.
const patience = 1800 * time.Millisecond

// arrived is the key of when a request came.
type arrived struct{}

func arrive(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), arrived{}, time.Now()))
}

// due is until when a request waits.
func due(r *http.Request) time.Time {
	at, ok := r.Context().Value(arrived{}).(time.Time)
	if !ok {
		at = time.Now()
	}
	return at.Add(patience)
}

// New returns the dashboard.
func New(o Options) (*UI, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	u := &UI{api: o.API, door: o.Door, tls: o.TLS, answers: o.Answers, log: o.Log.With("component", "ui"), mux: http.NewServeMux(), stopped: make(chan struct{})}
	var err error
	if u.pages, err = shapes(); err != nil {
		return nil, fmt.Errorf("ui: %w", err)
	}
	u.routes()
	return u, nil
}

// Stop ends the pages that are followed, which never end by themselves, now and from now on. Others are answered as before.
func (u *UI) Stop() { u.stop.Do(func() { close(u.stopped) }) }

// routes are all that the dashboard answers.
func (u *UI) routes() {
	u.page("GET /{$}", "overview", u.overview)
	u.page("GET /d/{domain}", "domain", u.domain)
	u.page("GET /d/{domain}/r/{rule}", "rule", u.rule)
	u.mux.HandleFunc("POST /d/{domain}/r/{rule}/lookup", u.lookup)
	u.page("GET /d/{domain}/r/{rule}/lookup", "rule", u.lookupForm)
	u.actions()

	u.page("GET /sidecars", "fleet", u.fleet)
	u.page("GET /sidecars/{node}", "sidecar", u.sidecar)
	u.page("GET /alerts", "alerts", u.alerts)
	u.page("GET /audit", "audit", u.audit)
	u.page("GET /audit/{number}", "record", u.record)
	u.mux.HandleFunc("GET /audit/export.jsonl", u.export)
	u.page("GET /overrides", "overrides", u.overrides)
	u.page("GET /settings", "settings", u.settings)
	u.mux.HandleFunc("GET /login", u.login)
	u.mux.HandleFunc("POST /login", u.signIn)
	u.mux.HandleFunc("POST /logout", u.signOut)

	u.mux.HandleFunc("GET /static/{file...}", static)
	u.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { u.Failed(w, r, errNoPage) })
}

// policy lets a page load scripts, styles, images and data from here alone, and run nothing that stands in it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Behind puts the dashboard behind a door, such as [auth.Authenticator.Browser]. What the door takes to find out who asks is
// part of the time in which a page comes.
func (u *UI) Behind(door func(http.Handler, func(http.ResponseWriter, *http.Request, error)) http.Handler) http.Handler {
	inner := door(u, u.Failed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, arrive(r)) })
}

func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w.Header())
	u.mux.ServeHTTP(w, r)
}

// guard sets what every answer has.
func guard(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
