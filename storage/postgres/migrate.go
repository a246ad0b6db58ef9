package postgres

import (
	"context"
	"embed"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/headgate/headgate/storage"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date. Programs that start at the same time take turns, by a lock of the session.
func migrate(ctx context.Context, pool *pgxpool.Pool) (err error) {
	p, err := migrator(pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	stored, known, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if stored < known {
		if _, err := p.Up(ctx); err != nil {
			return err
		}
		// A newer program may have had the lock before.
		if stored, known, err = p.GetVersions(ctx); err != nil {
			return err
		}
	}
	return storage.CheckSchema(stored, known)
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
