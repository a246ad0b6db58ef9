package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/headgate/headgate/rules"
)

const (
	// SessionLife is how long a session lasts at most. One never outlives the credential that opened it.
	SessionLife = 12 * time.Hour
	// MaxSessions is how many sessions of one credential are kept. The next one ends the oldest.
	MaxSessions = 100
)

// Session stands for the credential that opened it, in a browser, which is handed a secret of its own.
type Session struct {
	Hash       string // hex SHA-256 of the secret: what is looked up
	Credential string // the id of the one that opened it
	Created    time.Time
	Expires    time.Time
}

// Sessions keeps the sessions.
type Sessions interface {
	// AddSession stores a session, and forgets what its credential has beyond [MaxSessions], the oldest first. Without that
	// credential it returns [rules.ErrNotFound].
	AddSession(ctx context.Context, s Session) error
	// Session returns the one with the hash, and the credential that opened it, or [rules.ErrNotFound]. Whether they still
	// count, [Session.Identity] says.
	Session(ctx context.Context, hash string) (Session, Credential, error)
	// EndSession forgets the one with the hash, if there is one.
	EndSession(ctx context.Context, hash string) error
	// EndSessions forgets those of a credential.
	EndSessions(ctx context.Context, credential string) error
}

// NewSession opens a session for whoever proved a credential. The secret, 256 random bits, is kept by the browser and
// nowhere else.
func NewSession(who Identity, now time.Time) (secret string, s Session) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails since Go 1.24
	secret = hex.EncodeToString(bits[:])
	return secret, Session{
		Hash: HashSession(secret), Credential: who.Credential, Created: now, Expires: earlier(who.Expires, now.Add(SessionLife)),
	}
}

// HashSession is the hash by which a session is looked up.
func HashSession(secret string) string { return hash("session", secret) }

// Identity returns who opened the session, until it ends, or a [rules.ErrUnauthenticated] that says why it no longer
// counts. The credential is the one that opened it.
func (s *Session) Identity(c *Credential, now time.Time) (Identity, error) {
	who, err := c.Identity(now)
	if err != nil {
		return Identity{}, err
	}
	if !now.Before(s.Expires) {
		return Identity{}, fmt.Errorf("%w: the session of %s ended on %s", rules.ErrUnauthenticated, c.Name, s.Expires.UTC().Format(time.DateTime))
	}
	who.Expires = earlier(who.Expires, s.Expires)
	return who, nil
}

// earlier returns the end that comes first; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
