package cli

import (
	"bufio"
	"errors"
	"strings"
	"testing"
)

func TestSparkShowsTheHighestAsFullAndNothingAsADot(t *testing.T) {
	t.Parallel()
	many := make([]int, 100)
	many[99] = 5
	for want, counts := range map[string][]int{
		"":                            nil,
		"··":                          {0, 0},
		"▁·█":                         {1, 0, 100},
		"▄█":                          {1, 2},
		strings.Repeat("·", 24) + "█": many,
	} {
		if got := spark(counts); got != want {
			t.Errorf("%v: %q, want %q", counts, got, want)
		}
	}
}

func TestSharesOfLittleAreNotNothing(t *testing.T) {
	t.Parallel()
	for want, parts := range map[string][2]int{"0%": {0, 0}, "<0.1%": {1, 1001}, "0.1%": {1, 1000}, "5.4%": {270, 5000}, "100.0%": {3, 3}} {
		if got := share(parts[0], parts[1]); got != want {
			t.Errorf("%v: %s, want %s", parts, got, want)
		}
	}
}

func TestTheBarIsDrawnOnATerminalOnlyAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	var screen strings.Builder
	log := &openedLog{name: "access.log", size: 1000, count: countingReader{r: strings.NewReader(strings.Repeat("x", 500))}}
	bar := newLogProgress(&screen, true, log)
	_, _ = log.count.Read(make([]byte, 500))
	if got, want := screen.String(), "\rreading access.log  ▕████████████░░░░░░░░░░░░▏ 50%\x1b[K"; got != want {
		t.Errorf("the bar is %q, want %q", got, want)
	}
	findings := lineFindings{w: bufio.NewWriter(&screen), name: "access.log", bar: bar}
	findings.malformed(7, errors.New("why"))
	bar.end()
	if !strings.HasSuffix(screen.String(), "\r\x1b[Kaccess.log:7: malformed: why\n") {
		t.Errorf("the screen ends with %q", screen.String())
	}

	var pipe strings.Builder
	log = &openedLog{name: "access.log", count: countingReader{r: strings.NewReader("x")}}
	bar = newLogProgress(&pipe, false, log)
	_, _ = log.count.Read(make([]byte, 1))
	bar.end()
	if pipe.Len() > 0 {
		t.Errorf("a pipe gets %q", pipe.String())
	}
	if got := progressText("x", 1_500_000, 0); got != "reading x  1.5 MB" {
		t.Errorf("without a size: %q", got)
	}
}
