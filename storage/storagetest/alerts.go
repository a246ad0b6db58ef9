package storagetest

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/tally/spike"
	"github.com/headgate/headgate/storage"
)

func silence(domain, rule, message string) rollout.Silence {
	return rollout.Silence{
		Domain: domain, Rule: rule, At: at, Until: at.Add(time.Hour), Actor: rollout.Actor{Name: "ann", Verified: true}, Message: message,
	}
}

func saveSilence(t *testing.T, s storage.Store, one rollout.Silence) {
	t.Helper()
	if err := s.SaveSilence(t.Context(), one, note(rollout.ActionSilence, one.Domain+"/"+one.Rule)); err != nil {
		t.Fatalf("save a silence: %v", err)
	}
}

func mustSilences(t *testing.T, s storage.Store, domain string) []rollout.Silence {
	t.Helper()
	list, err := s.Silences(t.Context(), domain)
	if err != nil {
		t.Fatalf("silences: %v", err)
	}
	return list
}

func silencesAreKept(t *testing.T, f *fixture) {
	saveSilence(t, f.store, silence("web", "a", "deploy"))
	saveSilence(t, f.store, silence("api", "b", "odd\x00 \xff"))
	saveSilence(t, f.store, silence("api", "a", "first"))
	again := silence("api", "a", "again")
	again.Until, again.Actor = at.Add(2*time.Hour), rollout.Actor{Name: "bob"}
	saveSilence(t, f.store, again)
	want := []rollout.Silence{again, silence("api", "b", "odd\uFFFD \uFFFD"), silence("web", "a", "deploy")}
	wantSame(t, "silences", mustSilences(t, f.another(t), ""), want)
	wantSame(t, "silences of web", mustSilences(t, f.store, "web"), want[2:])

	if err := f.store.DeleteSilence(t.Context(), "api", "a", note(rollout.ActionUnsilence, "api/a")); err != nil {
		t.Fatalf("end a silence: %v", err)
	}
	wantSame(t, "silences after one was ended", mustSilences(t, f.store, ""), want[1:])
	if err := f.store.DeleteSilence(t.Context(), "api", "a", note(rollout.ActionUnsilence, "api/a")); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("end what is not there: %v, want that it is not found", err)
	}
	if n := mustHead(t, f.store).Records; n != 5 {
		t.Errorf("%d records, want one for each of five changes", n)
	}
	verify(t, f.store)
}

// roundAt is when the n-th round of a test is made.
func roundAt(n int) time.Time {
	return at.Truncate(spike.Every).Add(time.Duration(n) * spike.Every)
}

func watch(uid string, version int64, streak int) alert.Watch {
	w := alert.Watch{VersionID: alert.VersionID{UID: uid, Version: version}}
	w.Refused.Baseline = spike.Baseline{Refused: 0.1, Of: 1e9 + 0.3, At: at}
	w.Refused.Streak, w.Would.Since = streak, at
	return w
}

func anAlert(id, domain string, since time.Time) alert.Alert {
	return alert.Alert{
		ID: id, Domain: domain, Rule: "plan", UID: "u", Version: 2, Kind: alert.Refused, Severity: alert.Page, State: "v2 stable",
		Evidence: spike.Evidence{Count: spike.Count{Refused: 10, Of: 20}, Bound: 0.2158, Baseline: 0.005, Limit: 0.025},
		Hits:     alert.Many, Distinct: 7, Keys: []alert.Key{{Label: "10.0.0.*", Count: 3}},
		Offers: []alert.Offer{{Command: "rulectl rollback api/plan --wait", Effect: "it back"}}, Since: since,
	}
}

func mustRound(t *testing.T, s storage.Store) alert.Round {
	t.Helper()
	r, err := s.LastRound(t.Context())
	if err != nil {
		t.Fatalf("last round: %v", err)
	}
	return r
}

func saveRound(t *testing.T, s storage.Store, r alert.Round) {
	t.Helper()
	if err := s.SaveRound(t.Context(), mustRound(t, s).At, r); err != nil {
		t.Fatalf("save round %s: %v", r.At, err)
	}
}

func mustAlerts(t *testing.T, s storage.Store, q alert.Query) []alert.Alert {
	t.Helper()
	list, err := s.Alerts(t.Context(), q)
	if err != nil {
		t.Fatalf("alerts: %v", err)
	}
	return list
}

func roundsFollowEachOther(t *testing.T, f *fixture) {
	first := mustRound(t, f.store)
	if !first.At.IsZero() || !first.Settled.IsZero() || len(first.Watches)+len(first.Alerts) > 0 {
		t.Fatalf("before the first round: %+v", first)
	}
	one, two := anAlert("one", "api", roundAt(1)), anAlert("two", "api", roundAt(2))
	saveRound(t, f.store, alert.Round{
		At: roundAt(1), Settled: at, Watches: []alert.Watch{watch("b", 1, 1), watch("a", 10, 2), watch("a", 9, 3)}, Alerts: []alert.Alert{one},
	})
	other := f.another(t)
	wantSame(t, "round", mustRound(t, other), alert.Round{
		At: roundAt(1), Settled: at, Watches: []alert.Watch{watch("a", 9, 3), watch("a", 10, 2), watch("b", 1, 1)}, Alerts: []alert.Alert{one},
	})

	// Of what a round names nothing is stored when it does not follow the last one.
	stale := alert.Round{At: roundAt(3), Settled: at, Watches: []alert.Watch{watch("a", 9, 0)}, Alerts: []alert.Alert{two}}
	for _, base := range []time.Time{{}, roundAt(0), roundAt(2)} {
		if err := other.SaveRound(t.Context(), base, stale); !errors.Is(err, rules.ErrConflict) {
			t.Errorf("a round after that of %s: %v, want a conflict", base, err)
		}
	}
	one.Resolved, one.Ending = roundAt(2), "it is over"
	saveRound(t, f.store, alert.Round{
		At: roundAt(2), Settled: roundAt(2), Watches: []alert.Watch{watch("b", 1, 0)}, Forget: []alert.VersionID{{UID: "a", Version: 9}},
		Alerts: []alert.Alert{one, two},
	})
	wantSame(t, "round", mustRound(t, other), alert.Round{
		At: roundAt(2), Settled: roundAt(2), Watches: []alert.Watch{watch("a", 10, 2), watch("b", 1, 0)}, Alerts: []alert.Alert{two},
	})
	wantSame(t, "alerts", mustAlerts(t, other, alert.Query{Limit: 9}), []alert.Alert{two, one})
}

func oneOfManyMakesARound(t *testing.T, f *fixture) {
	const leaders = 8
	errs := make([]error, leaders)
	var all sync.WaitGroup
	for i := range leaders {
		s := f.another(t)
		all.Go(func() {
			errs[i] = s.SaveRound(t.Context(), time.Time{}, alert.Round{
				At: roundAt(1), Watches: []alert.Watch{watch("a", 1, i+1)}, Alerts: []alert.Alert{anAlert("one", "api", roundAt(1))},
			})
		})
	}
	all.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won < 0:
			won = i
		case err == nil || !errors.Is(err, rules.ErrConflict):
			t.Errorf("leader %d: %v, want that all but one meet a conflict", i, err)
		}
	}
	if won < 0 {
		t.Fatal("nobody made the round")
	}
	wantSame(t, "watches", mustRound(t, f.store).Watches, []alert.Watch{watch("a", 1, won+1)})
}

func alertsAreFound(t *testing.T, f *fixture) {
	fires, over, web := anAlert("fires", "api", roundAt(3)), anAlert("over", "api", roundAt(2)), anAlert("web", "web", roundAt(1))
	over.Resolved = roundAt(4)
	saveRound(t, f.store, alert.Round{At: roundAt(4), Alerts: []alert.Alert{over, web, fires}})
	for what, c := range map[string]struct {
		q    alert.Query
		want []alert.Alert
	}{
		"all":              {alert.Query{Limit: 9}, []alert.Alert{fires, over, web}},
		"the newest two":   {alert.Query{Limit: 2}, []alert.Alert{fires, over}},
		"firing":           {alert.Query{FiringOnly: true, Limit: 9}, []alert.Alert{fires, web}},
		"resolved lately":  {alert.Query{ResolvedAfter: roundAt(4).Add(-time.Microsecond), Limit: 9}, []alert.Alert{fires, over, web}},
		"resolved earlier": {alert.Query{ResolvedAfter: roundAt(4), Limit: 9}, []alert.Alert{fires, web}},
		"of a domain":      {alert.Query{Domain: "web", Limit: 9}, []alert.Alert{web}},
		"none":             {alert.Query{}, nil},
	} {
		got := mustAlerts(t, f.store, c.q)
		if len(got) == 0 {
			got = nil
		}
		wantSame(t, what, got, c.want)
	}
	saveRound(t, f.store, alert.Round{At: roundAt(4).Add(alert.Keep)})
	wantSame(t, "alerts at the end of their time", len(mustAlerts(t, f.store, alert.Query{Limit: 9})), 3)
	saveRound(t, f.store, alert.Round{At: roundAt(5).Add(alert.Keep)})
	wantSame(t, "alerts later", mustAlerts(t, f.store, alert.Query{Limit: 9}), []alert.Alert{fires, web})
}

func deliveriesAreNotedOnce(t *testing.T, f *fixture) {
	one := anAlert("one", "api", roundAt(1))
	saveRound(t, f.store, alert.Round{At: roundAt(1), Alerts: []alert.Alert{one, anAlert("two", "api", roundAt(1))}})
	told := []alert.Delivery{{Alert: "one", Target: "a", Status: alert.Firing}, {Alert: "one", Target: "b", Status: alert.Firing}}
	for range 2 {
		if err := f.another(t).MarkDelivered(t.Context(), append(told, alert.Delivery{Alert: "gone", Target: "a", Status: alert.Firing})); err != nil {
			t.Fatalf("mark delivered: %v", err)
		}
	}
	// A later round writes the alert anew, and keeps what was delivered of it.
	one.Resolved = roundAt(2)
	saveRound(t, f.store, alert.Round{At: roundAt(2), Alerts: []alert.Alert{one}})
	if err := f.store.MarkDelivered(t.Context(), []alert.Delivery{{Alert: "one", Target: "a", Status: alert.Resolved}}); err != nil {
		t.Fatalf("mark delivered: %v", err)
	}
	one.Delivered = []alert.Delivery{told[0], {Alert: "one", Target: "a", Status: alert.Resolved}, told[1]}
	wantSame(t, "alerts", mustAlerts(t, f.store, alert.Query{Limit: math.MaxInt32}), []alert.Alert{one, anAlert("two", "api", roundAt(1))})
	saveRound(t, f.store, alert.Round{At: roundAt(3).Add(alert.Keep)})
	wantSame(t, "alerts that are left", len(mustAlerts(t, f.store, alert.Query{Limit: 9})), 1)
}
