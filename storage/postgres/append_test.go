package postgres

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/storage/storagetest"
	"github.com/headgate/headgate/test/harness"
)

// appendOnly are the tables that refuse to be changed, each with one of its texts.
var appendOnly = map[string]string{"versions": "spec", "rule_states": "action", "domain_states": "settings", "audit": "message"}

// wantRefused wants the statement to be refused for lack of privilege, with the text.
func wantRefused(t *testing.T, conn *pgx.Conn, statement, text string) {
	t.Helper()
	var answer *pgconn.PgError
	_, err := conn.Exec(t.Context(), statement)
	if !errors.As(err, &answer) || answer.Code != "42501" || !strings.Contains(answer.Message, text) {
		t.Errorf("%s: %v, want that it is refused with %q", statement, err, text)
	}
}

// The triggers hold for everybody, also for a superuser who does not think of them.
func TestHistoryAndAuditAreAppendOnly(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	s, conn := open(t, database, Options{}), connect(t, database)
	storagetest.Fill(t, s)
	for table, column := range appendOnly {
		for _, statement := range []string{
			"UPDATE " + table + " SET " + column + " = 'x'",
			"UPDATE " + table + " SET " + column + " = 'x' WHERE false",
			"DELETE FROM " + table,
			"TRUNCATE " + table + " CASCADE",
		} {
			wantRefused(t, conn, statement, " is append-only")
		}
	}
	wantRefused(t, conn, "TRUNCATE rules CASCADE", " is append-only")
	wantRefused(t, conn, "INSERT INTO audit SELECT * FROM audit ON CONFLICT (number) DO UPDATE SET message = 'x'", " is append-only")
	if err := storagetest.Verify(t.Context(), s); err != nil {
		t.Fatalf("verify: %v", err)
	}
}

// A superuser can disable the triggers. The seals tell.
func TestTamperingIsFound(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	s, conn := open(t, database, Options{}), connect(t, database)
	storagetest.Fill(t, s)
	exec(t, conn, `SET session_replication_role = replica`)
	exec(t, conn, `CREATE TABLE untouched AS TABLE audit`)
	const copied = `INSERT INTO audit SELECT %, NULL, refused, domain, at, actor, verified, action, target, message, detail, before, after, seal, NULL FROM audit WHERE number = 3`
	for name, c := range map[string]struct {
		statements []string
		finds      string
	}{
		"edited":                 {[]string{`UPDATE audit SET message = 'it was bob' WHERE number = 2`}, "record 2"},
		"edited by a blank":      {[]string{`UPDATE audit SET detail = detail || ' ' WHERE number = 1`}, "record 1"},
		"another time":           {[]string{`UPDATE audit SET at = at + interval '1 microsecond' WHERE number = 2`}, "record 2"},
		"edited and resealed":    {[]string{`UPDATE audit SET message = 'it was bob', seal = (SELECT seal FROM audit WHERE number = 3) WHERE number = 2`}, "record 2"},
		"removed":                {[]string{`DELETE FROM audit WHERE number = 2`}, "record 3 follows record 1"},
		"removed and renumbered": {[]string{`DELETE FROM audit WHERE number = 2`, `UPDATE audit SET number = number - 1 WHERE number = 3`}, "record 2"},
		"the tail cut off":       {[]string{`DELETE FROM audit WHERE number > 3`}, "the head says record 5"},
		"all of it cut off":      {[]string{`TRUNCATE audit`}, "the head says record 5"},
		"inserted at the end":    {[]string{strings.Replace(copied, "%", "6", 1)}, "record 6"},
		"reordered": {[]string{
			`UPDATE audit SET number = 99 WHERE number = 2`, `UPDATE audit SET number = 2 WHERE number = 3`, `UPDATE audit SET number = 3 WHERE number = 99`,
		}, "record 2"},
	} {
		for _, statement := range c.statements {
			exec(t, conn, statement)
		}
		if err := storagetest.Verify(t.Context(), s); err == nil || !strings.Contains(err.Error(), c.finds) {
			t.Errorf("%s: verify: %v, want that it finds %q", name, err, c.finds)
		}
		exec(t, conn, `TRUNCATE audit`)
		exec(t, conn, `INSERT INTO audit TABLE untouched`)
		if err := storagetest.Verify(t.Context(), s); err != nil {
			t.Fatalf("verify what is as it was: %v", err)
		}
	}
}

func TestUnreadableHidesNothingElse(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	var log strings.Builder
	s, conn := open(t, database, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}), connect(t, database)
	exec(t, conn, `SET session_replication_role = replica`)
	replace := func(table, column, id string) func(key, text string) {
		return func(key, text string) {
			if _, err := conn.Exec(t.Context(), `UPDATE `+table+` SET `+column+` = $1 WHERE `+id+` = $2`, text, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	storagetest.UnreadableHidesNothingElse(t, s, replace("versions", "spec", "uid"), replace("domain_states", "settings", "domain"))
	for _, what := range []string{"v1 of api/bad", "settings of web"} {
		if !strings.Contains(log.String(), what) {
			t.Errorf("the log does not tell of %s:\n%s", what, &log)
		}
	}
}

func TestUnreadableTalliesHideNothingElse(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	var log strings.Builder
	s, conn := open(t, database, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}), connect(t, database)
	storagetest.UnreadableTalliesHideNothingElse(t, s, func() {
		exec(t, conn, `UPDATE open_windows SET totals = '\xff'`)
		exec(t, conn, `UPDATE tally_keys SET keys = '\xff'`)
		exec(t, conn, `UPDATE tally_rates SET rates = '\xff'`)
	})
	for _, what := range []string{"totals", "keys", "rates"} {
		if !strings.Contains(log.String(), what) {
			t.Errorf("the log does not tell of %s:\n%s", what, &log)
		}
	}
}
