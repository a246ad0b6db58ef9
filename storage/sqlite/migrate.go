package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/headgate/headgate/storage"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date. There is no lock for it: the file has one program.
func migrate(ctx context.Context, db *sql.DB) error {
	p, err := migrator(db)
	if err != nil {
		return err
	}
	stored, known, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if stored < known {
		_, err = p.Up(ctx)
		return err
	}
	return storage.CheckSchema(stored, known)
}

func migrator(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}
