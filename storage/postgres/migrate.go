package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/storage"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the schema up to date as the role that the URL names, which owns the tables then. Where programRole is
// not "", that role gets what the program needs and no more: it can add to the history and the audit trail, and change
// or remove nothing of them, nor the schema. A program that runs as that role is not able to cover up what it did.
func Migrate(ctx context.Context, ownerURL, programRole string) error {
	pool, err := newPool(ctx, ownerURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrate(ctx, pool); err != nil {
		return fail(ctx, "bring the schema of the database up to date", err)
	}
	if programRole == "" {
		return nil
	}
	if err := grant(ctx, pool, programRole); err != nil {
		return fail(ctx, "grant the role "+programRole+" what the program needs", err)
	}
	return nil
}

// privileges is what the program needs, table by table. The %s is its role.
var privileges = []string{
	// First what somebody gave it before.
	`REVOKE ALL ON goose_db_version, versions, rule_states, domain_states, audit, head, domains, rules, credentials, sessions, nodes, taken, replaced,
		sources, missing, open_windows, tallies, domain_tallies, tally_keys, tally_rates, refusal_rings, refusals,
		silences, alert_rounds, detectors, alerts, alert_deliveries FROM %s`,
	`GRANT SELECT ON goose_db_version TO %s`,
	`GRANT SELECT, INSERT ON versions, rule_states, domain_states, audit TO %s`,
	`GRANT SELECT, UPDATE ON head TO %s`,
	`GRANT SELECT, INSERT, UPDATE (revision, settings_revision) ON domains TO %s`,
	`GRANT SELECT, INSERT, UPDATE (revision) ON rules TO %s`,
	`GRANT SELECT, INSERT, UPDATE (revoked) ON credentials TO %s`,
	`GRANT SELECT, INSERT, UPDATE, DELETE ON sessions, nodes, taken TO %s`,
	`GRANT SELECT, INSERT, DELETE ON replaced TO %s`,
	// What was counted is summed up, and removed when its time has come.
	`GRANT SELECT, INSERT, UPDATE, DELETE ON sources, missing, open_windows, tallies, domain_tallies, tally_keys, tally_rates, refusal_rings, refusals TO %s`,
	`GRANT SELECT, UPDATE ON alert_rounds TO %s`,
	`GRANT SELECT, INSERT, UPDATE, DELETE ON silences, detectors, alerts, alert_deliveries TO %s`,
}

func grant(ctx context.Context, pool *pgxpool.Pool, role string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		const mighty = `SELECT rolsuper OR pg_has_role(oid, current_user, 'MEMBER') FROM pg_roles WHERE rolname = $1`
		var unbound bool
		err := tx.QueryRow(ctx, mighty, role).Scan(&unbound)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: there is no such role: create it first", rules.ErrInvalid)
		}
		if err != nil {
			return err
		}
		if unbound {
			return fmt.Errorf("%w: it is a superuser, the owner of the tables or a member of it, which no privilege binds: use a role of its own for the program", rules.ErrInvalid)
		}
		for _, statement := range privileges {
			if _, err := tx.Exec(ctx, fmt.Sprintf(statement, pgx.Identifier{role}.Sanitize())); err != nil {
				return err
			}
		}
		return nil
	})
}

// migrate brings the schema up to date. Programs that start at the same time take turns, by a lock of the session.
func migrate(ctx context.Context, pool *pgxpool.Pool) (err error) {
	p, err := migrator(pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	stored, known, err := p.GetVersions(ctx)
	if err != nil {
		return forbidden(err)
	}
	if stored < known {
		if err := checkOwner(ctx, pool, stored, known); err != nil {
			return err
		}
		if _, err := p.Up(ctx); err != nil {
			return forbidden(err)
		}
		// A newer program may have had the lock before.
		if stored, known, err = p.GetVersions(ctx); err != nil {
			return err
		}
	}
	return storage.CheckSchema(stored, known)
}

// checkOwner refuses to migrate what another role owns: half of it could work.
func checkOwner(ctx context.Context, pool *pgxpool.Pool, stored, known int64) error {
	const owned = `
		SELECT pg_has_role(current_user, c.relowner, 'USAGE'), current_user, pg_get_userbyid(c.relowner)
		FROM pg_class c WHERE c.oid = to_regclass('goose_db_version')`
	var mine bool
	var role, owner string
	if err := pool.QueryRow(ctx, owned).Scan(&mine, &role, &owner); err != nil {
		return err
	}
	if !mine {
		return fmt.Errorf("the database has schema %d and this program needs schema %d, which the role %s may not make: "+
			"let the owner of the tables, %s, migrate first (controlplane migrate)", stored, known, role, owner)
	}
	return nil
}

// forbidden says what to do about a role that may not make the schema.
func forbidden(err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.Code == "42501" { // insufficient_privilege
		return fmt.Errorf("this role may not make or read the schema: let the owner of the database migrate first, and name this role (controlplane migrate --program-role): %w", err)
	}
	return err
}

// migrator must be closed, which leaves the pool open.
func migrator(pool *pgxpool.Pool) (*goose.Provider, error) {
	// Look once a second for five minutes whether the lock has come free.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(pool), files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}
