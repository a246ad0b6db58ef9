package app_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage/sqlite"
	"github.com/headgate/headgate/test/harness"
)

// Steps of ten seconds are kept for six hours, and minutes for days.
func TestTheLeaderRemovesOldCounts(t *testing.T) {
	t.Parallel()
	ago := time.Now().Add(-7 * time.Hour)
	p := start(t, func(c *app.Config) {
		store, err := sqlite.Open(t.Context(), c.Database)
		if err != nil {
			t.Fatal(err)
		}
		err = store.SaveWindows(t.Context(), []tally.SourceWindows{{
			Source: tally.Source{Node: "n", Epoch: "e"},
			Windows: []tally.Window{{
				Number: 1, Start: ago, End: ago.Add(tally.Span), Domains: []tally.DomainTally{{Domain: "api", Counts: tally.DomainCounts{7}}},
			}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := points(t, store, ago, tally.StepWindow); err != nil || n != 1 {
			t.Fatalf("before the start there are %d steps, %v: this shows nothing", n, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	})
	harness.Eventually(t, patience, func() error {
		n, err := points(t, p.Store(), ago, tally.StepWindow)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d old steps are left", n)
		}
		return err
	})
	if n, err := points(t, p.Store(), ago, tally.StepMinute); err != nil || n != 1 {
		t.Errorf("%d minutes are left, %v, want that of the counts", n, err)
	}
}

func points(t *testing.T, store tally.Store, around time.Time, step tally.Step) (int, error) {
	t.Helper()
	list, err := store.DomainSeries(t.Context(), tally.Query{From: around.Add(-time.Hour), To: around.Add(time.Hour), Step: step})
	return len(list), err
}
