package tally

import (
	"context"
	"time"
)

// Store keeps what the nodes counted. It is safe for concurrent use.
type Store interface {
	// SaveWindows stores closed windows, all in one transaction: after an error they may be stored or not, and are sent again.
	// What is stored already is skipped, whoever sends it: so a window counts once. Where the numbers leave a gap, what is
	// missing is noted: a source is sent from the window after the one that [Store.Stored] names, in the order of the numbers.
	SaveWindows(ctx context.Context, batch []SourceWindows) error
	// SaveOpen stores the running totals of open windows, each in place of the one before of the same node. One that is not
	// the next of its source (see [Progress.Shows]), or that is older than what is there, is skipped.
	SaveOpen(ctx context.Context, batch []SourceWindows) error
	// Stored returns the number of the source's last stored window; 0 when there is none.
	Stored(ctx context.Context, source Source) (int64, error)
	// Births returns what can be believed of rules, by uid: unknown ones are not there.
	Births(ctx context.Context, uids []string) (map[string]Birth, error)

	// Series returns the counts of rule versions in steps of time, in the order of (UID, Version, Start). Steps without
	// counts are not there, nor is what was counted of rules that do not exist. Open windows are part of the step they began
	// in: closed and open ones are seen at one instant, so that each window is there once. The totals of a node that says
	// nothing for [OpenFor] are left out until the window is closed.
	Series(ctx context.Context, q Query) ([]Point, error)
	// DomainSeries returns the counts of domains, in the order of (Domain, Start). Of the query, UIDs are not looked at.
	DomainSeries(ctx context.Context, q Query) ([]DomainPoint, error)
	// Keys returns the keys that were hit in the minutes of the query, by version. Of the query, Step is not looked at.
	Keys(ctx context.Context, q Query) ([]VersionKeys, error)
	// Rates returns how often keys called in the minutes of the query, in the order of (UID, Version, Start). They come when a
	// minute is over, and are kept for [KeepRates]. Of the query, Step is not looked at.
	Rates(ctx context.Context, q Query) ([]VersionRates, error)
	// Refusals returns the newest first.
	Refusals(ctx context.Context, q RefusalQuery) ([]Refusal, error)
	// Missing returns which windows will never come, of those that touch the time, the newest first: those that a source's
	// numbers skip, and what a node may not have lived to send: when it has begun another epoch, or was not seen for
	// [SilentFor]. One that is only cut off sends it when it is back.
	Missing(ctx context.Context, from, to time.Time) ([]Missing, error)

	// Sources returns how far each node's counts are stored, of its last source, in the order of the nodes.
	Sources(ctx context.Context) ([]Progress, error)

	// Prune removes what is older than it is kept, see [Keep].
	Prune(ctx context.Context, now time.Time) error
}

// OpenFor is how long after their end the totals of an open window are shown. They are sent every second.
const OpenFor = time.Minute

// SilentFor is how long nobody has to see a node for what it has not sent to count as missing.
const SilentFor = time.Minute

// MaxRefusals is how many refusals are kept of a rule, those stored last.
const MaxRefusals = 10_000

// Step is the length of the steps in which counts are kept. A window is in all of them, whole, by its start.
type Step time.Duration

// The steps.
const (
	StepWindow = Step(Span)
	StepMinute = Step(time.Minute)
	StepHour   = Step(time.Hour)
)

// Steps returns them all.
func Steps() []Step { return []Step{StepWindow, StepMinute, StepHour} }

// Keep is how long counts of a step are kept. Keys are kept as long as minutes, refusals too; rates, for [KeepRates]; what is known of sources, and
// what is missing, as long as hours.
func (s Step) Keep() time.Duration {
	switch s {
	case StepWindow:
		return 6 * time.Hour
	case StepMinute:
		return 8 * 24 * time.Hour
	}
	return 400 * 24 * time.Hour
}

// SourceWindows are windows of one source, their times by the control plane's clock.
type SourceWindows struct {
	Source
	Windows []Window
}

// Birth is what is known of a rule and its versions.
type Birth struct {
	Domain, Rule string
	// Revisions are those that brought the versions: version n is Revisions[n-1]; 0: there is none of that number.
	Revisions []int64
}

// Query asks for counts from a time until before another.
type Query struct {
	Domain   string   // "": all
	UIDs     []string // of rules; nil: all of the domain
	From, To time.Time
	Step     Step
}

// Point is what was counted of one rule version in one step.
type Point struct {
	Domain, UID string
	Version     int64
	Start       time.Time
	Counts      Counts
}

// DomainPoint is what was counted of one domain in one step.
type DomainPoint struct {
	Domain string
	Start  time.Time
	Counts DomainCounts
}

// VersionKeys are the keys that one rule version went against.
type VersionKeys struct {
	Domain, UID string
	Version     int64
	Keys        TopKeys
	Distinct    Distinct
	Seen        map[KeyID]Seen // of those in Keys
}

// Seen is when the version went against a key first and last in the time of a query: when the steps begin whose lists name
// it. They are minutes; of the whole hours in the time, a store may know only the hour.
type Seen struct{ First, Last time.Time }

// See notes the list of a step, whose keys are merged into Keys before: of others nothing is noted.
func (v *VersionKeys) See(list []KeyCount, start time.Time) {
	if v.Seen == nil {
		v.Seen = map[KeyID]Seen{}
	}
	for i := range list {
		key := list[i].Key
		if _, known := v.Keys.find(key); !known {
			continue
		}
		seen, before := v.Seen[key]
		if !before || start.Before(seen.First) {
			seen.First = start
		}
		if start.After(seen.Last) {
			seen.Last = start
		}
		v.Seen[key] = seen
	}
}

// RefusalQuery asks for refusals.
type RefusalQuery struct {
	Domain    string
	UID       string // of a rule; "": all of the domain
	Key       KeyID  // the zero KeyID: all
	Reference string // "": all
	From, To  time.Time
	Limit     int // at most that many
}

// Missing is a span of which a node's counts will never come: it was killed, or the database lost them.
type Missing struct {
	Source
	// From is when the first window that is missing began, and To when the last one ended at the latest; by the control
	// plane's clock. Of a gap before all windows that are stored, From is a guess.
	From, To time.Time
	Windows  int64 // how many; 0: nobody knows
}
