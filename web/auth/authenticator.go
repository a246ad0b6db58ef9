package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
)

// Store finds credentials, and keeps sessions.
type Store interface {
	// Credential returns the one with the hash, or [rules.ErrNotFound].
	Credential(ctx context.Context, hash string) (access.Credential, error)
	access.Sessions
}

// Options configure an [Authenticator].
type Options struct {
	Store Store // nil: nobody is asked who they are
	// Refused records that somebody tried to change what their role does not let them, and returns why it was refused:
	// [rollout.Service.Refused]. Nil: it is not recorded.
	Refused func(ctx context.Context, domain string, action rollout.Action, target string, why rollout.Why, refusal error) error

	// TLS says that browsers reach the HTTP port by https. They send the cookie of a session by nothing else then.
	TLS bool
	// Local is what everybody is called in a browser, where nobody is asked who they are; "": unknown.
	Local string
	// AnyHost lets browsers in by any name of the port, where nobody is asked who they are: see [Authenticator.Browser].
	AnyHost bool

	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: not registered
}

// Authenticator is the door of the gRPC and the HTTP port. It is safe for concurrent use.
type Authenticator struct {
	options     Options
	credentials *lookups[access.Credential] // nil: authentication is off
	sessions    *lookups[opened]
	log         *slog.Logger
	failures    *prometheus.CounterVec
	logged      atomic.Int64 // Unix second of the last failure that was logged
}

// opened is a session, and the credential that opened it.
type opened struct {
	session    access.Session
	credential access.Credential
}

// New returns an authenticator.
func New(o Options) (*Authenticator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authenticator{
		options: o, log: o.Log.With("component", "auth"),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_auth_failures_total", Help: "Calls whose caller could not be told, by reason.",
		}, []string{"reason"}),
	}
	for _, r := range reasons {
		a.failures.WithLabelValues(string(r))
	}
	if o.Store != nil {
		a.credentials = newLookups(o.Store.Credential)
		a.sessions = newLookups(func(ctx context.Context, hash string) (of opened, err error) {
			of.session, of.credential, err = o.Store.Session(ctx, hash)
			return of, err
		})
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(a.failures); err != nil {
			return nil, fmt.Errorf("auth: register metrics: %w", err)
		}
	}
	return a, nil
}

// A reason is why nobody knows who calls.
type reason string

const (
	missing     reason = "missing"   // neither token nor session nor certificate
	malformed   reason = "malformed" // what was sent is no token
	unknown     reason = "unknown"
	revoked     reason = "revoked"
	expired     reason = "expired"
	unavailable reason = "unavailable" // the database
)

var reasons = []reason{missing, malformed, unknown, revoked, expired, unavailable}

// A failure says why. Its text goes to the caller; what it wraps is for the log as well.
type failure struct {
	reason reason
	err    error // of a kind of package rules
	cause  error // what the caller does not get to see; may be nil
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func unauthenticated(r reason, text string) *failure {
	return &failure{reason: r, err: fmt.Errorf("%w: %s", rules.ErrUnauthenticated, text)}
}

// A proof is what a caller shows.
type proof struct {
	authorization []string  // values of the header
	session       string    // the secret in the cookie; "": none, or there is an authorization
	names         []string  // in the certificate, which was verified, in the order in which they are tried
	until         time.Time // when the certificate expires
}

// maxToken is far above what a token has.
const maxToken = 256

const howTo = "send a token (rulectl --token-file or HEADGATE_TOKEN, sidecar --controlplane-token-file) or show a client certificate"

// identify finds out who shows the proof. Its error is a *failure, or says that the caller has gone.
func (a *Authenticator) identify(ctx context.Context, p proof) (access.Identity, error) {
	switch {
	case len(p.authorization) > 0:
		return a.byToken(ctx, p.authorization)
	case p.session != "":
		return a.bySession(ctx, p.session)
	case len(p.names) > 0:
		return a.byCertificate(ctx, p)
	}
	return access.Identity{}, unauthenticated(missing, howTo)
}

func (a *Authenticator) byToken(ctx context.Context, authorization []string) (access.Identity, error) {
	scheme, token, _ := strings.Cut(authorization[0], " ")
	token = strings.TrimSpace(token)
	if len(authorization) > 1 || !strings.EqualFold(scheme, "bearer") || !strings.HasPrefix(token, "hg_") || len(token) > maxToken {
		return access.Identity{}, unauthenticated(malformed, "the authorization is not one \"Bearer hg_…\"; "+howTo)
	}
	c, err := a.credentials.find(ctx, access.HashToken(token))
	if errors.Is(err, rules.ErrNotFound) {
		return access.Identity{}, unauthenticated(unknown, "the token is not known here; "+howTo)
	}
	if err != nil {
		return access.Identity{}, away(err)
	}
	who, err := c.Identity(time.Now())
	return who, ofCredential(&c, err)
}

func (a *Authenticator) bySession(ctx context.Context, secret string) (access.Identity, error) {
	found, err := a.sessions.find(ctx, access.HashSession(secret))
	if errors.Is(err, rules.ErrNotFound) {
		return access.Identity{}, unauthenticated(unknown, "the session has ended; sign in again")
	}
	if err != nil {
		return access.Identity{}, away(err)
	}
	who, err := found.session.Identity(&found.credential, time.Now())
	return who, ofCredential(&found.credential, err)
}

// byCertificate takes the first name that is known. That it is revoked is final: a certificate does not come in by its
// next name.
func (a *Authenticator) byCertificate(ctx context.Context, p proof) (access.Identity, error) {
	if time.Now().After(p.until) {
		return access.Identity{}, unauthenticated(expired, "the client certificate has expired; connect again with another one")
	}
	for _, name := range p.names {
		c, err := a.credentials.find(ctx, access.HashCertificate(name))
		if errors.Is(err, rules.ErrNotFound) {
			continue
		}
		if err != nil {
			return access.Identity{}, away(err)
		}
		who, err := c.Identity(time.Now())
		if err == nil && (who.Expires.IsZero() || p.until.Before(who.Expires)) {
			who.Expires = p.until
		}
		return who, ofCredential(&c, err)
	}
	return access.Identity{}, unauthenticated(unknown, fmt.Sprintf(
		"no name of the client certificate is known here: %q; an admin adds one with: controlplane token create --certificate NAME", p.names))
}

// ofCredential gives the error its reason.
func ofCredential(c *access.Credential, err error) error {
	switch {
	case err == nil:
		return nil
	case !c.Revoked.IsZero():
		return &failure{reason: revoked, err: err}
	}
	return &failure{reason: expired, err: err}
}

func away(err error) error {
	if errors.Is(err, context.Canceled) {
		return err // the caller has gone, and the database may be there
	}
	return &failure{
		reason: unavailable, cause: err,
		err: fmt.Errorf("%w: the database cannot be asked who this is; try again", rules.ErrUnavailable),
	}
}

// failed counts a failure, and logs at most one a second: anybody can cause them.
func (a *Authenticator) failed(ctx context.Context, err error, what, peer string) {
	var f *failure
	if !errors.As(err, &f) {
		return
	}
	a.failures.WithLabelValues(string(f.reason)).Inc()
	if now := time.Now().Unix(); a.logged.Swap(now) == now {
		return
	}
	logged := f.err
	if f.cause != nil {
		logged = f.cause
	}
	a.log.WarnContext(ctx, "caller not authenticated", "reason", string(f.reason), "method", what, "peer", peer, "err", logged)
}
