package enforce

import (
	"crypto/rand"
	"net/http"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// Reason says why a request is refused.
type Reason string

// The reasons.
const (
	ReasonOverLimit        Reason = "over_limit"
	ReasonCostExceedsLimit Reason = "cost_exceeds_limit" // more than the limit can ever hold
	ReasonStoreUnavailable Reason = "store_unavailable"  // the store did not answer, and a rule fails closed
	ReasonMalformed        Reason = "malformed"          // a value of a key is given twice, or a door cannot read the request
	ReasonMissingKey       Reason = "missing_key"        // a value of a key is missing, and the rule refuses that
)

// storeRetry is what a caller is told to wait while the store is away. Nobody knows how long that will be; one second
// keeps callers from retrying at once, and from staying away long after it is back.
const storeRetry = time.Second

// VersionOutcome is an outcome with the version and the key it belongs to.
type VersionOutcome struct {
	Rule    *rules.Rule
	Version *rules.Version
	Request *rules.Request // of several descriptors, the one whose key was charged
	// Key names the key, as [tally.KeyOf] does. Values are what it is of: what callers sent, to be shown by [tally.Label] only.
	Key     tally.KeyID
	Values  rules.Key
	WhatIf  bool
	Outcome tally.Outcome
	// Limit is the position in the spec of the limit by which the version refuses, or would: of several the one that speaks.
	// It is tally.NoLimit where none does.
	Limit int
	// Beside is, for a what-if version, what the rule's binding version said of the same request; BesideNone where none matched.
	Beside tally.Beside
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
	// Rule, Limit, Rate and Left describe the limit that speaks: of several refusals the one with the longest wait, on
	// allowed requests the binding limit with the fewest left. Rule is "" when no binding version matched, Limit where the
	// rule has only one. Rate has no window where no counter was asked.
	Rule    string
	Version int64 // of the rule, that which binds here
	Limit   string
	Rate    rules.Rate // the numbers for this request: of its plan, or of an override
	Left    int64
	// Wait is, of a refusal, the time until the same request passes if nothing else is spent; Never when waiting cannot
	// help. When allowed it is the time until more is left; 0 when all is.
	Wait time.Duration
	// Headers are those by which the rule that speaks tells callers about limits. HideHeaders: it, or any that refuses,
	// tells them nothing, not even when to retry.
	Headers     rules.Headers
	HideHeaders bool
	// The rest describes a refusal.
	Reason Reason
	Status int    // of the HTTP answer
	Title  string // of the rule; "" for the usual one
	Detail string // what is wrong with a request that a door could not read
	// Violated names each limit that refuses, as [PolicyName] does.
	Violated []string
	// Reference is random: by it, support finds the refusal that a customer shows.
	Reference string
	// Outcomes has one entry for each version and key that matched, what-if versions included.
	Outcomes []VersionOutcome
	// ExpressionsFailed is how many versions applied only because their expression could not be evaluated.
	ExpressionsFailed int
}

// Label is what the request counts as: allowed, refused, malformed, exempt from all rules, or unmatched by any.
func (d *Decision) Label() string {
	switch {
	case d.Exempt != "":
		return "exempt"
	case d.Reason == ReasonMalformed:
		return "malformed"
	case !d.Allowed:
		return "refused"
	case len(d.Outcomes) == 0:
		return "unmatched"
	}
	return "allowed"
}

// PolicyName is what callers know a limit by: the rule, and the limit where the rule has several.
func PolicyName(rule, limit string) string {
	if limit == "" {
		return rule
	}
	return rule + "/" + limit
}

// newReference has 65 random bits: enough to tell refusals apart, and short enough to read out.
func newReference() string { return rand.Text()[:13] }

// Malformed counts a request that a door cannot read, and returns what its caller gets. The detail says what is wrong, to
// the caller. The domain is one that the door serves, never a name that the caller chose.
func (e *Engine) Malformed(domain, detail string) Decision {
	d := Decision{Reason: ReasonMalformed, Status: http.StatusBadRequest, Wait: Never, Detail: detail, Reference: newReference()}
	e.recorder.Record(domain, &d)
	return d
}

// Recorder counts what happened. Record is called once for each decision, on the request's goroutine: it must neither
// block nor keep d.
type Recorder interface {
	Record(domain string, d *Decision)
}
