package tally

import "time"

// Span is how long a window is. Windows are aligned to the Unix epoch by their node's clock.
const Span = 10 * time.Second

// Source is one life of a node: from the start of its process to its end.
type Source struct {
	Node  string
	Epoch string // random, born with the process
}

// Window is what a source counted in a span of time. Windows that could not be sent for long are merged: such a one spans
// a minute or an hour, and has one number as any other.
type Window struct {
	Number int64 // 1, 2, … within the source; given when the window closes
	// Start and End are by the node's clock, UTC. The control plane moves them by how far that differs from its own.
	Start, End time.Time
	Versions   []VersionTally // those that met any request
	Domains    []DomainTally
	Refusals   []Refusal // a sample of the last ones
	// Last says that the source was stopped and counts nothing after it.
	Last bool
}

// VersionTally is what was counted of one rule version.
type VersionTally struct {
	Domain  string
	UID     string // of the rule
	Version int64
	Counts  Counts
	// Keys and Distinct are of the keys that the version went against: it refused them, or would have.
	Keys     []KeyCount
	Distinct Distinct
	// Rates are of the minute that ends with the window: what the rule's newest version has, whatever became of the calls.
	Rates Rates
}

// DomainTally is what was counted of one domain.
type DomainTally struct {
	Domain string
	Counts DomainCounts
}

// Refusal is one refusal, or what would have been one.
type Refusal struct {
	Time      time.Time // UTC, microseconds
	Node      string
	Domain    string
	UID       string // of the rule
	Version   int64
	Limit     string // its name; "" where the rule has one, or none refused
	Outcome   Outcome
	Key       KeyID
	Label     string // of the key, as [Label] shows it
	Path      string // at most MaxPath bytes
	Reference string // what the caller was told; "" of a request that passed
}

// MaxPath is the most bytes the path of a refusal has.
const MaxPath = 256
