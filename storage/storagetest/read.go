package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
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
		none, err := tx.Histories(t.Context(), "nobody")
		if len(none) != 0 || err != nil {
			t.Errorf("history of nothing = %v, %v", none, err)
		}
		one, err := tx.Histories(t.Context(), list[1].UID)
		if err != nil || len(one) != 1 || len(one[list[1].UID]) != 1 {
			t.Errorf("history of b = %v, %v, want its one state", one, err)
		}
		both, err := tx.Histories(t.Context(), list[0].UID, list[1].UID)
		if err != nil || len(both) != 2 || len(both[list[0].UID]) != 2 || len(both[list[1].UID]) != 1 {
			t.Errorf("histories = %v, %v, want those of a and b", both, err)
		}
		sums, err := tx.Pasts(t.Context())
		wantSame(t, "pasts", sums, map[string]rollout.Past{list[0].UID: {Versions: 1}, list[1].UID: {Versions: 1}})
		if err != nil {
			t.Errorf("pasts: %v", err)
		}
		for revision, want := range map[int64][]string{0: {}, list[1].Revision: {"api/a", "api/b"}, 99: {"api/a", "api/b"}} {
			then, err := tx.RulesAt(t.Context(), revision)
			if err != nil {
				t.Errorf("rules at %d: %v", revision, err)
			}
			wantSame(t, fmt.Sprintf("rules at %d", revision), ids(then), want)
		}
	})
	look(t, f.store, "new", func(tx rollout.Tx) {
		if list, err := tx.Rules(t.Context()); len(list) != 0 || err != nil {
			t.Errorf("rules of a domain that does not exist = %v, %v", list, err)
		}
		if all, err := tx.Pasts(t.Context()); len(all) != 0 || err != nil {
			t.Errorf("pasts of a domain that does not exist = %v, %v", all, err)
		}
	})
}

func historyIsOldestFirst(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	create(t, f.store, "api", "other")
	promote(t, f.store, "plan", rules.AllKeys)
	edit(t, f.store, rollout.ActionApply, "plan", func(r *rules.Rule) {
		r.Candidate, r.Salt, r.Epoch = &rules.Version{Number: 2, Spec: spec(90)}, 7, 4
	})
	promote(t, f.store, "plan", 2_500)
	edit(t, f.store, rollout.ActionPause, "plan", func(r *rules.Rule) { r.Paused = true })
	edit(t, f.store, rollout.ActionRollback, "plan", func(r *rules.Rule) {
		r.Candidate, r.Percent, r.Salt, r.Epoch, r.Paused = nil, 0, 0, 0, false
	})

	type step struct {
		Revision int64
		Action   rollout.Action
		State    string
	}
	want := []step{
		{1, rollout.ActionApply, "v1 in shadow with no stable version"},
		{3, rollout.ActionPromote, "v1 stable"},
		{4, rollout.ActionApply, "v2 in shadow beside stable v1"},
		{5, rollout.ActionPromote, "v2 at 25% beside stable v1"},
		{6, rollout.ActionPause, "v2 at 25%, paused, beside stable v1"},
		{7, rollout.ActionRollback, "v1 stable"},
	}
	history := mustHistory(t, f.store, "plan")
	var got []step
	for _, e := range history {
		got = append(got, step{e.Rule.Revision, e.Action, e.Rule.State()})
	}
	wantSame(t, "history", got, want)
	look(t, f.store, "api", func(tx rollout.Tx) {
		all, err := tx.Histories(t.Context(), history[0].Rule.UID)
		if err != nil {
			t.Fatalf("histories: %v", err)
		}
		wantSame(t, "the history inside a change", all[history[0].Rule.UID], history)
		sums, err := tx.Pasts(t.Context())
		if err != nil {
			t.Fatalf("pasts: %v", err)
		}
		wantSame(t, "its past", sums[history[0].Rule.UID], rollout.Past{Versions: 2, RolledBack: true})
		for revision, i := range map[int64]int{1: 0, 2: 0, 3: 1, 6: 4, 7: 5, 99: 5} {
			then, err := tx.RulesAt(t.Context(), revision)
			if err != nil {
				t.Fatalf("rules at %d: %v", revision, err)
			}
			at := slices.IndexFunc(then, func(r rules.Rule) bool { return r.Name == "plan" })
			wantSame(t, fmt.Sprintf("rules at %d", revision), then[at], history[i].Rule)
		}
		wantSame(t, "the last entry is the rule as it stands", history[5].Rule, mustRule(t, tx, "plan"))
	})
	// At each revision the rule is what the last one before had made of it.
	for revision, i := range map[int64]int{1: 0, 2: 0, 3: 1, 6: 4, 7: 5, 99: 5} {
		r, err := f.store.RuleAt(t.Context(), "api", "plan", revision)
		if err != nil {
			t.Fatalf("rule at %d: %v", revision, err)
		}
		wantSame(t, fmt.Sprintf("rule at %d", revision), r, history[i].Rule)
	}
	wantNoRule(t, f.store, "plan", 0)
	wantNoRule(t, f.store, "other", 1)
	wantNoRule(t, f.store, "Plan", 7)
	if _, err := f.store.History(t.Context(), "api", "nobody"); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("history of nothing: %v, want not found", err)
	}
	if _, err := f.store.History(t.Context(), "web", "plan"); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("history in another domain: %v, want not found", err)
	}
}

func wantNoRule(t *testing.T, s storage.Store, name string, revision int64) {
	t.Helper()
	if r, err := s.RuleAt(t.Context(), "api", name, revision); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("rule %s at %d = %+v, %v, want not found", name, revision, r, err)
	}
}

func deletedRulesStayInTheHistory(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan", "stays")
	was := mustRules(t, f.store, "api")[0]
	gone := edit(t, f.store, rollout.ActionDelete, "plan", func(r *rules.Rule) {
		r.Candidate, r.Salt, r.Epoch = nil, 0, 0
	})
	want := rules.Rule{Domain: "api", Name: "plan", UID: was.UID, Revision: gone}

	wantSame(t, "rules", ids(mustRules(t, f.store, "api")), []string{"api/stays"})
	wantSame(t, "rules of all domains", ids(mustRules(t, f.store, "")), []string{"api/stays"})
	wantSame(t, "everything", ids(mustChanges(t, f.store, 0).Rules), []string{"api/stays"})
	wantSame(t, "the step", mustChanges(t, f.store, 1).Rules, []rules.Rule{want})
	wantNoRule(t, f.store, "plan", gone)
	before, err := f.store.RuleAt(t.Context(), "api", "plan", gone-1)
	if err != nil {
		t.Fatalf("the rule before: %v", err)
	}
	wantSame(t, "the rule before", before, was)
	last := mustHistory(t, f.store, "plan")[1]
	wantSame(t, "the action", last.Action, rollout.ActionDelete)
	wantSame(t, "history", last.Rule, want)
	look(t, f.store, "api", func(tx rollout.Tx) {
		wantSame(t, "rule", mustRule(t, tx, "plan"), want)
		list, err := tx.Rules(t.Context())
		if err != nil {
			t.Fatalf("rules: %v", err)
		}
		wantSame(t, "rules inside a change", ids(list), []string{"api/plan", "api/stays"})
	})

	// Brought back, it is the same rule.
	edit(t, f.store, rollout.ActionRollback, "plan", func(r *rules.Rule) { r.Stable = was.Candidate })
	back := mustRules(t, f.store, "api")[0]
	wantSame(t, "the rule that is back", back, rules.Rule{Domain: "api", Name: "plan", UID: was.UID, Revision: 3, Stable: was.Candidate})
	wantSame(t, "everything", ids(mustChanges(t, f.store, 0).Rules), []string{"api/plan", "api/stays"})
}
