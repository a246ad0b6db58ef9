// Package storagetest is the suite that every database of package storage passes.
//
// Each subtest gets an empty database of its own, so that none depends on another and all may run at the same time. How
// databases may differ is declared in [Database] and nowhere else; nothing is skipped.
package storagetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// Database is one database.
type Database struct {
	// Open opens a store on it, which the suite closes.
	Open func(t *testing.T) storage.Store
	// Shared says that several stores may have it open at the same time, as programs on one server do, and that each
	// hears of the changes of the others.
	Shared bool
	// BreakWatches cuts the connections over which stores hear of changes, and on which they signal once when they are
	// made. It is nil where signals need no connection.
	BreakWatches func(t *testing.T)
}

// Run runs the suite on databases that create makes, each fresh and empty.
func Run(t *testing.T, create func(t *testing.T) Database) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *fixture)
	}{
		{"CommitStoresTheWholeChange", commitStoresTheWholeChange},
		{"CommitStoresNothingOnErrorOrNil", commitStoresNothingOnErrorOrNil},
		{"CommitStoresNothingWhenWritingFails", commitStoresNothingWhenWritingFails},
		{"CommittersTakeTurns", committersTakeTurns},
		{"CommitThatWaitsHonoursItsContext", commitThatWaitsHonoursItsContext},
		{"CommitTakesThousandsOfRules", commitTakesThousandsOfRules},
		{"VersionsDoNotChange", versionsDoNotChange},
		{"VersionsAreKeptExactly", versionsAreKeptExactly},
		{"NamesAreComparedByteByByte", namesAreComparedByteByByte},
		{"TxReadsWhatStands", txReadsWhatStands},
		{"HistoryIsOldestFirst", historyIsOldestFirst},
		{"AuditIsNewestFirst", auditIsNewestFirst},
		{"RefusalsAreRecorded", refusalsAreRecorded},
		{"AuditKeepsTimesAndTexts", auditKeepsTimesAndTexts},
		{"ChangesAreExact", changesAreExact},
		{"ChangesAreOneSnapshot", changesAreOneSnapshot},
		{"LineageAndSecretsAreKept", lineageAndSecretsAreKept},
		{"WatchHearsOfCommits", watchHearsOfCommits},
		{"WatchDropsWhatNobodyTakes", watchDropsWhatNobodyTakes},
		{"WatchSurvivesABrokenConnection", watchSurvivesABrokenConnection},
		{"WatchEnds", watchEnds},
		{"NodesAreKeptByNewestSight", nodesAreKeptByNewestSight},
		{"NodesAreSorted", nodesAreSorted},
		{"NodesSavedByManyAtOnce", nodesSavedByManyAtOnce},
		{"EverythingIsThereAfterReopening", everythingIsThereAfterReopening},
		{"ClosedStoreIsUnavailable", closedStoreIsUnavailable},
		{"CanceledCallsFail", canceledCallsFail},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &fixture{Database: create(t)}
			f.store = f.open(t)
			c.test(t, f)
		})
	}
}

// fixture is what a subtest starts with.
type fixture struct {
	Database
	store storage.Store
}

// open opens a store that is closed when the test ends.
func (f *fixture) open(t *testing.T) storage.Store {
	t.Helper()
	s := f.Open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

// another returns a second store on the same database, or the same store where only one may be open.
func (f *fixture) another(t *testing.T) storage.Store {
	t.Helper()
	if f.Shared {
		return f.open(t)
	}
	return f.store
}

// patience is how long an event may take that must come.
const patience = 20 * time.Second

// at is when the changes of the tests are made.
var at = time.Date(2026, 3, 29, 2, 30, 0, 123_456_000, time.UTC)

// spec returns a valid spec that differs by amount.
func spec(amount int64) rules.Spec {
	return rules.Spec{Limits: []rules.Limit{{
		Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: amount, Window: time.Minute, Burst: amount},
	}}}
}

// changeOf wraps the new states of rules.
func changeOf(domain string, action rollout.Action, list ...rules.Rule) *rollout.Change {
	return &rollout.Change{
		Record: rollout.Record{
			Domain: domain, Time: at, Actor: rollout.Actor{Name: "ann"}, Action: action, Target: domain,
			Before: json.RawMessage(`{}`), After: json.RawMessage(`{}`),
		},
		Rules: list,
	}
}

// commit makes a change that must succeed, and returns its number.
func commit(t *testing.T, s storage.Store, domain string, action rollout.Action, decide func(rollout.Tx) []rules.Rule) int64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), domain, func(tx rollout.Tx) (*rollout.Change, error) {
		return changeOf(domain, action, decide(tx)...), nil
	})
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return revision
}

// create makes rules in one change, each with a candidate in shadow.
func create(t *testing.T, s storage.Store, domain string, names ...string) int64 {
	t.Helper()
	return commit(t, s, domain, rollout.ActionApply, func(tx rollout.Tx) []rules.Rule {
		list := make([]rules.Rule, len(names))
		for i, name := range names {
			list[i] = rollout.Create(domain, name, spec(60), tx.Revision())
		}
		return list
	})
}

// promote sets the percentage of a rule of domain api.
func promote(t *testing.T, s storage.Store, name string, to rules.Percent) int64 {
	t.Helper()
	return commit(t, s, "api", rollout.ActionPromote, func(tx rollout.Tx) []rules.Rule {
		r := mustRule(t, tx, name)
		r, _, err := rollout.Promote(r, to, tx.Revision())
		if err != nil {
			t.Fatalf("promote %s: %v", r.ID(), err)
		}
		return []rules.Rule{r}
	})
}

// addPercent promotes by reading and adding: a lost update shows in the sum.
func addPercent(ctx context.Context, s storage.Store, domain, name string) (int64, error) {
	return s.Commit(ctx, domain, func(tx rollout.Tx) (*rollout.Change, error) {
		r, err := tx.Rule(ctx, name)
		if err != nil {
			return nil, err
		}
		r.Percent++
		return changeOf(domain, rollout.ActionPromote, r), nil
	})
}

func mustRule(t *testing.T, tx rollout.Tx, name string) rules.Rule {
	t.Helper()
	r, err := tx.Rule(t.Context(), name)
	if err != nil {
		t.Fatalf("read rule %s: %v", name, err)
	}
	return r
}

// look runs read in a transaction that changes nothing.
func look(t *testing.T, s storage.Store, domain string, read func(rollout.Tx)) {
	t.Helper()
	revision, err := s.Commit(t.Context(), domain, func(tx rollout.Tx) (*rollout.Change, error) {
		read(tx)
		return nil, nil
	})
	if err != nil || revision != 0 {
		t.Fatalf("commit without a change = %d, %v, want 0, nil", revision, err)
	}
}

func mustRules(t *testing.T, s storage.Store, domain string) []rules.Rule {
	t.Helper()
	list, err := s.Rules(t.Context(), domain)
	if err != nil {
		t.Fatalf("rules of %q: %v", domain, err)
	}
	return list
}

func mustAudit(t *testing.T, s storage.Store, domain string, limit int) []rollout.Record {
	t.Helper()
	list, err := s.Audit(t.Context(), domain, limit)
	if err != nil {
		t.Fatalf("audit of %q: %v", domain, err)
	}
	return list
}

func mustChanges(t *testing.T, s storage.Store, since int64) rollout.Changes {
	t.Helper()
	c, err := s.Changes(t.Context(), since)
	if err != nil {
		t.Fatalf("changes since %d: %v", since, err)
	}
	return c
}

// wantSame compares what is plain data. Specs are compared as they are encoded: that is their identity.
func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	encoded := cmp.Transformer("encode", func(s rules.Spec) string {
		b, err := s.Encode()
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		return string(b)
	})
	if diff := cmp.Diff(want, got, encoded); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func ids(list []rules.Rule) []string {
	all := make([]string, len(list))
	for i := range list {
		all[i] = list[i].ID()
	}
	return all
}

// Fill makes a change of every kind the suite knows, so that every table has rows. It is for tests of a driver's own.
func Fill(t *testing.T, s storage.Store) {
	t.Helper()
	create(t, s, "api", "plan")
	promote(t, s, "plan", rules.AllKeys)
	saveNodes(t, s, node("n1", "api", 0))
}
