// Package access says who may do what: roles, the domains they are for, and the credentials that prove who asks.
//
// The picture to hold: a credential is a token, of which only a hash is kept, or the name in a client certificate. It
// has one role and, where it is not for everything, a list of domains. Proving one yields an [Identity], which travels
// in the context of a call; whoever does something asks it with [Identity.May]. In a browser a [Session] stands for the
// credential that opened it. Without authentication everybody is [Local].
//
// Everything here is a pure value or function, safe to use from many goroutines.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// Role is what a credential is for.
type Role string

// The roles. Each but Sidecar may do all that the ones before it may.
const (
	Viewer   Role = "viewer"   // look
	Editor   Role = "editor"   // apply to shadow
	Operator Role = "operator" // what takes effect: promote, roll back, freeze, exempt, override, delete
	Admin    Role = "admin"    // credentials, and which history a fleet follows
	Sidecar  Role = "sidecar"  // receive the rules of its domains, secrets included, and nothing else
)

// Roles returns the roles, the least first.
func Roles() []Role { return []Role{Viewer, Editor, Operator, Admin, Sidecar} }

// ParseRole reads a role's name.
func ParseRole(text string) (Role, error) {
	if r := Role(text); slices.Contains(Roles(), r) {
		return r, nil
	}
	return "", fmt.Errorf("%w: %q is no role: use viewer, editor, operator, admin or sidecar", rules.ErrInvalid, text)
}

// covers reports whether the role may do what needs the other one.
func (r Role) covers(needed Role) bool {
	if r == Sidecar || needed == Sidecar {
		return r == needed
	}
	order := Roles()
	return slices.Index(order, r) >= slices.Index(order, needed)
}

// Identity is who asks.
type Identity struct {
	Name       string
	Role       Role
	Domains    []string  // nil: all
	Verified   bool      // false: the name is only what the client said
	Credential string    // the id of the credential; "" without one
	Expires    time.Time // zero: never
	Local      bool      // nobody is asked who they are, so everything is allowed, a sidecar's work too
}

// Local is everybody, where authentication is off: only loopback is served then, or --insecure was said.
func Local(name string) Identity { return Identity{Name: name, Role: Admin, Local: true} }

// May returns nil when the identity may do what needs the role in the domain ("": in all of them), and otherwise a
// [rules.ErrForbidden] that says what is missing.
func (i Identity) May(needed Role, domain string) error {
	switch {
	case i.Local:
		return nil
	case !i.Role.covers(needed):
		return fmt.Errorf("%w: %s has the role %s; this needs %s", rules.ErrForbidden, i.Name, i.Role, needed)
	case i.Domains == nil:
		return nil
	case domain == "":
		return fmt.Errorf("%w: %s is for the domains %s only; this is about all of them", rules.ErrForbidden, i.Name, strings.Join(i.Domains, ", "))
	case !slices.Contains(i.Domains, domain):
		return fmt.Errorf("%w: %s is for the domains %s only, not for %s", rules.ErrForbidden, i.Name, strings.Join(i.Domains, ", "), domain)
	}
	return nil
}

type contextKey struct{}

// With returns a context that carries the identity.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, i)
}

// From returns the identity that the context carries; without one it is nobody, who may do nothing.
func From(ctx context.Context) Identity {
	i, _ := ctx.Value(contextKey{}).(Identity)
	return i
}

// Credential is what is known of a token or a certificate.
type Credential struct {
	ID      string // shown; begins a token's text
	Kind    Kind
	Hash    string // hex SHA-256 of the token's text, or of the certificate's name: what is looked up
	Name    string // who it is for
	Role    Role
	Domains []string // nil: all
	Created time.Time
	Expires time.Time // zero: never
	Revoked time.Time // zero: it is not
}

// Kind is what proves a credential.
type Kind string

// The kinds.
const (
	Token       Kind = "token"
	Certificate Kind = "certificate"
)

// tokenPrefix lets people and scanners recognise a token that got somewhere it should not be.
const tokenPrefix = "hg_"

// NewToken returns a fresh token and what to keep of it, for the caller to fill in. The text holds 256 random bits, so
// that a plain hash of it tells nothing.
func NewToken() (text string, c Credential) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails since Go 1.24
	id := newID()
	text = tokenPrefix + id + "_" + hex.EncodeToString(secret[:])
	return text, Credential{ID: id, Kind: Token, Hash: HashToken(text)}
}

// NewCertificate returns what to keep of the certificates with a name: a URI of its subject alternative names, or its
// common name.
func NewCertificate(name string) Credential {
	return Credential{ID: newID(), Kind: Certificate, Hash: HashCertificate(name), Name: name}
}

func newID() string {
	var id [6]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// HashToken is the hash by which a token is looked up.
func HashToken(text string) string { return hash("token", text) }

// HashCertificate is the hash by which a certificate's name is looked up.
func HashCertificate(name string) string { return hash("certificate", name) }

func hash(kind, text string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

// Identity returns who proved the credential at the time, or a [rules.ErrUnauthenticated] that says why it no longer
// counts.
func (c *Credential) Identity(now time.Time) (Identity, error) {
	switch {
	case !c.Revoked.IsZero():
		return Identity{}, fmt.Errorf("%w: the %s %s of %s was revoked", rules.ErrUnauthenticated, c.Kind, c.ID, c.Name)
	case !c.Expires.IsZero() && !now.Before(c.Expires):
		return Identity{}, fmt.Errorf("%w: the %s %s of %s expired on %s", rules.ErrUnauthenticated, c.Kind, c.ID, c.Name, c.Expires.UTC().Format(time.DateTime))
	}
	return Identity{Name: c.Name, Role: c.Role, Domains: c.Domains, Verified: true, Credential: c.ID, Expires: c.Expires}, nil
}
