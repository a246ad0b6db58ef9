package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/storage/storagetest"
)

// run executes statements as somebody would who has the file.
func run(t *testing.T, s *Store, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := s.write.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func TestHistoryAndAuditAreAppendOnly(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "headgate.db"))
	storagetest.Fill(t, s)
	for table, column := range map[string]string{"versions": "spec", "rule_states": "action", "domain_states": "settings", "audit": "message"} {
		for _, statement := range []string{
			"UPDATE " + table + " SET " + column + " = 'x'",
			"DELETE FROM " + table,
			"INSERT OR REPLACE INTO " + table + " SELECT * FROM " + table,
		} {
			if _, err := s.write.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), table+" is append-only") {
				t.Errorf("%s: %v, want that it is refused", statement, err)
			}
		}
	}
	if err := storagetest.Verify(t.Context(), s); err != nil {
		t.Fatalf("verify: %v", err)
	}
}

// Whoever has the file can drop the triggers. The seals tell.
func TestTamperingIsFound(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "headgate.db"))
	storagetest.Fill(t, s)
	run(t, s, `DROP TRIGGER audit_update`, `DROP TRIGGER audit_delete`, `CREATE TABLE untouched AS SELECT * FROM audit`)
	const copied = `INSERT INTO audit SELECT %, NULL, refused, domain, at, actor, verified, action, target, message, detail, before, after, seal, NULL FROM audit WHERE number = 3`
	for name, c := range map[string]struct {
		statements []string
		finds      string
	}{
		"edited":                 {[]string{`UPDATE audit SET message = 'it was bob' WHERE number = 2`}, "record 2"},
		"edited by a blank":      {[]string{`UPDATE audit SET detail = detail || ' ' WHERE number = 1`}, "record 1"},
		"another time":           {[]string{`UPDATE audit SET at = at + 1 WHERE number = 2`}, "record 2"},
		"edited and resealed":    {[]string{`UPDATE audit SET message = 'it was bob', seal = (SELECT seal FROM audit WHERE number = 3) WHERE number = 2`}, "record 2"},
		"removed":                {[]string{`DELETE FROM audit WHERE number = 2`}, "record 3 follows record 1"},
		"removed and renumbered": {[]string{`DELETE FROM audit WHERE number = 2`, `UPDATE audit SET number = number - 1 WHERE number = 3`}, "record 2"},
		"the tail cut off":       {[]string{`DELETE FROM audit WHERE number > 3`}, "the head says record 5"},
		"all of it cut off":      {[]string{`DELETE FROM audit`}, "the head says record 5"},
		"inserted at the end":    {[]string{strings.Replace(copied, "%", "6", 1)}, "record 6"},
		"reordered": {[]string{
			`UPDATE audit SET number = 99 WHERE number = 2`, `UPDATE audit SET number = 2 WHERE number = 3`, `UPDATE audit SET number = 3 WHERE number = 99`,
		}, "record 2"},
	} {
		run(t, s, c.statements...)
		if err := storagetest.Verify(t.Context(), s); err == nil || !strings.Contains(err.Error(), c.finds) {
			t.Errorf("%s: verify: %v, want that it finds %q", name, err, c.finds)
		}
		run(t, s, `DELETE FROM audit`, `INSERT INTO audit SELECT * FROM untouched`)
		if err := storagetest.Verify(t.Context(), s); err != nil {
			t.Fatalf("verify what is as it was: %v", err)
		}
	}
}

func TestUnreadableHidesNothingElse(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "headgate.db"))
	replace := func(table, column, id string) func(key, text string) {
		return func(key, text string) {
			run(t, s, `DROP TRIGGER `+table+`_update`)
			if _, err := s.write.ExecContext(t.Context(), `UPDATE `+table+` SET `+column+` = ?1 WHERE `+id+` = ?2`, text, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	storagetest.UnreadableHidesNothingElse(t, s, replace("versions", "spec", "uid"), replace("domain_states", "settings", "domain"))
}

func TestUnreadableTalliesHideNothingElse(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "headgate.db"))
	storagetest.UnreadableTalliesHideNothingElse(t, s, func() {
		run(t, s, `UPDATE open_windows SET totals = x'ff'`, `UPDATE tally_keys SET keys = x'ff'`, `UPDATE tally_rates SET rates = x'ff'`)
	})
}
