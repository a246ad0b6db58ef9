package rollouttest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// AddSession is part of access.Sessions.
func (m *Memory) AddSession(ctx context.Context, s access.Session) error {
	return m.write(ctx, func() error {
		switch {
		case !slices.ContainsFunc(m.credentials, func(c access.Credential) bool { return c.ID == s.Credential }):
			return fmt.Errorf("credential %s: %w", s.Credential, rules.ErrNotFound)
		case slices.ContainsFunc(m.sessions, func(other access.Session) bool { return other.Hash == s.Hash }):
			return fmt.Errorf("%w: a session with the hash is there already", rules.ErrConflict)
		}
		s.Created, s.Expires = micro(s.Created), micro(s.Expires)
		m.sessions = append(m.sessions, s)
		slices.SortStableFunc(m.sessions, func(a, b access.Session) int { return b.Created.Compare(a.Created) })
		kept := 0
		m.sessions = slices.DeleteFunc(m.sessions, func(other access.Session) bool {
			if other.Credential == s.Credential {
				kept++
			}
			return other.Credential == s.Credential && kept > access.MaxSessions
		})
		return nil
	})
}

// Session is part of access.Sessions.
func (m *Memory) Session(ctx context.Context, hash string) (s access.Session, c access.Credential, err error) {
	c, err = read(ctx, m, func() (access.Credential, error) {
		i := slices.IndexFunc(m.sessions, func(s access.Session) bool { return s.Hash == hash })
		if i < 0 {
			return access.Credential{}, fmt.Errorf("session: %w", rules.ErrNotFound)
		}
		s = m.sessions[i]
		return m.credentials[slices.IndexFunc(m.credentials, func(c access.Credential) bool { return c.ID == s.Credential })], nil
	})
	return s, c, err
}

// EndSession is part of access.Sessions.
func (m *Memory) EndSession(ctx context.Context, hash string) error {
	return m.forget(ctx, func(s access.Session) bool { return s.Hash == hash })
}

// EndSessions is part of access.Sessions.
func (m *Memory) EndSessions(ctx context.Context, credential string) error {
	return m.forget(ctx, func(s access.Session) bool { return s.Credential == credential })
}

// ForgetSessions forgets those that have ended before, as Prune does in a database.
func (m *Memory) ForgetSessions(ctx context.Context, before time.Time) error {
	return m.forget(ctx, func(s access.Session) bool { return s.Expires.Before(before) })
}

func (m *Memory) forget(ctx context.Context, which func(access.Session) bool) error {
	return m.write(ctx, func() error {
		m.sessions = slices.DeleteFunc(m.sessions, which)
		return nil
	})
}
