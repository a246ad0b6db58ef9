package storagetest

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// Names that rules may not have stand here for the databases' habits: to ignore case, accents or punctuation, and to
// sort by the rules of a language.
func namesAreComparedByteByByte(t *testing.T, f *fixture) {
	sorted := []string{"B", "Z", "a", "a-b", "a0", "ab", "b", "z", "~", "É", "é"}
	create(t, f.store, "a", "é", "b", "a0", "Z", "~", "B", "ab", "z", "a-b", "É", "a")
	create(t, f.store, "a0", "x")
	create(t, f.store, "A", "x")
	create(t, f.store, "a-", "x")

	list := mustRules(t, f.store, "a")
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	wantSame(t, "names", names, sorted)
	c := mustChanges(t, f.store, 1)
	wantSame(t, "rules of all domains", ids(c.Rules), []string{"A/x", "a-/x", "a0/x"})
	domains := make([]string, len(c.Domains))
	for i := range c.Domains {
		domains[i] = c.Domains[i].Name
	}
	wantSame(t, "domains", domains, []string{"A", "a-", "a0"})
	look(t, f.store, "a", func(tx rollout.Tx) {
		for _, name := range sorted {
			wantSame(t, "name", mustRule(t, tx, name).Name, name)
		}
		for _, name := range []string{"A", "ab ", "e", "AB"} {
			if _, err := tx.Rule(t.Context(), name); !errors.Is(err, rules.ErrNotFound) {
				t.Errorf("rule %q: %v, want not found", name, err)
			}
		}
	})
}

func txReadsWhatStands(t *testing.T, f *fixture) {
	create(t, f.store, "api", "b", "a")
	create(t, f.store, "web", "c")
	promote(t, f.store, "a", 5)
	look(t, f.store, "api", func(tx rollout.Tx) {
		list, err := tx.Rules(t.Context())
		if err != nil {
			t.Fatalf("rules: %v", err)
		}
		wantSame(t, "rules of the domain", ids(list), []string{"api/a", "api/b"})
		wantSame(t, "percent", list[0].Percent, rules.Percent(5))
		if _, err := tx.Rule(t.Context(), "c"); !errors.Is(err, rules.ErrNotFound) {
			t.Errorf("a rule of another domain: %v, want not found", err)
		}
		history, err := tx.History(t.Context(), "nobody")
		if len(history) != 0 || err != nil {
			t.Errorf("history of nothing = %v, %v", history, err)
		}
		versions, err := tx.Versions(t.Context(), "nobody")
		if versions != 0 || err != nil {
			t.Errorf("versions of nothing = %d, %v", versions, err)
		}
	})
	look(t, f.store, "new", func(tx rollout.Tx) {
		if list, err := tx.Rules(t.Context()); len(list) != 0 || err != nil {
			t.Errorf("rules of a domain that does not exist = %v, %v", list, err)
		}
	})
}

func historyIsOldestFirst(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	create(t, f.store, "api", "other")
	promote(t, f.store, "plan", rules.AllKeys)
	change := func(action rollout.Action, next func(rules.Rule, int64) rules.Rule) {
		commit(t, f.store, "api", action, func(tx rollout.Tx) []rules.Rule {
			return []rules.Rule{next(mustRule(t, tx, "plan"), tx.Revision())}
		})
	}
	change(rollout.ActionApply, func(r rules.Rule, revision int64) rules.Rule {
		r, _, err := rollout.Apply(r, spec(90), 2, revision)
		if err != nil {
			t.Fatalf("apply: %v", err)
		}
		return r
	})
	uid := mustRules(t, f.store, "api")[1].UID
	look(t, f.store, "api", func(tx rollout.Tx) {
		if n, err := tx.Versions(t.Context(), uid); n != 2 || err != nil {
			t.Fatalf("versions = %d, %v, want 2", n, err)
		}
	})
	promote(t, f.store, "plan", 2_500)
	change(rollout.ActionRollback, func(r rules.Rule, revision int64) rules.Rule {
		r, _, _ = rollout.Rollback(r, nil, revision)
		return r
	})

	look(t, f.store, "api", func(tx rollout.Tx) {
		history, err := tx.History(t.Context(), uid)
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		type step struct {
			Revision int64
			Action   rollout.Action
			State    string
		}
		var got []step
		for _, e := range history {
			got = append(got, step{e.Rule.Revision, e.Action, e.Rule.State()})
		}
		wantSame(t, "history", got, []step{
			{1, rollout.ActionApply, "v1 in shadow with no stable version"},
			{3, rollout.ActionPromote, "v1 stable"},
			{4, rollout.ActionApply, "v2 in shadow beside stable v1"},
			{5, rollout.ActionPromote, "v2 at 25% beside stable v1"},
			{6, rollout.ActionRollback, "v1 stable"},
		})
		wantSame(t, "the last entry is the rule as it stands", history[4].Rule, mustRule(t, tx, "plan"))
	})
}

func auditIsNewestFirst(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	create(t, f.store, "web", "login")
	promote(t, f.store, "plan", 10)
	for _, c := range []struct {
		domain string
		limit  int
		want   []int64
	}{
		{"", 10, []int64{3, 2, 1}},
		{"", 2, []int64{3, 2}},
		{"api", 10, []int64{3, 1}},
		{"api", 1, []int64{3}},
		{"nobody", 10, nil},
		{"", 0, nil},
		{"", -1, nil},
	} {
		var got []int64
		for _, r := range mustAudit(t, f.store, c.domain, c.limit) {
			got = append(got, r.Revision)
		}
		wantSame(t, "audit of "+c.domain, got, c.want)
	}
}

// A refused attempt is in the trail, between the changes around it, and makes no revision.
func refusalsAreRecorded(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	refusal := rollout.Record{
		Refused: "rules.yaml:7:12: unknown key \x00", Time: at, Actor: rollout.Actor{Name: "ci"}, Action: rollout.ActionApply,
		Target: "rules.yaml", Before: json.RawMessage("{}"), After: json.RawMessage("{}"),
	}
	if err := f.store.Refuse(t.Context(), refusal); err != nil {
		t.Fatal(err)
	}
	promote(t, f.store, "plan", 10)
	got := mustAudit(t, f.another(t), "", 10)
	if len(got) != 3 || got[0].Revision != 2 || got[2].Revision != 1 {
		t.Fatalf("the trail is %+v, want revision 2, the refusal, and revision 1", got)
	}
	refusal.Refused = "rules.yaml:7:12: unknown key \uFFFD" // as any text that a database cannot hold
	wantSame(t, "refusal", got[1], refusal)
}

func auditKeepsTimesAndTexts(t *testing.T, f *fixture) {
	kathmandu := time.FixedZone("", 5*3600+45*60)
	for _, c := range []struct{ stamp, want time.Time }{
		{at, at},
		{time.Date(2026, 3, 29, 8, 15, 0, 123_456_789, kathmandu), at}, // the same instant, and 789 ns more
		{time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC)},
		{time.Time{}, time.Time{}},
	} {
		_, err := f.store.Commit(t.Context(), "api", func(rollout.Tx) (*rollout.Change, error) {
			change := changeOf("api", rollout.ActionApply)
			change.Record.Time = c.stamp
			change.Record.Message = "a\x00b\xffc"
			change.Record.Actor.Name = "eve\x00"
			return change, nil
		})
		if err != nil {
			t.Fatalf("commit: %v", err)
		}
		got := mustAudit(t, f.store, "", 1)[0]
		if !got.Time.Equal(c.want) || got.Time.Location() != time.UTC {
			t.Errorf("stamped %v, read %v, want %v in UTC", c.stamp, got.Time, c.want)
		}
		// What a database cannot hold must not keep a change from being recorded.
		wantSame(t, "message", got.Message, "a\uFFFDb\uFFFDc")
		wantSame(t, "actor", got.Actor.Name, "eve\uFFFD")
	}
}
