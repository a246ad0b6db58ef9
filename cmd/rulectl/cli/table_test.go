package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTableCountsWhatATerminalShows(t *testing.T) {
	t.Parallel()
	got := renderTable([]string{"NAME", "N"}, [][]string{{"日本語", "1"}, {"e\u0301te\u0301", "22"}, {"🚦", ""}, {"plain\x1b[31m", "3"}}, "N")
	want := "NAME          N\n日本語        1\ne\u0301te\u0301          22\n🚦            -\nplain\ufffd[31m    3\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTableFitsItsRoom(t *testing.T) {
	t.Parallel()
	table := &table{header: []string{"NAME", "LIMIT", "REVISION", "MESSAGE"}, right: []string{"REVISION"}, texts: []string{"LIMIT", "MESSAGE"}, room: 60}
	message := strings.Repeat("全部 why it was done ", 9)
	got := table.render([][]string{{"public-api/login", "burst 20/s, sustained 300/min", "7", message}}, func(int) []string { return []string{message} })
	want := "NAME               LIMIT           REVISION   MESSAGE\n" +
		"public-api/login   burst 20/s, …          7   全部 why it w…\n" +
		"   " + strings.TrimSpace(message) + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for line := range strings.Lines(got) {
		if n := columns(strings.TrimSpace(line)); n > 60 && !strings.HasPrefix(line, between) {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	// Where it cannot fit, nothing is cut.
	table.room, table.widths = 20, nil
	if got := table.render([][]string{{"n", "1/s", "12345", message}}, nil); strings.Contains(got, "…") {
		t.Errorf("got %q", got)
	}
}

func TestLaterRowsStandBelowTheEarlier(t *testing.T) {
	t.Parallel()
	table := &table{header: []string{"NAME", "STAGE"}}
	got := table.render([][]string{{"public-api/login", "shadow"}}, nil) + table.render([][]string{{"a/x", "stable"}}, nil)
	if want := "NAME               STAGE\npublic-api/login   shadow\na/x                stable\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCellsAreSortedAsPeopleDo(t *testing.T) {
	t.Parallel()
	for _, want := range [][]string{
		{"-", "7", "30", "1000000000000000000000"},
		{"v9", "v9 in shadow", "v10"},
		{"5s ago", "2m12s ago", "3h ago", "2d ago"},
		{"a/rule-2", "a/rule-10", "b/rule-1"},
		{"2026-11-30 09:00:00Z", "2026-11-30 10:00:00Z"},
	} {
		got := slices.Clone(want)
		slices.Reverse(got)
		slices.SortStableFunc(got, compareCells)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
