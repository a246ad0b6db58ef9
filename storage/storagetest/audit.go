package storagetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
)

func auditIsNewestFirst(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	create(t, f.store, "web", "login")
	promote(t, f.store, "plan", 10)
	refusal := note(rollout.ActionApply, "api/plan")
	refusal.Domain, refusal.Refused = "api", "no"
	several := note(rollout.ActionApply, "api")
	several.Time, several.Actor.Name = at.Add(time.Hour), "zoë"
	several.Domain, several.Detail = "api", "api/plans: new -> v1\napi/login: v1 -> v2"
	if err := f.store.Note(t.Context(), several, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Note(t.Context(), refusal, ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query rollout.AuditQuery
		want  []int64
	}{
		{rollout.AuditQuery{Limit: 10}, []int64{5, 4, 3, 2, 1}},
		{rollout.AuditQuery{Limit: 2}, []int64{5, 4}},
		{rollout.AuditQuery{Limit: 2, Before: 3}, []int64{2, 1}},
		{rollout.AuditQuery{Limit: 2, Before: 1}, nil},
		{rollout.AuditQuery{Limit: 9, Before: 99}, []int64{5, 4, 3, 2, 1}},
		{rollout.AuditQuery{Domain: "api", Limit: 10}, []int64{5, 4, 3, 1}},
		{rollout.AuditQuery{Domain: "api", Limit: 1, Before: 4}, []int64{3}},
		{rollout.AuditQuery{Domain: "API", Limit: 10}, nil},
		{rollout.AuditQuery{Target: "api/plan", Limit: 10}, []int64{5}},
		{rollout.AuditQuery{Target: "api/login", Limit: 10}, []int64{4}}, // of an apply of many
		{rollout.AuditQuery{Target: "api/plans", Limit: 10}, []int64{4}},
		{rollout.AuditQuery{Target: "pi/login", Limit: 10}, nil},
		{rollout.AuditQuery{Target: "web", Limit: 10}, []int64{2}},
		{rollout.AuditQuery{Target: "web", Domain: "api", Limit: 10}, nil},
		{rollout.AuditQuery{Actor: "zoë", Limit: 10}, []int64{4}},
		{rollout.AuditQuery{Actor: "zo", Limit: 10}, nil},
		{rollout.AuditQuery{Actor: "zoë\x00", Limit: 10}, nil},
		{rollout.AuditQuery{Action: rollout.ActionPromote, Limit: 10}, []int64{3}},
		{rollout.AuditQuery{Action: rollout.ActionApply, Domain: "api", Before: 5, Limit: 10}, []int64{4, 1}},
		{rollout.AuditQuery{From: at.Add(time.Hour), Limit: 10}, []int64{4}},
		{rollout.AuditQuery{From: at.Add(time.Hour + time.Microsecond), Limit: 10}, nil},
		{rollout.AuditQuery{To: at.Add(time.Hour), Limit: 10}, []int64{5, 3, 2, 1}},
		{rollout.AuditQuery{From: at, To: at, Limit: 10}, nil},
		{rollout.AuditQuery{}, nil},
		{rollout.AuditQuery{Limit: -1}, nil},
	} {
		list, err := f.store.Audit(t.Context(), c.query)
		if err != nil {
			t.Fatalf("audit %+v: %v", c.query, err)
		}
		var got []int64
		for _, r := range list {
			got = append(got, r.Number)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("audit %+v = records %v, want %v", c.query, got, c.want)
		}
	}
}

// A refused attempt is in the trail, between the changes around it, and makes no revision.
func notesAreRecorded(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	refusal := note(rollout.ActionApply, "rules.yaml")
	refusal.Refused = "rules.yaml:7:12: unknown key \x00"
	if err := f.store.Note(t.Context(), refusal, ""); err != nil {
		t.Fatal(err)
	}
	promote(t, f.store, "plan", 10)
	got := mustAudit(t, f.another(t), "", 10)
	if len(got) != 3 || got[0].Revision != 2 || got[2].Revision != 1 {
		t.Fatalf("the trail is %+v, want revision 2, the refusal, and revision 1", got)
	}
	refusal.Number = 2
	refusal.Refused = "rules.yaml:7:12: unknown key \uFFFD" // as any text that a database cannot hold
	refusal.Seal = refusal.SealAfter(got[2].Seal)
	wantSame(t, "refusal", got[1], refusal)
	head := mustHead(t, f.store)
	if head.Revision != 2 || head.Records != 3 || head.Seal != got[0].Seal {
		t.Fatalf("head = %+v, want revision 2, and record 3 with its seal", head)
	}
	verify(t, f.store)
}

func notesWithOneKeyAreStoredOnce(t *testing.T, f *fixture) {
	stores := []storage.Store{f.store, f.another(t)}
	var g errgroup.Group
	for i := range 20 {
		g.Go(func() error { return stores[i%2].Note(t.Context(), note(rollout.ActionBreakGlass, "api"), "same") })
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("note: %v", err)
	}
	head := mustHead(t, f.store)
	wantSame(t, "records", head.Records, int64(1))
	for _, key := range []string{"same", "other", "", ""} {
		if err := f.store.Note(t.Context(), note(rollout.ActionBreakGlass, "api"), key); err != nil {
			t.Fatalf("note %q: %v", key, err)
		}
	}
	wantSame(t, "records", mustHead(t, f.store).Records, int64(4))
	verify(t, f.store)
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
	verify(t, f.store)
}

// Whoever verifies the trail hashes what he reads. So each record must be read as it was sealed, whatever was in it.
func sealsCoverWhatIsReadBack(t *testing.T, f *fixture) {
	head := mustHead(t, f.store)
	if head.Revision != 0 || head.Records != 0 || head.Seal != "" || head.Lineage == "" {
		t.Fatalf("the head of an empty database is %+v", head)
	}
	verify(t, f.store)
	odd := []string{
		"", "\x00", "\xff\xfe", "a\xc3", "\xed\xa0\x80", // nothing, a NUL, and three ways not to be UTF-8
		"🚦 é e\u0301 \u2028 \u202e \ufeff", "\r\n\t\\ \" ' <&> %s $1 ?1", " spaces ",
		strings.Repeat("4 KiB ü\n", 512), strings.Repeat("\x00\xff", 2_000),
	}
	for i, text := range odd {
		r := note(rollout.ActionApply, text)
		r.Time = at.Add(time.Duration(i) * 1_234_567)
		r.Domain, r.Refused, r.Message, r.Detail, r.Actor = text, text, text, text, rollout.Actor{Name: text, Verified: i%2 == 0}
		encoded, err := json.Marshal(map[string]string{text: text})
		if err != nil {
			t.Fatal(err)
		}
		r.Before, r.After = append([]byte(" \n"), encoded...), json.RawMessage(`{"b":1.0,"a" : 1e2,"a":2}`)
		if err := f.store.Note(t.Context(), r, fmt.Sprint("key ", i)); err != nil {
			t.Fatalf("note %q: %v", text, err)
		}
		_, err = f.store.Commit(t.Context(), "api", func(tx rollout.Tx) (*rollout.Change, error) {
			r.Domain = "api"
			return &rollout.Change{Record: r, Rules: []rules.Rule{newRule("api", rules.NewUID(), tx.Revision())}}, nil
		})
		if err != nil {
			t.Fatalf("commit %q: %v", text, err)
		}
	}
	verify(t, f.another(t))
	wantSame(t, "records", mustHead(t, f.store).Records, int64(2*len(odd)))
}
