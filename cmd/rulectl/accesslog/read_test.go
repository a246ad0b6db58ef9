package accesslog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/rulectl/accesslog"
)

// second is a line so many seconds after ten o'clock.
func second(n int) string {
	at := time.Date(2015, 5, 17, 10, 0, n, 0, time.UTC).Format("02/Jan/2006:15:04:05 -0700")
	return `192.0.2.1 - - [` + at + `] "GET / HTTP/1.1" 200 1 "-" "-"` + "\n"
}

// read returns the numbers of the lines in the order in which they were handed on.
func read(t *testing.T, log string, window time.Duration) (order []int, counts accesslog.Counts, malformed []int, err error) {
	t.Helper()
	o := accesslog.Options{
		Parse: accesslog.ParseCombined, SortWindow: window,
		Malformed: func(line int, _ error) { malformed = append(malformed, line) },
	}
	counts, err = accesslog.Read(t.Context(), strings.NewReader(log), o, func(e *accesslog.Entry) error {
		order = append(order, e.Line)
		return nil
	})
	return order, counts, malformed, err
}

func TestEntriesComeInTheOrderOfTimeAndTiesByPosition(t *testing.T) {
	t.Parallel()
	log := second(5) + second(7) + second(5) + second(2) + second(7) + second(12)
	order, counts, _, err := read(t, log, 5*time.Second)
	if want := []int{4, 1, 3, 2, 5, 6}; !slices.Equal(order, want) || err != nil {
		t.Errorf("order %v, error %v; want %v", order, err, want)
	}
	if want := (accesslog.Counts{Lines: 6, OutOfOrder: 2}); counts != want {
		t.Errorf("counts %+v, want %+v", counts, want)
	}
}

func TestALineLaterThanTheSortWindowAllowsIsNamed(t *testing.T) {
	t.Parallel()
	log := second(0) + "\n" + second(100) + second(40)
	if _, _, _, err := read(t, log, time.Minute); err != nil {
		t.Errorf("a line as late as the window allows is refused: %v", err)
	}
	_, _, _, err := read(t, log+second(39), time.Minute)
	want := &accesslog.LateError{Line: 5, Behind: 61 * time.Second, Window: time.Minute}
	var late *accesslog.LateError
	if !errors.As(err, &late) || *late != *want {
		t.Errorf("error %v, want %v", err, want)
	}
	if _, _, _, err := read(t, second(1)+second(1)+second(0), 0); !errors.As(err, &late) || late.Line != 3 {
		t.Errorf("error %v, want one that names line 3", err)
	}
}

func TestLinesOfEveryKindAreCounted(t *testing.T) {
	t.Parallel()
	log := "\ufeff" + second(3) + // the mark is no part of the line
		"\r\n\n" + // empty
		strings.ReplaceAll(second(2), "\n", "\r\n") +
		"junk\n" +
		"\x00\xff\xfe\n" +
		strings.Repeat("x", 3<<20) + "\n" + // longer than what is held
		strings.Replace(second(2), "GET /", "GET /"+strings.Repeat("y", 200<<10), 1) +
		" \n" +
		strings.TrimSuffix(second(4), "\n") // without an end
	order, counts, malformed, err := read(t, log, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{4, 8, 1, 10}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if want := (accesslog.Counts{Lines: 8, Malformed: 4, OutOfOrder: 1}); counts != want {
		t.Errorf("counts %+v, want %+v", counts, want)
	}
	if want := []int{5, 6, 7, 9}; !slices.Equal(malformed, want) {
		t.Errorf("malformed %v, want %v", malformed, want)
	}
}

// endless is a log of many seconds, each line made when it is read.
type endless struct{ lines, made, inMemory, most int }

func (e *endless) Read(p []byte) (int, error) {
	if e.made == e.lines {
		return 0, io.EOF
	}
	n := copy(p, second(e.made)) // the reader's buffer holds far more than a line
	e.made++
	e.inMemory++
	e.most = max(e.most, e.inMemory)
	return n, nil
}

func TestMemoryFollowsTheSortWindowNotTheLog(t *testing.T) {
	t.Parallel()
	log := &endless{lines: 20_000}
	o := accesslog.Options{Parse: accesslog.ParseCombined, SortWindow: 30 * time.Second}
	_, err := accesslog.Read(t.Context(), log, o, func(*accesslog.Entry) error {
		log.inMemory--
		return nil
	})
	if err != nil || log.inMemory != 0 || log.most > 100 {
		t.Errorf("error %v, %d entries left, at most %d at once; want none left and at most 100", err, log.inMemory, log.most)
	}
}

func TestAnyShuffleWithinTheWindowGivesTheSameOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		times := make([]int, 200)
		for i := range times {
			times[i] = i + random.IntN(20)
		}
		var log strings.Builder
		positions := make([]int, len(times))
		for i, at := range times {
			log.WriteString(second(at))
			positions[i] = i + 1
		}
		slices.SortStableFunc(positions, func(a, b int) int { return times[a-1] - times[b-1] })
		order, _, _, err := read(t, log.String(), 20*time.Second)
		if diff := cmp.Diff(positions, order); err != nil || diff != "" {
			t.Fatalf("error %v; -want +got:\n%s", err, diff)
		}
	}
}

func TestReadingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := accesslog.Options{Parse: accesslog.ParseCombined}
	_, err := accesslog.Read(ctx, strings.NewReader(strings.Repeat(second(1), 3000)), o, func(*accesslog.Entry) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// FuzzLines holds both parsers to what the rest relies on: no panic; an entry's time is one a limiter can count at; its
// path is normal; what a line says does not depend on how it ends; and one line is one line.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		strings.TrimSuffix(second(3), "\n"), wholeJSON, combined("GET http://x:1/%2e%2e//a?b HTTP/1.1", `\"\x41`),
		combined("-", "-"), `::1%eth0 - a [b [17/May/2015:10:05:03 +0000] "GET * HTTP/2" 200 - "" ""`,
		`{"time":1e3,"method":"M","path":"*","ip":"::","headers":{"host":["A."]},"attrs":{"a":1}}`, "\x00\xff[\"\\",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for name, parse := range accesslog.Formats {
			e, err := parse(line)
			if err != nil {
				continue
			}
			check(t, name, &e)
			if again, err := parse(line); err != nil || !cmp.Equal(e.Request, again.Request, equal) {
				t.Errorf("%s: the same line gives another request", name)
			}
		}
		single := strings.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return -1
			}
			return r
		}, line)
		for _, end := range []string{"", "\n", "\r\n"} {
			var counts accesslog.Counts
			counts, err := accesslog.Read(t.Context(), strings.NewReader(single+end),
				accesslog.Options{Parse: accesslog.ParseCombined}, func(*accesslog.Entry) error { return nil })
			if want := min(1, len(strings.TrimPrefix(single, "\ufeff"))); err != nil || counts.Lines != want {
				t.Errorf("%d lines, error %v; want %d", counts.Lines, err, want)
			}
		}
	})
}

func check(t *testing.T, name string, e *accesslog.Entry) {
	t.Helper()
	if e.At < 0 || e.At >= 1<<53 {
		t.Errorf("%s: no limiter can count at %d", name, e.At)
	}
	if (e.Request == nil) != (e.Invalid != nil) {
		t.Errorf("%s: request %v, invalid %v", name, e.Request, e.Invalid)
	}
	r := e.Request
	if r == nil {
		return
	}
	if !strings.HasPrefix(r.Path, "/") || strings.Contains(r.Path, "//") || strings.Contains(r.Path+"/", "/../") {
		t.Errorf("%s: the path %q is not normal", name, r.Path)
	}
	if r.Method == "" || strings.ContainsAny(r.Method, " \"") || r.IP.Zone() != "" || r.IP.Is4In6() || r.Hits != 1 {
		t.Errorf("%s: request %s", name, fmt.Sprintf("%+v", r))
	}
}
