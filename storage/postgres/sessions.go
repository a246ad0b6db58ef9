package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// AddSession is part of access.Sessions. Who signs in with one credential takes turns, by a lock of its row: two at once
// would not see each other's sessions, and leave one too many.
func (s *Store) AddSession(ctx context.Context, session access.Session) error {
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		locked, err := tx.Exec(ctx, `SELECT FROM credentials WHERE id = $1 FOR NO KEY UPDATE`, session.Credential)
		if err == nil && locked.RowsAffected() == 0 {
			err = rules.ErrNotFound
		}
		if err != nil {
			return err
		}
		const insert = `INSERT INTO sessions (hash, credential, created, expires) VALUES ($1, $2, $3, $4)`
		if _, err := tx.Exec(ctx, insert, session.Hash, session.Credential, session.Created, session.Expires); err != nil {
			return err
		}
		const cut = `
			DELETE FROM sessions WHERE hash IN (
				SELECT hash FROM sessions WHERE credential = $1 ORDER BY created DESC, hash OFFSET $2)`
		_, err = tx.Exec(ctx, cut, session.Credential, access.MaxSessions)
		return err
	})
	if err != nil {
		return fail(ctx, "add a session of the credential "+session.Credential, err)
	}
	return nil
}

// Session is part of access.Sessions.
func (s *Store) Session(ctx context.Context, hash string) (session access.Session, c access.Credential, err error) {
	const find = `SELECT ` + credentialColumns + `, s.created, s.expires FROM sessions s JOIN credentials c ON c.id = s.credential WHERE s.hash = $1`
	rows, err := s.pool.Query(ctx, find, hash)
	if err != nil {
		return access.Session{}, access.Credential{}, fail(ctx, "look up a session", err)
	}
	session.Hash = hash
	c, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (access.Credential, error) {
		return credentialAnd(row, &session.Created, &session.Expires)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return access.Session{}, access.Credential{}, fmt.Errorf("look up a session: %w", rules.ErrNotFound)
	}
	if err != nil {
		return access.Session{}, access.Credential{}, fail(ctx, "look up a session", err)
	}
	session.Credential, session.Created, session.Expires = c.ID, session.Created.UTC(), session.Expires.UTC()
	return session, c, nil
}

// EndSession is part of access.Sessions.
func (s *Store) EndSession(ctx context.Context, hash string) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM sessions WHERE hash = $1`, hash); err != nil {
		return fail(ctx, "end a session", err)
	}
	return nil
}

// EndSessions is part of access.Sessions.
func (s *Store) EndSessions(ctx context.Context, credential string) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM sessions WHERE credential = $1`, credential); err != nil {
		return fail(ctx, "end the sessions of the credential "+credential, err)
	}
	return nil
}
