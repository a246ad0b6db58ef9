package ruletest

import (
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// A Test is one document of a test file.
type Test struct {
	Name string // the file, and #2 and so on for further documents
	File string

	sets   []rulefile.RuleSet
	shadow map[string]bool // rules that are what-if only, as "domain/name"
	steps  []step
}

type step struct {
	place       rulefile.Place
	at          time.Duration // since the start; -1 goes on at the instant of the request before
	repeat      int
	every       time.Duration
	request     request
	expect      expectation
	wouldRefuse []string // "domain/name" in order, of the last request; nil is not checked
}

// request is a call: one request, or several descriptors.
type request struct {
	summary string // for people: POST /v1/login
	calls   []*rules.Request
	invalid bool // a sidecar answers 400 before any rule is asked
}

// expectation says what the decisions of a step must be. Without each and count nothing is checked.
type expectation struct {
	each  [][]check // one for all repeats, or one for each
	count []check   // how many were allowed and refused
}

// check is one field of a decision with the text it must have.
type check struct{ field, want string }

// The fields of a decision that can be checked.
const (
	fieldDecision   = "decision"
	fieldRule       = "rule"
	fieldLimit      = "limit"
	fieldRetryAfter = "retryAfter"
	fieldRemaining  = "remaining"
	fieldStatus     = "status"
	fieldReason     = "reason"
)

var fields = []string{fieldDecision, fieldRule, fieldLimit, fieldRetryAfter, fieldRemaining, fieldStatus, fieldReason}

// The words of a decision; none stands for a field that has no value.
const (
	allowed = "allowed"
	refused = "refused"
	none    = "none"
)
