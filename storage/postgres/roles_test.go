package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/storage/storagetest"
	"github.com/headgate/headgate/test/harness"
)

// role is one that can log in, and nothing else.
type role struct{ name, password string }

// newRoles makes roles that are dropped when the test ends, after the databases that it asks for later. Their names want
// quotes, as a role's name may.
func newRoles(t *testing.T, n int) []role {
	t.Helper()
	admin := connect(t, harness.Postgres(t))
	list := make([]role, n)
	for i := range list {
		r := role{"headgate test-" + rules.NewUID(), rules.NewUID()}
		exec(t, admin, `CREATE ROLE `+r.quoted()+` LOGIN NOSUPERUSER PASSWORD '`+r.password+`'`)
		t.Cleanup(func() {
			if _, err := admin.Exec(context.WithoutCancel(t.Context()), `DROP ROLE `+r.quoted()); err != nil {
				t.Errorf("drop the role of the test: %v", err)
			}
		})
		list[i] = r
	}
	return list
}

func (r role) quoted() string { return pgx.Identifier{r.name}.Sanitize() }

// as names a database as the role sees it.
func as(t *testing.T, database string, r role) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(r.name, r.password)
	return u.String()
}

// owned gives a role an empty database.
func owned(t *testing.T, database string, owner role) {
	t.Helper()
	admin := connect(t, database)
	exec(t, admin, `ALTER DATABASE `+admin.Config().Database+` OWNER TO `+owner.quoted())
	exec(t, admin, `GRANT ALL ON SCHEMA public TO `+owner.quoted()) // before Postgres 15 not the owner's
}

// pair makes a migrated database with its owner and its program.
func pair(t *testing.T) (database string, owner, program role) {
	t.Helper()
	roles := newRoles(t, 2)
	owner, program = roles[0], roles[1]
	database = harness.Postgres(t)
	owned(t, database, owner)
	if err := Migrate(t.Context(), as(t, database, owner), program.name); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return database, owner, program
}

// Where the owner is the program, privileges are a second lock beside the triggers.
func TestOwnerHasNoPrivilegeToChangeWhatIsAppendOnly(t *testing.T) {
	t.Parallel()
	owner := newRoles(t, 1)[0]
	database := harness.Postgres(t)
	owned(t, database, owner)
	s := open(t, as(t, database, owner), Options{})
	storagetest.Fill(t, s) // references are checked with the privileges of the owner
	conn := connect(t, as(t, database, owner))
	for table, column := range appendOnly {
		exec(t, conn, `ALTER TABLE `+table+` DISABLE TRIGGER append_only`)
		wantRefused(t, conn, "UPDATE "+table+" SET "+column+" = 'x'", "permission denied")
		wantRefused(t, conn, "DELETE FROM "+table, "permission denied")
		wantRefused(t, conn, "TRUNCATE "+table+" CASCADE", "permission denied")
	}
}

func TestProgramMayAddAndNothingElse(t *testing.T) {
	t.Parallel()
	database, _, program := pair(t)
	s := open(t, as(t, database, program), Options{})
	storagetest.Fill(t, s)
	conn := connect(t, as(t, database, program))
	for table, column := range appendOnly {
		wantRefused(t, conn, "UPDATE "+table+" SET "+column+" = 'x'", "permission denied")
		wantRefused(t, conn, "DELETE FROM "+table, "permission denied")
		wantRefused(t, conn, "TRUNCATE "+table+" CASCADE", "permission denied")
		wantRefused(t, conn, "ALTER TABLE "+table+" DISABLE TRIGGER append_only", "must be owner")
		wantRefused(t, conn, "DROP TRIGGER append_only ON "+table, "must be owner")
	}
	for _, statement := range []string{
		"DELETE FROM head", "DELETE FROM domains", "DELETE FROM rules", "DELETE FROM credentials", "TRUNCATE nodes", "SET session_replication_role = replica",
		"UPDATE domains SET secret = '0123456789abcdef'", "UPDATE rules SET name = 'x'", "UPDATE credentials SET role = 'admin'",
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)",
	} {
		wantRefused(t, conn, statement, "permission denied")
	}
	wantRefused(t, conn, "DROP TABLE nodes", "must be owner")
	wantRefused(t, conn, "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'", "permission denied")
	if err := storagetest.Verify(t.Context(), s); err != nil {
		t.Fatalf("verify: %v", err)
	}
}

func TestMigrateTakesAwayWhatTheProgramHadTooMuch(t *testing.T) {
	t.Parallel()
	database, owner, program := pair(t)
	exec(t, connect(t, database), `GRANT ALL ON ALL TABLES IN SCHEMA public TO `+program.quoted())
	if err := Migrate(t.Context(), as(t, database, owner), program.name); err != nil {
		t.Fatalf("migrate again: %v", err)
	}
	wantRefused(t, connect(t, as(t, database, program)), "DELETE FROM audit", "permission denied")
	storagetest.Fill(t, open(t, as(t, database, program), Options{}))
}

func TestOpenWithAnOlderSchemaSaysThatTheOwnerHasToMigrate(t *testing.T) {
	t.Parallel()
	database, owner, program := pair(t)
	older := open(t, as(t, database, owner), Options{})
	p, err := migrator(older.pool)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if _, err := p.DownTo(t.Context(), 0); err != nil {
		t.Fatalf("down: %v", err)
	}
	wantSays := func(what string, words ...string) {
		t.Helper()
		_, err := Open(t.Context(), as(t, database, program), Options{})
		for _, word := range append(words, "owner", "controlplane migrate") {
			if err == nil || errors.Is(err, rules.ErrUnavailable) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want an error that says %q", what, err, word)
			}
		}
	}
	wantSays("an older schema", "schema 0", program.name, owner.name)
	admin := connect(t, database)
	exec(t, admin, `DROP TABLE goose_db_version`)
	exec(t, admin, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`) // as it is from Postgres 15 on
	wantSays("no schema at all")
	if err := Migrate(t.Context(), as(t, database, owner), program.name); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	storagetest.Fill(t, open(t, as(t, database, program), Options{}))
}

func TestMigrateRefusesRolesThatNoPrivilegeBinds(t *testing.T) {
	t.Parallel()
	database, owner, program := pair(t)
	others := newRoles(t, 2)
	member, mighty := others[0], others[1]
	admin := connect(t, database)
	exec(t, admin, `GRANT `+owner.quoted()+` TO `+member.quoted())
	exec(t, admin, `ALTER ROLE `+mighty.quoted()+` SUPERUSER`)
	for what, name := range map[string]string{"the owner": owner.name, "a member": member.name, "a superuser": mighty.name, "nobody": "no such role"} {
		if err := Migrate(t.Context(), as(t, database, owner), name); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%s as the program: %v, want that it is invalid", what, err)
		}
	}
	if err := Migrate(t.Context(), as(t, database, program), ""); err != nil {
		t.Errorf("nothing to migrate, as the program: %v", err)
	}
}

// A table that a later migration adds must be granted too, and nobody should find that out in production.
func TestProgramMayReadEveryTable(t *testing.T) {
	t.Parallel()
	database, _, program := pair(t)
	const closed = `
		SELECT coalesce(string_agg(relname, ', '), '') FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND NOT has_table_privilege($1, oid, 'SELECT')`
	var tables string
	if err := connect(t, database).QueryRow(t.Context(), closed, program.name).Scan(&tables); err != nil || tables != "" {
		t.Errorf("the program may not read %s, %v", tables, err)
	}
}
