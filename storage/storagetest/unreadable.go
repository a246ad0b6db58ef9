package storagetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// UnreadableHidesNothingElse checks what becomes of the others when the database holds what this program cannot read, as
// a newer one may have written it. Replace puts another text in place of the spec of a version, and in place of the
// settings of a domain; it is for a driver's tests, since no interface does that.
func UnreadableHidesNothingElse(t *testing.T, s storage.Store, replaceSpec func(uid, spec string), replaceSettings func(domain, settings string)) {
	t.Helper()
	create(t, s, "api", "bad", "good")
	create(t, s, "web", "login")
	set(t, s, "web", rules.Settings{})
	all := mustRules(t, s, "api")
	replaceSpec(all[0].UID, `{"key":[],"limits":[],"fromTheFuture":true}`)

	wantSame(t, "rules", ids(mustRules(t, s, "api")), []string{"api/good"})
	wantSame(t, "rules of all domains", ids(mustRules(t, s, "")), []string{"api/good", "web/login"})
	c := mustChanges(t, s, 0)
	wantSame(t, "changed rules", ids(c.Rules), []string{"api/good", "web/login"})
	wantSame(t, "changed domains", len(c.Domains), 2)
	wantSame(t, "history", len(mustHistory(t, s, "good")), 1)
	if _, err := s.RuleAt(t.Context(), "api", "good", 1); err != nil {
		t.Errorf("the other rule at 1: %v", err)
	}
	_, err := s.History(t.Context(), "api", "bad")
	wantNamed(t, "history", err, "v1 of api/bad")
	_, err = s.RuleAt(t.Context(), "api", "bad", 1)
	wantNamed(t, "rule at 1", err, "v1 of api/bad")
	look(t, s, "api", func(tx rollout.Tx) {
		if one, err := tx.Histories(t.Context(), all[1].UID); err != nil || len(one) != 1 {
			t.Errorf("history of the other rule: %v, %v", one, err)
		}
		_, err := tx.Rule(t.Context(), "bad")
		wantNamed(t, "rule inside a change", err, "v1 of api/bad")
		// A change over all rules must not be decided without one of them.
		_, err = tx.Rules(t.Context())
		wantNamed(t, "rules inside a change", err, "v1 of api/bad")
		_, err = tx.RulesAt(t.Context(), 99)
		wantNamed(t, "rules at a revision inside a change", err, "v1 of api/bad")
	})
	promote(t, s, "good", 10)

	replaceSettings("web", `{"fromTheFuture":true}`)
	c = mustChanges(t, s, 0)
	wantSame(t, "changed rules of domains that can be read", ids(c.Rules), []string{"api/good"})
	wantSame(t, "changed domains that can be read", len(c.Domains), 1)
	wantSame(t, "domains", len(mustDomains(t, s, "")), 1)
	_, err = s.Domains(t.Context(), "web")
	wantNamed(t, "the domain", err, "settings of web")
}

// wantNamed wants an error that says what cannot be read, and does not blame whoever asked.
func wantNamed(t *testing.T, what string, err error, name string) {
	t.Helper()
	if err == nil || errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), name) {
		t.Errorf("%s: %v, want an error of no kind that names %s", what, err, name)
	}
}

// UnreadableTalliesHideNothingElse wants that what a newer program wrote of open windows, keys and rates is left out, and that
// keys and rates are begun anew. Spoil makes all that is stored of them unreadable.
func UnreadableTalliesHideNothingElse(t *testing.T, s storage.Store, spoil func()) {
	t.Helper()
	rule := uid(t, s, "plan")
	n1 := source("n1", "e1")
	first := affected(counted(rule, 1), 1, 1, 2)
	first.Rates = rates(1, 5)
	saveWindows(t, s, of(n1, window(1, first)))
	saveOpen(t, s, of(n1, openNow(2, 0, counted(rule, 1))))
	wantNow(t, s, 1)
	spoil()
	wantNow(t, s, 0)
	wantAllowed(t, s, rule, 1)
	keys := func() int {
		t.Helper()
		list, err := s.Keys(t.Context(), day(tally.StepMinute))
		if err != nil {
			t.Fatalf("keys: %v", err)
		}
		if len(list) == 0 {
			return 0
		}
		return len(list[0].Keys.Keys())
	}
	wantSame(t, "keys", keys(), 0)
	wantSame(t, "rates", mustRates(t, s, day(tally.StepMinute)), []tally.VersionRates{})
	next := affected(counted(rule, 1), 1, 3)
	next.Rates = rates(2, 7)
	saveWindows(t, s, of(n1, window(2, next)))
	wantAllowed(t, s, rule, 2)
	wantSame(t, "keys", keys(), 1)
	wantSame(t, "rates", mustRates(t, s, day(tally.StepMinute)), []tally.VersionRates{
		{Domain: "api", UID: rule, Version: 1, Start: noon, Rates: next.Rates},
	})
}
