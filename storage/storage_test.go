package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

const encoded = `{"key":[],"limits":[{"algorithm":"token-bucket","rate":"60/min"}]}`

func TestBothDatabasesHaveTheSameMigrations(t *testing.T) {
	t.Parallel()
	names := func(dir string) (list []string) {
		t.Helper()
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			list = append(list, f.Name())
		}
		return list
	}
	postgres, sqlite := names("postgres/migrations"), names("sqlite/migrations")
	if len(postgres) == 0 || !slices.Equal(postgres, sqlite) {
		t.Fatalf("postgres has %q and sqlite %q: a schema number must mean the same in both", postgres, sqlite)
	}
}

// tables returns the columns of each table of a migration, in their order.
func tables(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, table := range regexp.MustCompile(`(?ms)^CREATE TABLE (\w+) \(\n(.*?)^\)`).FindAllStringSubmatch(string(text), -1) {
		for _, column := range regexp.MustCompile(`(?m)^    ([a-z_0-9]+) `).FindAllStringSubmatch(table[2], -1) {
			all[table[1]] = append(all[table[1]], column[1])
		}
	}
	return all
}

func TestBothDatabasesHaveTheSameTables(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("postgres/migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		postgres := tables(t, file)
		if len(postgres["audit"]) < 2 {
			t.Fatalf("%s: the columns of audit are %q", file, postgres["audit"])
		}
		if diff := cmp.Diff(postgres, tables(t, strings.Replace(file, "postgres", "sqlite", 1))); diff != "" {
			t.Errorf("%s: columns (-postgres +sqlite):\n%s", file, diff)
		}
	}
}

// A cell without its column, or in another's place, would lose or mix up what is counted.
func TestTalliesHaveAColumnForEachCell(t *testing.T) {
	t.Parallel()
	all := tables(t, "postgres/migrations/0001_ledger.sql")
	if diff := cmp.Diff(append([]string{"uid", "step", "start", "version"}, storage.TallyColumns()...), all["tallies"]); diff != "" {
		t.Errorf("columns of tallies (-cells +migration):\n%s", diff)
	}
	if diff := cmp.Diff(append([]string{"domain", "step", "start"}, storage.DomainColumns()...), all["domain_tallies"]); diff != "" {
		t.Errorf("columns of domain_tallies (-cells +migration):\n%s", diff)
	}
}

// breaking finds what an older program that still runs would trip over, in the Up part of a migration.
func breaking(migration string) string {
	up, _, _ := strings.Cut(migration, "-- +goose Down")
	up = regexp.MustCompile(`--[^\n]*`).ReplaceAllString(up, "")
	up = regexp.MustCompile(`'[^']*'`).ReplaceAllString(up, "''")
	return regexp.MustCompile(`(?im)^\s*TRUNCATE\b|\b(DROP|RENAME|ALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE|SET\s+NOT\s+NULL|DELETE\s+FROM)\b`).FindString(up)
}

// Old and new programs run side by side while they are replaced: what one of them knows must stay.
func TestLaterMigrationsOnlyAdd(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*/migrations/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("migrations %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if word := breaking(string(text)); word != "" && !strings.Contains(file, "/0001_") {
			t.Errorf("%s: %s is not additive: an older program still runs beside it", file, word)
		}
	}
}

func TestBreakingMigrationsAreFound(t *testing.T) {
	t.Parallel()
	for migration, want := range map[string]string{
		"ALTER TABLE nodes ADD COLUMN zone text NOT NULL DEFAULT '';\n-- +goose Down\nALTER TABLE nodes DROP COLUMN zone;": "",
		"CREATE TABLE dropped (renamed text, type text); -- DROP nothing":                                                  "",
		"INSERT INTO notes (text) VALUES ('DROP TABLE nodes')":                                                             "",
		"ALTER TABLE nodes ADD CHECK (level > 0)":                                                                          "",
		"CREATE TRIGGER t BEFORE UPDATE OR DELETE OR TRUNCATE ON nodes FOR EACH STATEMENT EXECUTE FUNCTION f()":            "",
		"DROP TABLE nodes":                                            "DROP",
		"alter table nodes drop column zone":                          "drop",
		"ALTER TABLE nodes RENAME COLUMN zone TO area":                "RENAME",
		"ALTER TABLE nodes RENAME TO sidecars":                        "RENAME",
		"ALTER TABLE nodes ALTER COLUMN level TYPE bigint":            "ALTER COLUMN level TYPE",
		"ALTER TABLE nodes ALTER level\n  SET DATA TYPE bigint":       "ALTER level\n  SET DATA TYPE",
		"ALTER TABLE nodes ALTER COLUMN zone SET NOT NULL":            "SET NOT NULL",
		"TRUNCATE nodes;":                                             "TRUNCATE",
		"CREATE TABLE t (a text);\nDELETE FROM nodes WHERE level < 1": "DELETE FROM",
	} {
		if got := breaking("-- +goose Up\n" + migration); strings.TrimSpace(got) != want {
			t.Errorf("%s: found %q, want %q", migration, got, want)
		}
	}
}

func TestCheckSchema(t *testing.T) {
	t.Parallel()
	for stored, refused := range map[int64]bool{0: false, 2: false, 3: false, 4: true} {
		if err := storage.CheckSchema(stored, 3); (err != nil) != refused {
			t.Errorf("schema %d for a program that knows 3: %v", stored, err)
		}
	}
}

func TestLatestNodesKeepsTheNewestOfEach(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000, 0).UTC()
	given := []rollout.Node{
		{ID: "b", Domain: "api", Seen: at, Acked: 1},
		{ID: "a", Domain: "web", Seen: at},
		{ID: "b", Domain: "api", Seen: at.Add(time.Second), Acked: 3},
		{ID: "c", Domain: "api", Stream: 2, Seen: at, Acked: 1},
		{ID: "c", Domain: "api", Stream: 1, Seen: at.Add(storage.Silence), Acked: 2},
		{ID: "d", Domain: "api", Stream: 2, Seen: at, Acked: 1},
		{ID: "d", Domain: "api", Stream: 1, Seen: at.Add(storage.Silence + 1), Acked: 2},
		{ID: "b", Domain: "api", Seen: at, Acked: 2},
		{ID: "a", Domain: "api", Seen: at, Acked: 4},
		{ID: "a", Domain: "api", Seen: at, Acked: 5, NackReason: "bad\x00byte"},
	}
	before := slices.Clone(given)
	want := []rollout.Node{
		{ID: "a", Domain: "api", Seen: at, Acked: 5, NackReason: "bad\uFFFDbyte"},
		{ID: "b", Domain: "api", Seen: at.Add(time.Second), Acked: 3},
		{ID: "c", Domain: "api", Stream: 2, Seen: at, Acked: 1},
		{ID: "d", Domain: "api", Stream: 1, Seen: at.Add(storage.Silence + 1), Acked: 2},
		{ID: "a", Domain: "web", Seen: at},
	}
	if diff := cmp.Diff(want, storage.LatestNodes(given)); diff != "" {
		t.Errorf("latest nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, given); diff != "" {
		t.Errorf("the caller's list was changed (-before +after):\n%s", diff)
	}
}

func TestRecordOfARenewalSpeaksOfTheNewLineage(t *testing.T) {
	t.Parallel()
	if got := storage.AboutLineage(rollout.Record{Message: "restored"}, "new"); got.Target != "new" || got.Message != "restored" {
		t.Errorf("the record is %+v, want the new lineage as its target", got)
	}
	if got := storage.AboutLineage(rollout.Record{Target: "the database"}, "new"); got.Target != "the database" {
		t.Errorf("the record is %+v, want its own target", got)
	}
}

// What the database holds and this program cannot read is not the fault of whoever asked.
func TestUnreadableVersionIsNotInvalidInput(t *testing.T) {
	t.Parallel()
	number, newer := int64(7), `{"key":[],"limits":[],"fromTheFuture":true}`
	for name, row := range map[string]storage.RuleRow{
		"unknown field": {Domain: "api", Name: "plan", Stable: &number, StableSpec: &newer},
		"no version":    {Domain: "api", Name: "plan", Candidate: &number},
	} {
		_, err := row.Rule()
		if err == nil || errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%s: %v, want an error that is not ErrInvalid", name, err)
			continue
		}
		if !strings.Contains(err.Error(), "v7") || !strings.Contains(err.Error(), "api/plan") {
			t.Errorf("%s: %v, want that it names v7 of api/plan", name, err)
		}
	}
}

func TestVersionIsTheSameInAnotherEncoding(t *testing.T) {
	t.Parallel()
	v := storage.VersionRow{UID: "u", Number: 1, Spec: encoded}
	for stored, want := range map[string]bool{
		encoded: true,
		`{"limits":[{"rate":"60/1min burst 60","algorithm":"token-bucket"}],"key":[]}`: true, // as another program wrote it
		strings.Replace(encoded, "60/min", "61/min", 1):                                false,
		"not JSON": false,
	} {
		if got := v.Same(stored); got != want {
			t.Errorf("same as %s: %v, want %v", stored, got, want)
		}
	}
}
