package accesslog

import (
	"context"
	"errors"
	"io"
	"time"
)

// A Parser reads one line. It must not fail for another reason than the line.
type Parser func(line string) (Entry, error)

// Formats are the parsers by the names of their formats.
var Formats = map[string]Parser{"combined": ParseCombined, "json": ParseJSON}

// Options say how a log is read.
type Options struct {
	Parse Parser
	// SortWindow is how much earlier than a line before it a line may be; 0 demands that the log is in order.
	SortWindow time.Duration
	// Malformed is told of each malformed line; nil tells nobody.
	Malformed func(line int, why error)
	// Unseen is told of each well-formed line that no rule sees, and why; nil tells nobody.
	Unseen func(line int, why error)
}

// Counts say what a log was made of.
type Counts struct {
	Lines      int // that are not empty, malformed ones included
	Malformed  int
	OutOfOrder int // earlier than the well-formed line before
	Unseen     int // well-formed, but answered with 400 before any rule is asked
}

// checkEach is after how many lines a cancelled context is noticed.
const checkEach = 1024

// Read hands the well-formed entries on in the order of their time, ties by position. It ends early with the error that
// each returns, with a [LateError], or when ctx ends. The counts hold until there.
func Read(ctx context.Context, r io.Reader, o Options, each func(*Entry) error) (Counts, error) {
	in := reading{Options: o, sorter: newSorter(o.SortWindow, each), before: -1}
	l := newLines(r)
	for {
		line, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return in.counts, in.sorter.finish()
		case errors.Is(err, errLong):
			in.malformed(l.number, err)
			continue
		case err != nil:
			return in.counts, err
		case len(line) == 0:
			continue
		}
		if l.number%checkEach == 0 && ctx.Err() != nil {
			return in.counts, ctx.Err()
		}
		if err := in.take(l.number, string(line)); err != nil {
			return in.counts, err
		}
	}
}

type reading struct {
	Options
	sorter *sorter
	before int64 // the time of the well-formed line before
	counts Counts
}

func (in *reading) take(number int, line string) error {
	e, err := in.Parse(line)
	if err != nil {
		in.malformed(number, err)
		return nil
	}
	in.counts.Lines++
	if e.At < in.before {
		in.counts.OutOfOrder++
	}
	in.before, e.Line = e.At, number
	if e.Request == nil {
		in.counts.Unseen++
		if in.Unseen != nil {
			in.Unseen(number, e.Invalid)
		}
	}
	return in.sorter.add(&e)
}

func (in *reading) malformed(number int, why error) {
	in.counts.Lines++
	in.counts.Malformed++
	if in.Malformed != nil {
		in.Malformed(number, why)
	}
}
