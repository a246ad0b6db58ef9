package storagetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// settings returns settings with something in every field.
func settings(t *testing.T, name string) rules.Settings {
	t.Helper()
	key, err := rules.ParseKeySource("header:x-api-key")
	if err != nil {
		t.Fatal(err)
	}
	return rules.Settings{
		Shard:   &key.Source,
		Exempt:  []rules.Exemption{{Name: name, Match: rules.Match{Path: []string{"/livez", "/ü \x00"}}}},
		Freezes: []rules.Freeze{{Rule: "plan", Until: at.Add(time.Hour), IncludingClosed: true}},
	}
}

func wantSettings(t *testing.T, what string, got, want rules.Settings) {
	t.Helper()
	if !got.Equal(want) {
		t.Fatalf("%s: settings are %+v, want %+v", what, got, want)
	}
}

func settingsHaveAHistory(t *testing.T, f *fixture) {
	first, second := settings(t, "first"), settings(t, "second")
	set(t, f.store, "api", first)            // 1
	create(t, f.store, "api", "plan")        // 2
	set(t, f.store, "web", rules.Settings{}) // 3
	set(t, f.store, "api", second)           // 4
	promote(t, f.store, "plan", 10)          // 5

	want := map[string][2]int64{"api": {5, 4}, "web": {3, 3}} // the last revision, and the last of the settings
	for what, list := range map[string][]rules.Domain{"domains": mustDomains(t, f.another(t), ""), "changes": mustChanges(t, f.store, 0).Domains} {
		if len(list) != 2 {
			t.Fatalf("%s: %d domains, want 2", what, len(list))
		}
		for _, d := range list {
			if got := [2]int64{d.Revision, d.SettingsRevision}; got != want[d.Name] {
				t.Errorf("%s: %s has revision and settings revision %v, want %v", what, d.Name, got, want[d.Name])
			}
		}
		wantSettings(t, what, list[0].Settings(), second)
		wantSettings(t, what, list[1].Settings(), rules.Settings{})
	}
	look(t, f.store, "api", func(tx rollout.Tx) {
		for revision, want := range []rules.Settings{{}, first, first, first, second, second} {
			got, err := tx.SettingsAt(t.Context(), int64(revision))
			if err != nil {
				t.Fatalf("settings at %d: %v", revision, err)
			}
			wantSettings(t, fmt.Sprintf("at revision %d", revision), got, want)
		}
		d, err := tx.Domain(t.Context())
		if err != nil || d.Revision != 5 || d.SettingsRevision != 4 {
			t.Fatalf("domain = %+v, %v, want revisions 5 and 4", d, err)
		}
		wantSettings(t, "inside a change", d.Settings(), second)
	})
	// A change of settings is a step of the domain alone.
	step := mustChanges(t, f.store, 3)
	wantSame(t, "rules of the step", ids(step.Rules), []string{"api/plan"})
	wantSame(t, "domains of the step", len(step.Domains), 1)
}

// What is keyed with the secret before the commit must be found with it afterwards.
func newDomainHasTheSecretItWasShownWith(t *testing.T, f *fixture) {
	var shown rules.Domain
	decide := func(change *rollout.Change) func(rollout.Tx) (*rollout.Change, error) {
		return func(tx rollout.Tx) (*rollout.Change, error) {
			for range 2 { // asked twice, it is the same
				d, err := tx.Domain(t.Context())
				if err != nil {
					return nil, err
				}
				if shown = d; d.Name != "api" || d.Secret == [16]byte{} {
					t.Errorf("the domain is %+v, want a name and a secret", d)
				}
			}
			return change, nil
		}
	}
	if _, err := f.store.Commit(t.Context(), "api", decide(nil)); err != nil {
		t.Fatalf("look at a domain that does not exist: %v", err)
	}
	wantSame(t, "revision of what does not exist", [2]int64{shown.Revision, shown.SettingsRevision}, [2]int64{})
	wantSame(t, "domains", len(mustDomains(t, f.store, "")), 0)
	if _, err := f.store.Commit(t.Context(), "api", decide(changeOf("api", rollout.ActionApply))); err != nil {
		t.Fatalf("create the domain: %v", err)
	}
	stored := mustDomains(t, f.store, "api")[0]
	wantSame(t, "secret", stored.Secret, shown.Secret)
	look(t, f.store, "api", func(tx rollout.Tx) {
		d, err := tx.Domain(t.Context())
		if err != nil {
			t.Fatalf("domain: %v", err)
		}
		wantSame(t, "domain", d, stored)
	})
}

func domainsAreListed(t *testing.T, f *fixture) {
	wantSame(t, "domains of an empty database", len(mustDomains(t, f.store, "")), 0)
	for _, name := range []string{"b", "a0", "A", "a"} {
		create(t, f.store, name, "x")
	}
	var names []string
	for _, d := range mustDomains(t, f.store, "") {
		names = append(names, d.Name)
	}
	wantSame(t, "domains", names, []string{"A", "a", "a0", "b"})
	one := mustDomains(t, f.store, "a")
	if len(one) != 1 || one[0].Name != "a" || one[0].Revision != 4 || one[0].SettingsRevision != 0 {
		t.Fatalf("domain a = %+v, want it alone, of revision 4, without settings", one)
	}
	wantSame(t, "no such domain", len(mustDomains(t, f.store, "B")), 0)
}
