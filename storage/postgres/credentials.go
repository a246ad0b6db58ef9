package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/storage"
)

// AddCredential is part of rollout.Ledger.
func (s *Store) AddCredential(ctx context.Context, c access.Credential, record rollout.Record) error {
	return s.withRecord(ctx, "add credential "+c.ID, record, "", func(tx pgx.Tx, _ *rollout.Head) error {
		const insert = `
			INSERT INTO credentials (id, kind, hash, name, role, domains, created, expires, revoked)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
		_, err := tx.Exec(ctx, insert, c.ID, string(c.Kind), c.Hash, storage.Text(c.Name), string(c.Role),
			storage.EncodeList(c.Domains), c.Created, orNull(c.Expires), orNull(c.Revoked))
		return err
	})
}

// orNull returns NULL for a time that is none.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// RevokeCredential is part of rollout.Ledger.
func (s *Store) RevokeCredential(ctx context.Context, id string, at time.Time, record rollout.Record) error {
	return s.withRecord(ctx, "revoke credential "+id, record, "", func(tx pgx.Tx, _ *rollout.Head) error {
		done, err := tx.Exec(ctx, `UPDATE credentials SET revoked = coalesce(revoked, $2) WHERE id = $1`, id, at)
		if err == nil && done.RowsAffected() == 0 {
			err = rules.ErrNotFound
		}
		return err
	})
}

const (
	credentialColumns = `c.id, c.kind, c.hash, c.name, c.role, c.domains, c.created, c.expires, c.revoked` //nolint:gosec // names of columns, and no secret
	selectCredentials = `SELECT ` + credentialColumns + ` FROM credentials c`
)

// Credentials is part of rollout.Ledger.
func (s *Store) Credentials(ctx context.Context) ([]access.Credential, error) {
	rows, err := s.pool.Query(ctx, selectCredentials+` ORDER BY c.created, c.id`)
	if err != nil {
		return nil, fail(ctx, "list the credentials", err)
	}
	list, err := pgx.CollectRows(rows, credential)
	if err != nil {
		return nil, fail(ctx, "list the credentials", err)
	}
	return list, nil
}

// Credential is part of rollout.Ledger.
func (s *Store) Credential(ctx context.Context, hash string) (access.Credential, error) {
	rows, err := s.pool.Query(ctx, selectCredentials+` WHERE c.hash = $1`, hash)
	if err != nil {
		return access.Credential{}, fail(ctx, "look up a credential", err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, credential)
	if errors.Is(err, pgx.ErrNoRows) {
		return access.Credential{}, fmt.Errorf("look up a credential: %w", rules.ErrNotFound)
	}
	if err != nil {
		return access.Credential{}, fail(ctx, "look up a credential", err)
	}
	return c, nil
}

func credential(row pgx.CollectableRow) (access.Credential, error) { return credentialAnd(row) }

// credentialAnd scans the columns of a credential, and what comes after them.
func credentialAnd(row pgx.CollectableRow, rest ...any) (c access.Credential, err error) {
	var domains string
	var expires, revoked *time.Time
	columns := []any{&c.ID, &c.Kind, &c.Hash, &c.Name, &c.Role, &domains, &c.Created, &expires, &revoked}
	if err := row.Scan(append(columns, rest...)...); err != nil {
		return c, err
	}
	c.Created = c.Created.UTC()
	if expires != nil {
		c.Expires = expires.UTC()
	}
	if revoked != nil {
		c.Revoked = revoked.UTC()
	}
	c.Domains, err = storage.DecodeList[string](domains)
	return c, err
}
