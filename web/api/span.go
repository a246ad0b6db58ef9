package api

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// stepLengths are the steps in which counts are told, each a multiple of one in which they are kept.
var stepLengths = []time.Duration{
	tally.Span, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day,
}

const day = 24 * time.Hour

// base is the longest step in which counts are kept that a length is a multiple of.
func base(length time.Duration) tally.Step {
	switch {
	case length%time.Hour == 0:
		return tally.StepHour
	case length%time.Minute == 0:
		return tally.StepMinute
	}
	return tally.StepWindow
}

// span is a time that is looked at, in steps; from is where one begins.
type span struct {
	from, to time.Time
	step     time.Duration
}

// newSpan chooses the steps: at least so long, at most so many and a part, and kept so long.
func newSpan(from, to, now time.Time, least time.Duration, most int) (span, error) {
	oldest := now.Add(-tally.StepHour.Keep())
	if from.Before(oldest) {
		from = oldest
	}
	if to.After(now) {
		to = now
	}
	if !from.Before(to) {
		return span{}, fmt.Errorf("%w: from %s to %s is no time of which counts are kept: of the last 400 days they are",
			rules.ErrInvalid, from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	sp := span{from: from, to: to}
	for _, sp.step = range stepLengths {
		sp.from = from.Truncate(sp.step)
		in := base(sp.step)
		kept := in == tally.StepHour || !sp.from.Before(now.Add(-in.Keep()))
		if kept && sp.step >= least && int64(to.Sub(from)/sp.step) <= int64(most) {
			break
		}
	}
	// What is kept is looked at whole.
	if end := to.Truncate(time.Duration(base(sp.step))); end.Before(to) {
		sp.to = end.Add(time.Duration(base(sp.step)))
	}
	if sp.to.After(now) {
		sp.to = now
	}
	return sp, nil
}

// keySpan is a time in which keys and refusals are looked at.
func keySpan(since *durationpb.Duration, otherwise time.Duration, now time.Time) (span, error) {
	length := otherwise
	if since != nil {
		length = since.AsDuration()
	}
	if keep := tally.StepMinute.Keep(); length <= 0 || length > keep {
		return span{}, fmt.Errorf("%w: since is %s: it is more than 0, and at most the %d days for which keys and refusals are kept",
			rules.ErrInvalid, length, keep/day)
	}
	step := time.Minute
	if length > day {
		step = time.Hour
	}
	return span{from: now.Add(-length).Truncate(step), to: now, step: step}, nil
}

func (sp *span) query(domain string, uids []string) tally.Query {
	return tally.Query{Domain: domain, UIDs: uids, From: sp.from, To: sp.to, Step: base(sp.step)}
}

// lengths are how many steps that are kept there are in it.
func (sp *span) lengths() int {
	return int(sp.to.Sub(sp.from)/time.Duration(base(sp.step))) + 1
}

// orZero is the zero time for a timestamp that is absent.
func orZero(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
