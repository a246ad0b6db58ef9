package storage_test

import (
	"errors"
	"os"
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
		{ID: "b", Domain: "api", Seen: at, Acked: 2},
		{ID: "a", Domain: "api", Seen: at, Acked: 4},
		{ID: "a", Domain: "api", Seen: at, Acked: 5, NackReason: "bad\x00byte"},
	}
	before := slices.Clone(given)
	want := []rollout.Node{
		{ID: "a", Domain: "api", Seen: at, Acked: 5, NackReason: "bad\uFFFDbyte"},
		{ID: "b", Domain: "api", Seen: at.Add(time.Second), Acked: 3},
		{ID: "a", Domain: "web", Seen: at},
	}
	if diff := cmp.Diff(want, storage.LatestNodes(given)); diff != "" {
		t.Errorf("latest nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, given); diff != "" {
		t.Errorf("the caller's list was changed (-before +after):\n%s", diff)
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
