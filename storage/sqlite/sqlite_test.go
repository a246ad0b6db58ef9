package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/storage"
	"github.com/headgate/headgate/storage/storagetest"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T) storagetest.Database {
		// A name with everything that means something in a URI.
		path := filepath.Join(t.TempDir(), "a b?c#d%20e&f.db")
		return storagetest.Database{Open: func(t *testing.T) storage.Store { return open(t, path) }}
	})
}

func TestFileIsOnlyForItsOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "headgate.db")
	open(t, path)
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v, %v: want the database and its log", files, err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", file, info.Mode())
		}
	}
}

func TestConnectionsAreSetUp(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "headgate.db"))
	for _, db := range []*sql.DB{s.write, s.read} {
		for pragma, want := range map[string]string{
			"journal_mode": "wal", "foreign_keys": "1", "busy_timeout": "5000", "synchronous": "2",
		} {
			var got string
			if err := db.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %q, %v, want %q", pragma, got, err, want)
			}
		}
	}
	if _, err := s.read.ExecContext(t.Context(), `DELETE FROM head`); err == nil {
		t.Error("a connection for reading wrote")
	}
}

func TestMigrationsGoUpAndDown(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "headgate.db"))
	tables := func() (n int) {
		t.Helper()
		const count = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'goose_db_version'`
		if err := s.write.QueryRowContext(t.Context(), count).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := tables()
	storagetest.Fill(t, s)
	p, err := migrator(s.write)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), 0); err != nil {
		t.Fatalf("down: %v", err)
	}
	if n := tables(); n != 0 {
		t.Fatalf("%d tables are left", n)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatalf("up again: %v", err)
	}
	if n := tables(); n != all {
		t.Fatalf("%d tables, want %d", n, all)
	}
	storagetest.Fill(t, s)
}

func TestOpenRefusesNewerSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "headgate.db")
	s := open(t, path)
	if _, err := s.write.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "schema 9999") {
		t.Fatalf("open: %v, want that schema 9999 is refused", err)
	}
}

func TestOpenFailsWhereNoDatabaseCanBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Open(t.Context(), filepath.Join(dir, "missing", "headgate.db")); !errors.Is(err, rules.ErrUnavailable) {
		t.Errorf("in a folder that does not exist: %v, want unavailable", err)
	}
	if _, err := Open(t.Context(), dir); !errors.Is(err, rules.ErrUnavailable) {
		t.Errorf("a folder: %v, want unavailable", err)
	}
	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database ", 1_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), text); !errors.Is(err, rules.ErrUnavailable) {
		t.Errorf("a text file: %v, want unavailable", err)
	}
}
