package storagetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

func commitStoresTheWholeChange(t *testing.T, f *fixture) {
	want := rules.Rule{
		Domain: "api", Name: "plan", UID: "u1", Revision: 1,
		Stable: &rules.Version{Number: 1, Spec: spec(60)}, Candidate: &rules.Version{Number: 2, Spec: spec(90)},
		Percent: 2_501,
		Salt:    1<<64 - 2, // all bits of a salt come back, the highest too
		Epoch:   1,
	}
	record := rollout.Record{
		Revision: 1, Domain: "api", Time: at, Actor: rollout.Actor{Name: "ann", Verified: true},
		Action: rollout.ActionApply, Target: "api/plan", Message: "PAY-812 „größer“", Detail: "api/plan: new -> v2 at 25.01%",
		Before: json.RawMessage(`{}`), After: json.RawMessage(`{"plan": {"stable":  1}}`), // JSON keeps its bytes
	}
	var seen int64
	revision, err := f.store.Commit(t.Context(), "api", func(tx rollout.Tx) (*rollout.Change, error) {
		seen = tx.Revision()
		return &rollout.Change{Record: record, Rules: []rules.Rule{want}}, nil
	})
	if err != nil || revision != 1 || seen != 1 {
		t.Fatalf("commit = %d, %v with Tx.Revision %d, want 1, nil, 1", revision, err, seen)
	}

	wantSame(t, "rules", mustRules(t, f.store, "api"), []rules.Rule{want})
	wantSame(t, "rules of all domains", mustRules(t, f.store, ""), []rules.Rule{want})
	wantSame(t, "rules of another domain", len(mustRules(t, f.store, "other")), 0)
	wantSame(t, "audit", mustAudit(t, f.store, "api", 10), []rollout.Record{record})
	changes := mustChanges(t, f.store, 0)
	wantSame(t, "head", changes.Head, int64(1))
	wantSame(t, "changed rules", changes.Rules, []rules.Rule{want})
	look(t, f.store, "api", func(tx rollout.Tx) {
		wantSame(t, "next revision", tx.Revision(), int64(2))
		wantSame(t, "rule", mustRule(t, tx, "plan"), want)
		history, err := tx.History(t.Context(), "u1")
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		wantSame(t, "history", history, []rollout.Entry{{Action: rollout.ActionApply, Rule: want}})
		versions, err := tx.Versions(t.Context(), "u1")
		if err != nil || versions != 2 {
			t.Fatalf("versions = %d, %v, want 2", versions, err)
		}
	})
}

func commitStoresNothingOnErrorOrNil(t *testing.T, f *fixture) {
	look(t, f.store, "api", func(rollout.Tx) {})

	mine := errors.New("mine")
	revision, err := f.store.Commit(t.Context(), "api", func(tx rollout.Tx) (*rollout.Change, error) {
		return changeOf("api", rollout.ActionApply, rollout.Create("api", "plan", spec(1), tx.Revision())), mine
	})
	if revision != 0 || !errors.Is(err, mine) {
		t.Fatalf("commit = %d, %v, want 0 and decide's error", revision, err)
	}

	func() {
		defer func() { _ = recover() }()
		_, _ = f.store.Commit(t.Context(), "api", func(rollout.Tx) (*rollout.Change, error) { panic("decide") })
		t.Error("a panic of decide was swallowed")
	}()

	c := mustChanges(t, f.store, 0)
	if c.Head != 0 || len(c.Domains) != 0 || len(c.Rules) != 0 || len(mustAudit(t, f.store, "", 10)) != 0 {
		t.Fatalf("something was stored: %+v", c)
	}
	// No number is burnt, and the lock is free.
	if revision := create(t, f.store, "api", "plan"); revision != 1 {
		t.Fatalf("the first change got number %d, want 1", revision)
	}
}

func commitStoresNothingWhenWritingFails(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	create(t, f.store, "web", "login")
	before := mustChanges(t, f.store, 0)
	plan := mustRules(t, f.store, "api")[0]
	renamed, moved := plan, plan
	renamed.Name, moved.Domain = "other", "web"
	fresh := rollout.Create("api", "fresh", spec(5), 3)
	twin := rollout.Create("api", "plan", spec(5), 3)

	foreign := changeOf("web", rollout.ActionApply, fresh)
	for _, c := range []struct {
		name   string
		domain string
		change *rollout.Change
		want   error
	}{
		{"another rule of that name", "api", changeOf("api", rollout.ActionApply, fresh, twin), rules.ErrConflict},
		{"a rule under another name", "api", changeOf("api", rollout.ActionApply, fresh, renamed), rules.ErrConflict},
		{"a rule of another domain", "api", changeOf("api", rollout.ActionApply, fresh, moved), rules.ErrInvalid},
		{"a rule moved to this domain", "web", changeOf("web", rollout.ActionApply, moved), rules.ErrConflict},
		{"one rule twice", "api", changeOf("api", rollout.ActionApply, fresh, fresh), rules.ErrInvalid},
		{"a record of another domain", "api", foreign, rules.ErrInvalid},
		{"no domain", "", changeOf("", rollout.ActionApply), rules.ErrInvalid},
	} {
		revision, err := f.store.Commit(t.Context(), c.domain, func(rollout.Tx) (*rollout.Change, error) { return c.change, nil })
		if revision != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s: commit = %d, %v, want 0, %v", c.name, revision, err, c.want)
		}
	}

	wantSame(t, "changes since 0", mustChanges(t, f.store, 0), before)
	if n := len(mustAudit(t, f.store, "", 10)); n != 2 {
		t.Fatalf("%d audit records, want 2", n)
	}
	look(t, f.store, "api", func(tx rollout.Tx) {
		if n, err := tx.Versions(t.Context(), fresh.UID); n != 0 || err != nil {
			t.Fatalf("versions of a rule that was not stored = %d, %v, want 0", n, err)
		}
	})
}

func committersTakeTurns(t *testing.T, f *fixture) {
	const committers = 40
	create(t, f.store, "api", "plan")
	stores := []storage.Store{f.store, f.another(t)}

	revisions := make([]int64, committers)
	g, ctx := errgroup.WithContext(t.Context())
	for i := range committers {
		g.Go(func() (err error) {
			revisions[i], err = addPercent(ctx, stores[i%2], "api", "plan")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("commit: %v", err)
	}

	slices.Sort(revisions)
	for i, revision := range revisions {
		if revision != int64(i)+2 {
			t.Fatalf("revisions %v, want 2 to %d without gaps", revisions, committers+1)
		}
	}
	plan := mustRules(t, f.store, "api")[0]
	if plan.Percent != committers {
		t.Fatalf("%d committers added one each, the sum is %d: an update was lost", committers, plan.Percent)
	}
	look(t, f.store, "api", func(tx rollout.Tx) {
		history, err := tx.History(t.Context(), plan.UID)
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		for i, e := range history {
			// Each saw what its predecessor left: number order is the order of the changes.
			if e.Rule.Revision != int64(i)+1 || e.Rule.Percent != rules.Percent(i) {
				t.Fatalf("history[%d] is revision %d with %d, want %d with %d", i, e.Rule.Revision, e.Rule.Percent, i+1, i)
			}
		}
	})
	for i, r := range mustAudit(t, f.store, "", 100) {
		if want := int64(committers + 1 - i); r.Revision != want {
			t.Fatalf("audit record %d is of revision %d, want %d", i, r.Revision, want)
		}
	}
}

func commitThatWaitsHonoursItsContext(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	other := f.another(t)
	held, release := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo()
	var g errgroup.Group
	g.Go(func() error {
		_, err := f.store.Commit(t.Context(), "api", func(rollout.Tx) (*rollout.Change, error) {
			close(held)
			<-release
			return nil, nil
		})
		return err
	})
	<-held
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := addPercent(ctx, other, "api", "plan")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit behind a held lock: %v, want that its deadline passed", err)
	}
	// Readers wait for nobody.
	wantSame(t, "head", mustChanges(t, other, 0).Head, int64(1))
	letGo()
	if err := g.Wait(); err != nil {
		t.Fatalf("the holder: %v", err)
	}
	if revision, err := addPercent(t.Context(), other, "api", "plan"); err != nil || revision != 2 {
		t.Fatalf("commit = %d, %v, want 2", revision, err)
	}
}

func commitTakesThousandsOfRules(t *testing.T, f *fixture) {
	const n = 2_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("rule-%05d", i)
	}
	create(t, f.store, "api", names...)
	commit(t, f.store, "api", rollout.ActionPromote, func(tx rollout.Tx) []rules.Rule {
		list, err := tx.Rules(t.Context())
		if err != nil || len(list) != n {
			t.Fatalf("Tx.Rules: %d rules, %v, want %d", len(list), err, n)
		}
		for i := range list {
			list[i].Percent = 100
		}
		return list
	})
	c := mustChanges(t, f.store, 1)
	if len(c.Rules) != n || c.Rules[n-1].Name != names[n-1] || c.Rules[0].Percent != 100 {
		t.Fatalf("changes hold %d rules, want %d, by name, at 1%%", len(c.Rules), n)
	}
}

func versionsDoNotChange(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	plan := mustRules(t, f.store, "api")[0]
	other := plan
	other.Candidate = &rules.Version{Number: 1, Spec: spec(1_000)}
	_, err := f.store.Commit(t.Context(), "api", func(rollout.Tx) (*rollout.Change, error) {
		return changeOf("api", rollout.ActionApply, other), nil
	})
	if !errors.Is(err, rules.ErrConflict) {
		t.Fatalf("v1 with another spec: %v, want a conflict", err)
	}
	wantSame(t, "rules", mustRules(t, f.store, "api"), []rules.Rule{plan})

	// One version on both sides of a rule, and again in a later state, is one version.
	plan.Stable = plan.Candidate
	commit(t, f.store, "api", rollout.ActionApply, func(rollout.Tx) []rules.Rule { return []rules.Rule{plan} })
	look(t, f.store, "api", func(tx rollout.Tx) {
		if n, err := tx.Versions(t.Context(), plan.UID); n != 1 || err != nil {
			t.Fatalf("versions = %d, %v, want 1", n, err)
		}
	})
}

func versionsAreKeptExactly(t *testing.T, f *fixture) {
	key, err := rules.ParseKeySource("header:x-api-key")
	if err != nil {
		t.Fatal(err)
	}
	s := rules.Spec{
		// Quotes, a NUL, line ends, characters outside the basic plane: all of it is somebody's text.
		Description: "\"é\" 'x' \x00 \r\n\t \\ \u2028 🚦" + strings.Repeat("long ", 180),
		Owner:       "team-edge",
		Match:       rules.Match{Method: []string{"GET"}, Path: []string{"/v1/*", "/%C3%BC"}},
		Key:         []rules.KeySource{key},
		Limits:      []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 60, Window: time.Minute, Burst: 120}}},
		Failure:     rules.Failure{Mode: rules.FailClosed},
	}
	want := rules.Rule{Domain: "api", Name: "plan", UID: "u1", Revision: 1, Stable: &rules.Version{Number: 1, Spec: s}}
	commit(t, f.store, "api", rollout.ActionApply, func(rollout.Tx) []rules.Rule { return []rules.Rule{want} })
	wantSame(t, "rules", mustRules(t, f.store, "api"), []rules.Rule{want})
}
