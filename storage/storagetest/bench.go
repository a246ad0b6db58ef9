package storagetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage"
)

// BenchmarkTallies measures what the control plane does with tallies all the time: it stores a round of windows, every ten
// seconds one of each node, and it looks at many rules for an hour, and at one for a month.
func BenchmarkTallies(b *testing.B, s storage.Store) {
	const nodes, versions, many = 200, 20, 1000
	uids := newRules(b, s, many)
	for _, keys := range []int{0, 10, tally.MaxTopKeys} {
		b.Run(fmt.Sprintf("save/nodes=%d/versions=%d/keys=%d", nodes, versions, keys), func(b *testing.B) {
			numbers, epoch := make([]int, keys), rules.NewUID()
			for i := range numbers {
				numbers[i] = i
			}
			for n := int64(1); b.Loop(); n++ {
				b.StopTimer()
				batch := make([]tally.SourceWindows, nodes)
				for i := range batch {
					batch[i] = of(source(fmt.Sprint("n", i), epoch), window(n, busy(uids[:versions], numbers)...))
				}
				b.StartTimer()
				must(b, s.SaveWindows(b.Context(), batch))
			}
		})
	}
	b.Run(fmt.Sprintf("open/nodes=%d/versions=%d", nodes, versions), func(b *testing.B) {
		batch := make([]tally.SourceWindows, nodes)
		for n := 0; b.Loop(); n++ {
			for i := range batch {
				w := window(1, busy(uids[:versions], nil)...)
				w.End = w.End.Add(time.Duration(n))
				batch[i] = of(source(fmt.Sprint("open", i), "e"), w)
			}
			must(b, s.SaveOpen(b.Context(), batch))
		}
	})
	for minute := range int64(60) { // of an hour, in which all rules are busy
		w := window(6*minute+1, busy(uids, nil)...)
		w.Number = minute + 1
		must(b, s.SaveWindows(b.Context(), []tally.SourceWindows{of(source("hour", "e"), w)}))
	}
	series := func(name string, points int, q tally.Query) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				got, err := s.Series(b.Context(), q)
				must(b, err)
				if len(got) != points {
					b.Fatalf("%d points, want %d", len(got), points)
				}
			}
		})
	}
	hour := tally.Query{Domain: "api", From: noon, To: noon.Add(time.Hour), Step: tally.StepMinute}
	series(fmt.Sprintf("series/rules=%d/minutes=60", many), 60*many, hour)
	hour.UIDs = uids[many-1:]
	series("series/rules=1/minutes=60", 60, hour)
	month := tally.Query{UIDs: uids[many-1:], From: noon, To: noon.Add(30 * 24 * time.Hour), Step: tally.StepHour}
	for h := range int64(30 * 24) {
		w := window(360*h+1, busy(uids[many-20:], nil)...)
		w.Number = h + 1
		must(b, s.SaveWindows(b.Context(), []tally.SourceWindows{of(source("month", "e"), w)}))
	}
	series("series/rules=1/hours=720", 720, month)
	b.Run("keys/versions=20/hours=24", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Keys(b.Context(), tally.Query{Domain: "api", From: noon, To: noon.Add(24 * time.Hour)})
			must(b, err)
		}
	})
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// busy is a tally of each rule, with some cells and keys.
func busy(uids []string, numbers []int) []tally.VersionTally {
	list := make([]tally.VersionTally, len(uids))
	for i, uid := range uids {
		v := counted(uid, 900)
		v.Counts[tally.CellRefused+1], v.Counts[tally.CellRefusedByOther] = 80, 20
		if len(numbers) > 0 {
			v = affected(v, 1, numbers...)
		}
		list[i] = v
	}
	return list
}

// newRules makes n rules of domain api and returns their uids.
func newRules(b *testing.B, s storage.Store, n int) []string {
	b.Helper()
	uids := make([]string, n)
	_, err := s.Commit(b.Context(), "api", func(tx rollout.Tx) (*rollout.Change, error) {
		list := make([]rules.Rule, n)
		for i := range list {
			list[i] = newRule("api", fmt.Sprint("rule-", i), tx.Revision())
			uids[i] = list[i].UID
		}
		return changeOf("api", rollout.ActionApply, list...), nil
	})
	must(b, err)
	return uids
}
