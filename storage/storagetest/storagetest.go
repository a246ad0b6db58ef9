// Package storagetest is the suite that every database of package storage passes.
//
// Each subtest gets an empty database of its own, so that none depends on another and all may run at the same time. How
// databases may differ is declared in [Database] and nowhere else; nothing is skipped.
package storagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
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
	// KillLeader cuts the connection of whoever leads. It is nil where leading needs no connection.
	KillLeader func(t *testing.T)
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
		{"OnePublisherWinsPerBase", onePublisherWinsPerBase},
		{"CommitThatWaitsHonoursItsContext", commitThatWaitsHonoursItsContext},
		{"CommitTakesThousandsOfRules", commitTakesThousandsOfRules},
		{"VersionsDoNotChange", versionsDoNotChange},
		{"VersionsAreKeptExactly", versionsAreKeptExactly},
		{"NamesAreComparedByteByByte", namesAreComparedByteByByte},
		{"TxReadsWhatStands", txReadsWhatStands},
		{"HistoryIsOldestFirst", historyIsOldestFirst},
		{"DeletedRulesStayInTheHistory", deletedRulesStayInTheHistory},
		{"SettingsHaveAHistory", settingsHaveAHistory},
		{"NewDomainHasTheSecretItWasShownWith", newDomainHasTheSecretItWasShownWith},
		{"DomainsAreListed", domainsAreListed},
		{"AuditIsNewestFirst", auditIsNewestFirst},
		{"NotesAreRecorded", notesAreRecorded},
		{"NotesWithOneKeyAreStoredOnce", notesWithOneKeyAreStoredOnce},
		{"AuditKeepsTimesAndTexts", auditKeepsTimesAndTexts},
		{"SealsCoverWhatIsReadBack", sealsCoverWhatIsReadBack},
		{"LineageIsRenewed", lineageIsRenewed},
		{"LineageIsReplaced", lineageIsReplaced},
		{"CredentialsAreKept", credentialsAreKept},
		{"CredentialsAreAddedOnce", credentialsAreAddedOnce},
		{"CredentialsAreRevoked", credentialsAreRevoked},
		{"SessionsAreKeptWithTheirCredentials", sessionsAreKeptWithTheirCredentials},
		{"SessionsEnd", sessionsEnd},
		{"SessionsAreBounded", sessionsAreBounded},
		{"ChangesAreExact", changesAreExact},
		{"ChangesAreOneSnapshot", changesAreOneSnapshot},
		{"LineageAndSecretsAreKept", lineageAndSecretsAreKept},
		{"WatchHearsOfCommits", watchHearsOfCommits},
		{"WatchDropsWhatNobodyTakes", watchDropsWhatNobodyTakes},
		{"PollFindsWhatNoSignalTold", pollFindsWhatNoSignalTold},
		{"WatchSurvivesABrokenConnection", watchSurvivesABrokenConnection},
		{"WatchEnds", watchEnds},
		{"NodesAreKeptByNewestSight", nodesAreKeptByNewestSight},
		{"NodesAreKeptByNewestStream", nodesAreKeptByNewestStream},
		{"NodesAheadAreFound", nodesAheadAreFound},
		{"NodesAreSorted", nodesAreSorted},
		{"NodesSavedByManyAtOnce", nodesSavedByManyAtOnce},
		{"SilentNodesAreForgotten", silentNodesAreForgotten},
		{"TakenIsKeptByNewestRevision", takenIsKeptByNewestRevision},
		{"WindowsAreStoredOnce", windowsAreStoredOnce},
		{"GapsAreNoted", gapsAreNoted},
		{"KilledNodesAreMissing", killedNodesAreMissing},
		{"SilentNodesAreMissing", silentNodesAreMissing},
		{"LastSourcesAreKnown", lastSourcesAreKnown},
		{"StepsHoldWholeWindows", stepsHoldWholeWindows},
		{"DomainsAreCounted", domainsAreCounted},
		{"BirthsTellOfVersions", birthsTellOfVersions},
		{"OpenWindowsAreAdded", openWindowsAreAdded},
		{"SilentNodesTotalsAreLeftOut", silentNodesTotalsAreLeftOut},
		{"KeysAreMerged", keysAreMerged},
		{"KeysAreSeenFirstAndLast", keysAreSeenFirstAndLast},
		{"KeysAreBounded", keysAreBounded},
		{"RatesAreMerged", ratesAreMerged},
		{"RatesAddUpFromManyAtOnce", ratesAddUpFromManyAtOnce},
		{"RefusalsAreFound", refusalsAreFound},
		{"RefusalsAreBounded", refusalsAreBounded},
		{"PruneKeepsWhatIsKept", pruneKeepsWhatIsKept},
		{"PruneTakesManyRows", pruneTakesManyRows},
		{"TalliesAreExact", talliesAreExact},
		{"SumsNeverShrink", sumsNeverShrink},
		{"OneLeads", oneLeads},
		{"LeadersAreFollowed", leadersAreFollowed},
		{"CloseEndsLeading", closeEndsLeading},
		{"SilencesAreKept", silencesAreKept},
		{"RoundsFollowEachOther", roundsFollowEachOther},
		{"OneOfManyMakesARound", oneOfManyMakesARound},
		{"AlertsAreFound", alertsAreFound},
		{"DeliveriesAreNotedOnce", deliveriesAreNotedOnce},
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

func mustPlan(t *testing.T, steps string, gates ...string) rules.Plan {
	t.Helper()
	plan, err := rules.NewPlan(steps, gates, "")
	if err != nil {
		t.Fatal(err)
	}
	return plan
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
			list[i] = newRule(domain, name, tx.Revision())
		}
		return list
	})
}

// newRule is a rule with v1 as its candidate in shadow.
func newRule(domain, name string, revision int64) rules.Rule {
	return rules.Rule{
		Domain: domain, Name: name, UID: rules.NewUID(),
		Candidate: &rules.Version{Number: 1, Spec: spec(60)}, Salt: rules.NewSalt(), Epoch: revision,
	}
}

// promote sets the percentage of a rule of domain api; all keys make its candidate the stable.
func promote(t *testing.T, s storage.Store, name string, to rules.Percent) int64 {
	t.Helper()
	return edit(t, s, rollout.ActionPromote, name, func(r *rules.Rule) {
		r.Percent = to
		if to == rules.AllKeys {
			r.Stable, r.Candidate, r.Percent, r.Salt, r.Epoch = r.Candidate, nil, 0, 0, 0
		}
	})
}

// edit changes one rule of domain api.
func edit(t *testing.T, s storage.Store, action rollout.Action, name string, change func(*rules.Rule)) int64 {
	t.Helper()
	return commit(t, s, "api", action, func(tx rollout.Tx) []rules.Rule {
		r := mustRule(t, tx, name)
		change(&r)
		return []rules.Rule{r}
	})
}

// set changes the settings of a domain, and none of its rules.
func set(t *testing.T, s storage.Store, domain string, settings rules.Settings) int64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), domain, func(rollout.Tx) (*rollout.Change, error) {
		change := changeOf(domain, rollout.ActionFreeze)
		change.Settings = &settings
		return change, nil
	})
	if err != nil {
		t.Fatalf("commit settings of %s: %v", domain, err)
	}
	return revision
}

// note is a record without a revision.
func note(action rollout.Action, target string) rollout.Record {
	return rollout.Record{
		Time: at, Actor: rollout.Actor{Name: "ann", Verified: true}, Action: action, Target: target,
		Before: json.RawMessage(`{}`), After: json.RawMessage(`{}`),
	}
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
	list, err := s.Audit(t.Context(), rollout.AuditQuery{Domain: domain, Limit: limit})
	if err != nil {
		t.Fatalf("audit of %q: %v", domain, err)
	}
	return list
}

func mustHead(t *testing.T, s storage.Store) rollout.Head {
	t.Helper()
	head, err := s.Head(t.Context())
	if err != nil {
		t.Fatalf("head: %v", err)
	}
	return head
}

func mustDomains(t *testing.T, s storage.Store, domain string) []rules.Domain {
	t.Helper()
	list, err := s.Domains(t.Context(), domain)
	if err != nil {
		t.Fatalf("domains %q: %v", domain, err)
	}
	return list
}

// mustHistory reads the history of a rule of domain api.
func mustHistory(t *testing.T, s storage.Store, name string) []rollout.Entry {
	t.Helper()
	list, err := s.History(t.Context(), "api", name)
	if err != nil {
		t.Fatalf("history of api/%s: %v", name, err)
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
// The first time it makes revisions 1 to 3.
func Fill(t *testing.T, s storage.Store) {
	t.Helper()
	create(t, s, "api", "plan")
	promote(t, s, "plan", rules.AllKeys)
	set(t, s, "api", rules.Settings{Freezes: []rules.Freeze{{Until: at}}})
	saveNodes(t, s, node("n1", "api", 0))
	if err := s.SaveTaken(t.Context(), []rollout.Taken{{Domain: "api", Rule: "plan", Level: 1, Revision: 2}}); err != nil {
		t.Fatalf("save what was taken: %v", err)
	}
	if err := s.ReplaceLineage(t.Context(), "another", note(rollout.ActionReplaceLineage, "another")); err != nil {
		t.Fatalf("replace a lineage: %v", err)
	}
	addCredential(t, s, credential("c1", nil))
	addSession(t, s, session("c1", "s1", at))
	fillTallies(t, s)
}

// fillTallies stores a window with all that one has, after a gap, and one that is open.
func fillTallies(t *testing.T, s storage.Store) {
	t.Helper()
	rule := mustHistory(t, s, "plan")[0].Rule.UID
	w := window(3, affected(counted(rule, 1), 1, 1))
	w.Domains = []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{1}}}
	w.Refusals = []tally.Refusal{refusal(rule, 0, key(1))}
	saveWindows(t, s, of(source("n1", "e1"), w))
	saveOpen(t, s, of(source("n1", "e1"), window(4, counted(rule, 1))))
}

// Verify checks the seals of the whole audit trail, and that it ends where the head says.
func Verify(ctx context.Context, s rollout.Ledger) error {
	const page = 100
	var newestFirst []rollout.Record
	for query := (rollout.AuditQuery{Limit: page}); ; query.Before = newestFirst[len(newestFirst)-1].Number {
		list, err := s.Audit(ctx, query)
		if err != nil {
			return err
		}
		newestFirst = append(newestFirst, list...)
		if len(list) < page {
			break
		}
	}
	var chain rollout.Chain
	for _, r := range slices.Backward(newestFirst) {
		if err := chain.Add(&r); err != nil {
			return err
		}
	}
	head, err := s.Head(ctx)
	if err != nil {
		return err
	}
	if chain.Records != head.Records || chain.Seal != head.Seal {
		return fmt.Errorf("the trail ends with record %d, sealed %q, and the head says record %d, sealed %q", chain.Records, chain.Seal, head.Records, head.Seal)
	}
	return nil
}

func verify(t *testing.T, s storage.Store) {
	t.Helper()
	if err := Verify(t.Context(), s); err != nil {
		t.Fatalf("verify the audit trail: %v", err)
	}
}
