package alert

import (
	"context"
	"time"

	"github.com/headgate/headgate/rules/tally/spike"
)

// Keep is how long alerts are kept after they were resolved.
const Keep = 90 * 24 * time.Hour

// Store keeps detectors and alerts. It is safe for concurrent use.
type Store interface {
	// LastRound returns the last round that was saved, with all detectors and the alerts that fire. Before the first one its
	// times are zero.
	LastRound(ctx context.Context) (Round, error)
	// SaveRound stores what a round changed, in one transaction, when the last round is still the one at the time base.
	// Otherwise it stores nothing, and returns [rules.ErrConflict]. Alerts that were resolved longer ago than Keep are removed.
	SaveRound(ctx context.Context, base time.Time, r Round) error
	// Alerts returns the newest first, each with what was delivered of it.
	Alerts(ctx context.Context, q Query) ([]Alert, error)
	// MarkDelivered notes what was delivered; what is noted already stays.
	MarkDelivered(ctx context.Context, list []Delivery) error
}

// Round is one look at all rules.
type Round struct {
	At      time.Time // UTC, a multiple of spike.Every
	Settled time.Time // up to then what was counted is part of the baselines
	Watches []Watch
	Forget  []VersionID // watches that know nothing any more; only when it is saved
	Alerts  []Alert
}

// VersionID is a version of a rule.
type VersionID struct {
	UID     string
	Version int64
}

// Watch are the detectors of one rule version.
type Watch struct {
	VersionID
	Detectors
}

// Detectors are what watches a version.
type Detectors struct {
	Refused spike.Detector `json:"refused"`
	Would   spike.Detector `json:"would"`
}

// of returns the detector of a kind.
func (d *Detectors) of(k Kind) *spike.Detector {
	if k == WouldRefuse {
		return &d.Would
	}
	return &d.Refused
}

// active reports that something may change without traffic.
func (d *Detectors) active() bool {
	return d.Refused.Streak > 0 || d.Would.Streak > 0 || !d.Refused.Since.IsZero() || !d.Would.Since.IsZero()
}

// Query asks for alerts that fire, and for those that were resolved after a time.
type Query struct {
	Domain        string // "": all
	ResolvedAfter time.Time
	FiringOnly    bool
	Limit         int // at most that many
}
