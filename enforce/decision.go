package enforce

import (
	"time"

	"github.com/headgate/headgate/rules"
)

// Reason says why a request is refused.
type Reason string

// The reasons.
const (
	ReasonOverLimit        Reason = "over_limit"
	ReasonCostExceedsLimit Reason = "cost_exceeds_limit" // more than the limit can ever hold
	ReasonStoreUnavailable Reason = "store_unavailable"  // the store did not answer, and a rule fails closed
)

// storeRetry is what a caller is told to wait while the store is away. Nobody knows how long that will be; one second
// keeps callers from retrying at once, and from staying away long after it is back.
const storeRetry = time.Second

// Outcome is what one version of a rule made of one request.
type Outcome string

// The outcomes. A binding version has exactly one of the first group, a what-if version exactly one of the second.
const (
	OutcomeAllowed        Outcome = "allowed"
	OutcomeRefused        Outcome = "refused"          // by this version
	OutcomeRefusedByOther Outcome = "refused_by_other" // this version allowed, another rule refused
	OutcomeFailedOpen     Outcome = "failed_open"
	OutcomeFailedClosed   Outcome = "failed_closed"

	OutcomeWouldAllow  Outcome = "would_allow"
	OutcomeWouldRefuse Outcome = "would_refuse"
	OutcomeUnknown     Outcome = "unknown" // the store did not answer
)

// Outcomes lists them all.
var Outcomes = []Outcome{
	OutcomeAllowed, OutcomeRefused, OutcomeRefusedByOther, OutcomeFailedOpen, OutcomeFailedClosed,
	OutcomeWouldAllow, OutcomeWouldRefuse, OutcomeUnknown,
}

// VersionOutcome is an outcome with the version it belongs to.
type VersionOutcome struct {
	Rule    *rules.Rule
	Version int64
	Outcome Outcome
}

// Decision is what the caller gets.
type Decision struct {
	Allowed bool
	// Revision of the domain that decided; 0 where the domain has no rules.
	Revision int64
	// Rule, Limit and Left describe the limit that speaks: of several refusals the one with the longest wait, on allowed
	// requests the binding limit with the fewest left. Rule is "" when no binding version matched.
	Rule  string
	Limit string
	Left  int64
	// The rest describes a refusal.
	Reason Reason
	Status int           // of the HTTP answer
	Wait   time.Duration // until the same request passes if nothing else is spent; Never when waiting cannot help
	// Outcomes has one entry for each version that matched, what-if versions included.
	Outcomes []VersionOutcome
}

// Recorder counts what happened. Record is called once for each decision, on the request's goroutine: it must neither
// block nor keep d.
type Recorder interface {
	Record(domain string, d *Decision)
}
