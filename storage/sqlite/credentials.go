package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/storage"
)

// AddCredential is part of rollout.Ledger.
func (s *Store) AddCredential(ctx context.Context, c access.Credential, record rollout.Record) error {
	return s.withRecord(ctx, "add credential "+c.ID, record, "", func(tx *sql.Tx, _ *rollout.Head) error {
		const insert = `
			INSERT INTO credentials (id, kind, hash, name, role, domains, created, expires, revoked)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`
		_, err := tx.ExecContext(ctx, insert, c.ID, string(c.Kind), c.Hash, storage.Text(c.Name), string(c.Role),
			storage.EncodeList(c.Domains), c.Created.UnixMicro(), orNull(c.Expires), orNull(c.Revoked))
		return err
	})
}

// orNull returns NULL for a time that is none.
func orNull(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	micro := t.UnixMicro()
	return &micro
}

// RevokeCredential is part of rollout.Ledger.
func (s *Store) RevokeCredential(ctx context.Context, id string, at time.Time, record rollout.Record) error {
	return s.withRecord(ctx, "revoke credential "+id, record, "", func(tx *sql.Tx, _ *rollout.Head) error {
		done, err := tx.ExecContext(ctx, `UPDATE credentials SET revoked = coalesce(revoked, ?2) WHERE id = ?1`, id, at.UnixMicro())
		if err != nil {
			return err
		}
		wrote, err := done.RowsAffected()
		if err == nil && wrote == 0 {
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
	list, err := collect(ctx, s.read, selectCredentials+` ORDER BY c.created, c.id`, nil, credential)
	if err != nil {
		return nil, s.fail(ctx, "list the credentials", err)
	}
	return list, nil
}

// Credential is part of rollout.Ledger.
func (s *Store) Credential(ctx context.Context, hash string) (access.Credential, error) {
	list, err := collect(ctx, s.read, selectCredentials+` WHERE c.hash = ?1`, []any{hash}, credential)
	if err != nil {
		return access.Credential{}, s.fail(ctx, "look up a credential", err)
	}
	if len(list) == 0 {
		return access.Credential{}, fmt.Errorf("look up a credential: %w", rules.ErrNotFound)
	}
	return list[0], nil
}

func credential(row scanner) (access.Credential, error) { return credentialAnd(row) }

// credentialAnd scans the columns of a credential, and what comes after them.
func credentialAnd(row scanner, rest ...any) (c access.Credential, err error) {
	var domains string
	var created int64
	var expires, revoked *int64
	columns := []any{&c.ID, &c.Kind, &c.Hash, &c.Name, &c.Role, &domains, &created, &expires, &revoked}
	if err := row.Scan(append(columns, rest...)...); err != nil {
		return c, err
	}
	c.Created = time.UnixMicro(created).UTC()
	if expires != nil {
		c.Expires = time.UnixMicro(*expires).UTC()
	}
	if revoked != nil {
		c.Revoked = time.UnixMicro(*revoked).UTC()
	}
	c.Domains, err = storage.DecodeList[string](domains)
	return c, err
}
