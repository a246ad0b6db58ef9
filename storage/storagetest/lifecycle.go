package storagetest

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

func everythingIsThereAfterReopening(t *testing.T, f *fixture) {
	Fill(t, f.store)
	changes, audit, head := mustChanges(t, f.store, 0), mustAudit(t, f.store, "", 10), mustHead(t, f.store)
	if err := f.store.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}

	again := f.open(t)
	wantSame(t, "changes", mustChanges(t, again, 0), changes)
	wantSame(t, "audit", mustAudit(t, again, "", 10), audit)
	wantSame(t, "head", mustHead(t, again), head)
	wantNodes(t, again, "", node("n1", "api", 0))
	wantSame(t, "credentials", mustCredentials(t, again), []access.Credential{credential("c1", nil)})
	wantSessions(t, again, "after reopening", []access.Session{session("c1", "s1", at)}, func(int) bool { return true })
	taken, err := again.Taken(t.Context(), "api")
	if err != nil {
		t.Fatalf("taken: %v", err)
	}
	wantSame(t, "taken", taken, []rollout.Taken{{Domain: "api", Rule: "plan", Level: 1, Revision: 2}})
	if revision := create(t, again, "api", "new"); revision != 4 {
		t.Fatalf("the next change got number %d, want 4", revision)
	}
	verify(t, again)
}

func closedStoreIsUnavailable(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	for range 2 {
		if err := f.store.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	everyCall(t.Context(), f.store, func(call string, err error) {
		if !errors.Is(err, rules.ErrUnavailable) {
			t.Errorf("%s after Close: %v, want unavailable", call, err)
		}
	})
}

func canceledCallsFail(t *testing.T, f *fixture) {
	create(t, f.store, "api", "plan")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	everyCall(ctx, f.store, func(call string, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a canceled context: %v, want that it was canceled", call, err)
		}
	})

	// Canceled while deciding, with everything read already.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	_, err := f.store.Commit(ctx, "api", func(tx rollout.Tx) (*rollout.Change, error) {
		r := mustRule(t, tx, "plan")
		r.Percent = 1
		cancel()
		return changeOf("api", rollout.ActionPromote, r), nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("commit canceled while deciding: %v, want that it was canceled", err)
	}
	wantSame(t, "head", mustChanges(t, f.store, 0).Head, int64(1))
	if revision := promote(t, f.store, "plan", 10); revision != 2 {
		t.Fatalf("the next change got number %d, want 2", revision)
	}
}

// everyCall makes every call there is, and reports its error.
func everyCall(ctx context.Context, s storage.Store, report func(call string, err error)) {
	_, err := s.Commit(ctx, "api", func(rollout.Tx) (*rollout.Change, error) { return nil, nil })
	report("Commit", err)
	_, err = s.Rules(ctx, "api")
	report("Rules", err)
	_, err = s.Rules(ctx, "")
	report("Rules of all", err)
	_, err = s.Domains(ctx, "")
	report("Domains", err)
	_, err = s.History(ctx, "api", "plan")
	report("History", err)
	_, err = s.Audit(ctx, rollout.AuditQuery{Limit: 1})
	report("Audit", err)
	_, err = s.Head(ctx)
	report("Head", err)
	report("Note", s.Note(ctx, note(rollout.ActionApply, "api"), ""))
	_, err = s.RenewLineage(ctx, note(rollout.ActionRenewLineage, ""))
	report("RenewLineage", err)
	report("ReplaceLineage", s.ReplaceLineage(ctx, "old", note(rollout.ActionReplaceLineage, "old")))
	report("AddCredential", s.AddCredential(ctx, credential("x", nil), note(rollout.ActionAddCredential, "x")))
	report("RevokeCredential", s.RevokeCredential(ctx, "x", at, note(rollout.ActionRevokeCredential, "x")))
	_, err = s.Credentials(ctx)
	report("Credentials", err)
	_, err = s.Credential(ctx, access.HashToken("x"))
	report("Credential", err)
	report("AddSession", s.AddSession(ctx, session("x", "s", at)))
	_, _, err = s.Session(ctx, access.HashSession("s"))
	report("Session", err)
	report("EndSession", s.EndSession(ctx, access.HashSession("s")))
	report("EndSessions", s.EndSessions(ctx, "x"))
	report("SaveSilence", s.SaveSilence(ctx, silence("api", "plan", ""), note(rollout.ActionSilence, "api/plan")))
	report("DeleteSilence", s.DeleteSilence(ctx, "api", "plan", note(rollout.ActionUnsilence, "api/plan")))
	_, err = s.Silences(ctx, "")
	report("Silences", err)
	_, err = s.LastRound(ctx)
	report("LastRound", err)
	report("SaveRound", s.SaveRound(ctx, at, alert.Round{At: at}))
	_, err = s.Alerts(ctx, alert.Query{Limit: 1})
	report("Alerts", err)
	report("MarkDelivered", s.MarkDelivered(ctx, []alert.Delivery{{Alert: "a", Target: "t", Status: alert.Firing}}))
	report("SaveNodes", s.SaveNodes(ctx, []rollout.Node{node("n1", "api", 0)}))
	_, err = s.Nodes(ctx, "")
	report("Nodes", err)
	_, err = s.ForgetNodes(ctx, at)
	report("ForgetNodes", err)
	report("SaveTaken", s.SaveTaken(ctx, []rollout.Taken{{Domain: "api", Level: 1, Revision: 1}}))
	_, err = s.Taken(ctx, "api")
	report("Taken", err)
	_, err = s.Changes(ctx, 0)
	report("Changes", err)
	_, err = s.RuleAt(ctx, "api", "plan", 1)
	report("RuleAt", err)
	report("Lead", s.Lead(ctx, func(context.Context) error { return nil }))
	everyTallyCall(ctx, s, report)
}

func everyTallyCall(ctx context.Context, s storage.Store, report func(call string, err error)) {
	batch := []tally.SourceWindows{of(source("n1", "e1"), window(1, counted("u", 1)))}
	report("SaveWindows", s.SaveWindows(ctx, batch))
	report("SaveOpen", s.SaveOpen(ctx, batch))
	_, err := s.Stored(ctx, batch[0].Source)
	report("Stored", err)
	_, err = s.Births(ctx, []string{"u"})
	report("Births", err)
	_, err = s.Series(ctx, day(tally.StepMinute))
	report("Series", err)
	_, err = s.DomainSeries(ctx, day(tally.StepMinute))
	report("DomainSeries", err)
	_, err = s.Keys(ctx, day(tally.StepMinute))
	report("Keys", err)
	_, err = s.Refusals(ctx, tally.RefusalQuery{From: noon, To: noon, Limit: 1})
	report("Refusals", err)
	_, err = s.Missing(ctx, noon, noon)
	report("Missing", err)
	report("Prune", s.Prune(ctx, noon))
}
