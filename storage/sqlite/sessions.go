package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// AddSession is part of access.Sessions.
func (s *Store) AddSession(ctx context.Context, session access.Session) error {
	err := s.addSession(ctx, session)
	if err != nil {
		return s.fail(ctx, "add a session of the credential "+session.Credential, err)
	}
	return nil
}

func (s *Store) addSession(ctx context.Context, session access.Session) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer rollback(tx)
	const insert = `
		INSERT INTO sessions (hash, credential, created, expires)
		SELECT ?1, id, ?3, ?4 FROM credentials WHERE id = ?2`
	done, err := tx.ExecContext(ctx, insert, session.Hash, session.Credential, session.Created.UnixMicro(), session.Expires.UnixMicro())
	if err != nil {
		return err
	}
	if wrote, err := done.RowsAffected(); err != nil {
		return err
	} else if wrote == 0 {
		return rules.ErrNotFound
	}
	const cut = `
		DELETE FROM sessions WHERE hash IN (
			SELECT hash FROM sessions WHERE credential = ?1 ORDER BY created DESC, hash LIMIT -1 OFFSET ?2)`
	if _, err := tx.ExecContext(ctx, cut, session.Credential, access.MaxSessions); err != nil {
		return err
	}
	return tx.Commit()
}

// Session is part of access.Sessions.
func (s *Store) Session(ctx context.Context, hash string) (session access.Session, c access.Credential, err error) {
	const find = `SELECT ` + credentialColumns + `, s.created, s.expires FROM sessions s JOIN credentials c ON c.id = s.credential WHERE s.hash = ?1`
	var created, expires int64
	list, err := collect(ctx, s.read, find, []any{hash}, func(row scanner) (access.Credential, error) {
		return credentialAnd(row, &created, &expires)
	})
	if err != nil {
		return access.Session{}, access.Credential{}, s.fail(ctx, "look up a session", err)
	}
	if len(list) == 0 {
		return access.Session{}, access.Credential{}, fmt.Errorf("look up a session: %w", rules.ErrNotFound)
	}
	c = list[0]
	return access.Session{
		Hash: hash, Credential: c.ID, Created: time.UnixMicro(created).UTC(), Expires: time.UnixMicro(expires).UTC(),
	}, c, nil
}

// EndSession is part of access.Sessions.
func (s *Store) EndSession(ctx context.Context, hash string) error {
	if _, err := s.write.ExecContext(ctx, `DELETE FROM sessions WHERE hash = ?1`, hash); err != nil {
		return s.fail(ctx, "end a session", err)
	}
	return nil
}

// EndSessions is part of access.Sessions.
func (s *Store) EndSessions(ctx context.Context, credential string) error {
	if _, err := s.write.ExecContext(ctx, `DELETE FROM sessions WHERE credential = ?1`, credential); err != nil {
		return s.fail(ctx, "end the sessions of the credential "+credential, err)
	}
	return nil
}
