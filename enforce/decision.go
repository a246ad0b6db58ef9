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
	ReasonMalformed        Reason = "malformed"          // a value of a key is given twice
	ReasonMissingKey       Reason = "missing_key"        // a value of a key is missing, and the rule refuses that
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
	OutcomeLocalAllowed   Outcome = "local_allowed" // by the count in the process, while the store does not answer
	OutcomeLocalRefused   Outcome = "local_refused"

	OutcomeWouldAllow  Outcome = "would_allow"
	OutcomeWouldRefuse Outcome = "would_refuse"
	OutcomeUnknown     Outcome = "unknown" // the store did not answer
)

// Outcomes lists them all.
var Outcomes = []Outcome{
	OutcomeAllowed, OutcomeRefused, OutcomeRefusedByOther, OutcomeFailedOpen, OutcomeFailedClosed,
	OutcomeLocalAllowed, OutcomeLocalRefused,
	OutcomeWouldAllow, OutcomeWouldRefuse, OutcomeUnknown,
}

// VersionOutcome is an outcome with the version and the request it belongs to.
type VersionOutcome struct {
	Rule    *rules.Rule
	Version *rules.Version
	Request *rules.Request // of several descriptors, the one whose key was charged
	WhatIf  bool
	Outcome Outcome
	// Beside is, for a what-if version, what the rule's binding version made of the same key; "" where none matched.
	Beside Outcome
	// OtherRefused is whether a binding version of another rule refused.
	OtherRefused bool
}

// Decision is what the caller gets.
type Decision struct {
	Allowed bool
	// Exempt is the name of the exemption that the request meets; no rule was asked then.
	Exempt string
	// Revision of the domain that decided; 0 where the domain has no rules.
	Revision int64
	// Rule, Limit and Left describe the limit that speaks: of several refusals the one with the longest wait, on allowed
	// requests the binding limit with the fewest left. Rule is "" when no binding version matched.
	Rule  string
	Limit string
	Left  int64
	// HideHeaders: the rule that speaks, or any that refuses, tells callers nothing about limits, not even when to retry.
	HideHeaders bool
	// The rest describes a refusal.
	Reason Reason
	Status int           // of the HTTP answer
	Title  string        // of the rule; "" for the usual one
	Wait   time.Duration // until the same request passes if nothing else is spent; Never when waiting cannot help
	// Outcomes has one entry for each version and key that matched, what-if versions included.
	Outcomes []VersionOutcome
	// ExpressionsFailed is how many versions applied only because their expression could not be evaluated.
	ExpressionsFailed int
}

// Recorder counts what happened. Record is called once for each decision, on the request's goroutine: it must neither
// block nor keep d.
type Recorder interface {
	Record(domain string, d *Decision)
}
