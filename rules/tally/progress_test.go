package tally_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules/tally"
)

var start = time.Date(2026, 3, 29, 2, 30, 0, 0, time.UTC)

// windows are of the numbers, each ten seconds long, from start on.
func windows(numbers ...int64) []tally.Window {
	list := make([]tally.Window, len(numbers))
	for i, n := range numbers {
		at := start.Add(time.Duration(n-1) * tally.Span)
		list[i] = tally.Window{Number: n, Start: at, End: at.Add(tally.Span)}
	}
	return list
}

func TestProgressSkipsWhatIsStoredAndNamesGaps(t *testing.T) {
	t.Parallel()
	source := tally.Source{Node: "n1", Epoch: "e1"}
	gap := func(from, to, windows int64) tally.Missing {
		at := func(n int64) time.Time { return start.Add(time.Duration(n) * tally.Span) }
		return tally.Missing{Source: source, From: at(from), To: at(to), Windows: windows}
	}
	p := tally.Progress{Source: source}
	for _, c := range []struct {
		send, fresh []int64
		gaps        []tally.Missing
	}{
		{[]int64{3}, []int64{3}, []tally.Missing{gap(0, 2, 2)}},
		{[]int64{1, 2, 3}, nil, nil},
		{[]int64{2, 3, 4, 4, 5}, []int64{4, 5}, nil},
		{[]int64{5, 8, 10}, []int64{8, 10}, []tally.Missing{gap(5, 7, 2), gap(8, 9, 1)}},
		{nil, nil, nil},
		{[]int64{0, 10}, nil, nil},
	} {
		fresh, gaps := p.Take(windows(c.send...))
		if diff := cmp.Diff(windows(c.fresh...), append([]tally.Window{}, fresh...), cmp.AllowUnexported(tally.Distinct{})); diff != "" {
			t.Errorf("send %v (-want +got):\n%s", c.send, diff)
		}
		if diff := cmp.Diff(c.gaps, gaps); diff != "" {
			t.Errorf("gaps of %v (-want +got):\n%s", c.send, diff)
		}
	}
	want := tally.Progress{Source: source, Stored: 10, Began: windows(3)[0].Start, Until: windows(10)[0].End}
	if p != want {
		t.Errorf("progress %+v, want %+v", p, want)
	}
}

// However often and in whatever pieces a source is sent, from what is stored on, each window is taken once.
func TestProgressTakesEachWindowOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p tally.Progress
		var taken []int64
		for range rapid.IntRange(0, 30).Draw(t, "sends") {
			first := rapid.Int64Range(1, p.Stored+1).Draw(t, "first")
			var numbers []int64
			for n := range rapid.Int64Range(0, 9).Draw(t, "windows") {
				numbers = append(numbers, first+n)
			}
			fresh, gaps := p.Take(windows(numbers...))
			if gaps != nil {
				t.Fatalf("gaps %v without any", gaps)
			}
			for i := range fresh {
				taken = append(taken, fresh[i].Number)
			}
		}
		want := []int64(nil)
		for n := range p.Stored {
			want = append(want, n+1)
		}
		if !slices.Equal(taken, want) {
			t.Fatalf("took %v, want %v", taken, want)
		}
	})
}

func TestGapOfAnAbsurdNumberIsBounded(t *testing.T) {
	t.Parallel()
	var p tally.Progress
	_, gaps := p.Take([]tally.Window{{Number: 1 << 62, Start: start, End: start}})
	if len(gaps) != 1 || gaps[0].From != start.Add(-366*24*time.Hour) {
		t.Errorf("gaps %v, want one that began a year before at the earliest", gaps)
	}
}

func TestSourceThatLeftIsMissingUntilTheNext(t *testing.T) {
	t.Parallel()
	p := tally.Progress{Until: start}
	if m := p.Left(start.Add(time.Minute)); m.From != start || m.To != start.Add(time.Minute) || m.Windows != 0 {
		t.Errorf("left %+v, want a minute of which nobody knows", m)
	}
	if m := p.Left(start.Add(-time.Minute)); m.To != start {
		t.Errorf("left %+v, want that it ends no sooner than it begins", m)
	}
}

func TestOnlyTotalsOfTheNextWindowShow(t *testing.T) {
	t.Parallel()
	p := tally.Progress{Stored: 4}
	for number, want := range map[int64]bool{3: false, 4: false, 5: true, 6: false} {
		if got := p.Shows(number); got != want {
			t.Errorf("after 4 stored, totals of %d show: %v, want %v", number, got, want)
		}
	}
	p.Stopped = true
	if p.Shows(5) {
		t.Error("totals of a source that was stopped show")
	}
}
