package storagetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

func commitStoresTheWholeChange(t *testing.T, f *fixture) {
	want := rules.Rule{
		Domain: "api", Name: "plan", UID: "u1", Revision: 1,
		Stable: &rules.Version{Number: 1, Spec: spec(60)}, Candidate: &rules.Version{Number: 2, Spec: spec(90)},
		Percent: 2_501,
		Salt:    1<<64 - 2, // all bits of a salt come back, the highest too
		Epoch:   1,
		Paused:  true,
		Overrides: []rules.Override{{
			Key: rules.OverrideKey{1, 2, 255}, Limit: "burst", Rate: rules.Rate{Amount: 90, Window: time.Minute, Burst: 120}, Until: at,
		}},
		Course: &rules.Course{
			Plan: mustPlan(t, "shadow 1h, +30% 15m", "maxWouldRefuse 2%"), By: "ann", Verified: true, Begun: 1, Step: 1, Since: at, Revision: 1,
			Tripped: "maxWouldRefuse „2%“",
		},
	}
	record := rollout.Record{
		Number: 1, Revision: 1, Domain: "api", Time: at, Actor: rollout.Actor{Name: "ann", Verified: true},
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

	record.Seal = record.SealAfter("")
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
		histories, err := tx.Histories(t.Context(), "u1")
		if err != nil {
			t.Fatalf("histories: %v", err)
		}
		wantSame(t, "histories", histories, map[string][]rollout.Entry{"u1": {{
			Action: rollout.ActionApply, Rule: want, Time: record.Time, Actor: record.Actor, Message: record.Message,
		}}})
	})
}

func commitStoresNothingOnErrorOrNil(t *testing.T, f *fixture) {
	look(t, f.store, "api", func(rollout.Tx) {})

	mine := errors.New("mine")
	revision, err := f.store.Commit(t.Context(), "api", func(tx rollout.Tx) (*rollout.Change, error) {
		return changeOf("api", rollout.ActionApply, newRule("api", "plan", tx.Revision())), mine
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
	before, head := mustChanges(t, f.store, 0), mustHead(t, f.store)
	plan := mustRules(t, f.store, "api")[0]
	renamed, moved := plan, plan
	renamed.Name, moved.Domain = "other", "web"
	fresh, twin := newRule("api", "fresh", 3), newRule("api", "plan", 3)

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
	wantSame(t, "head", mustHead(t, f.store), head)
	if n := len(mustAudit(t, f.store, "", 10)); n != 2 {
		t.Fatalf("%d audit records, want 2", n)
	}
	look(t, f.store, "api", func(tx rollout.Tx) {
		if all, err := tx.Histories(t.Context(), fresh.UID); len(all) != 0 || err != nil {
			t.Fatalf("history of a rule that was not stored = %v, %v, want none", all, err)
		}
	})
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
	wantSame(t, "rules", mustRules(t, f.store, "api")[0].Stable, plan.Stable)
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
