package storagetest

import (
	"testing"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

// until takes signals until the changes are as wanted.
func until(t *testing.T, s storage.Store, signals <-chan struct{}, wanted func(rollout.Changes) bool) {
	t.Helper()
	for {
		take(t, signals)
		if wanted(mustChanges(t, s, 0)) {
			return
		}
	}
}

func lineageIsRenewed(t *testing.T, f *fixture) {
	other := f.another(t)
	create(t, f.store, "api", "plan")
	before := mustHead(t, f.store)
	if err := f.store.SaveTaken(t.Context(), []rollout.Taken{{Domain: "api", Level: 1, Revision: 9}}); err != nil {
		t.Fatal(err)
	}
	if err := f.store.ReplaceLineage(t.Context(), "old", note(rollout.ActionReplaceLineage, "old")); err != nil {
		t.Fatal(err)
	}
	signals := other.Watch(t.Context())
	f.started(t, signals)

	lineage, err := f.store.RenewLineage(t.Context(), note(rollout.ActionRenewLineage, "the database"))
	if err != nil || lineage == "" || lineage == before.Lineage {
		t.Fatalf("renew lineage %q = %q, %v, want another one", before.Lineage, lineage, err)
	}
	until(t, other, signals, func(c rollout.Changes) bool { return c.Lineage == lineage })
	head := mustHead(t, other)
	if head.Lineage != lineage || head.Revision != before.Revision || head.Records != 3 {
		t.Fatalf("head = %+v, want lineage %s, the same revision, and record 3", head, lineage)
	}
	wantSame(t, "action", mustAudit(t, f.store, "", 1)[0].Action, rollout.ActionRenewLineage)
	// What was said of the old history does not hold for this one.
	if taken, err := f.store.Taken(t.Context(), "api"); len(taken) != 0 || err != nil {
		t.Errorf("taken = %v, %v, want what a node has of this history", taken, err)
	}
	if replaces := mustChanges(t, f.store, 0).Replaces; len(replaces) != 0 {
		t.Errorf("the new history replaces %q, which nobody said", replaces)
	}
	wantSame(t, "rules", ids(mustRules(t, f.store, "")), []string{"api/plan"})
	verify(t, f.store)
}

func lineageIsReplaced(t *testing.T, f *fixture) {
	other := f.another(t)
	create(t, f.store, "api", "plan")
	wantSame(t, "replaces", len(mustChanges(t, f.store, 0).Replaces), 0)
	signals := other.Watch(t.Context())
	f.started(t, signals)
	for i, lineage := range []string{"b", "B", "b"} {
		if err := f.store.ReplaceLineage(t.Context(), lineage, note(rollout.ActionReplaceLineage, lineage)); err != nil {
			t.Fatalf("replace lineage %s: %v", lineage, err)
		}
		until(t, other, signals, func(c rollout.Changes) bool { return len(c.Replaces) == min(i+1, 2) })
	}
	for _, since := range []int64{0, 1, 7} { // always all of them, new revision or not
		got := map[string]bool{}
		for _, lineage := range mustChanges(t, f.store, since).Replaces {
			got[lineage] = true
		}
		wantSame(t, "replaces", got, map[string]bool{"b": true, "B": true})
	}
	head := mustHead(t, f.store)
	if head.Revision != 1 || head.Records != 4 {
		t.Errorf("head = %+v, want revision 1 and record 4", head)
	}
	verify(t, f.store)
}
